using System;

namespace AnimeGamer
{
    /// <summary>
    /// The one error of this package. <see cref="Code"/> is for programs: a code of PROTOCOL.md, or one of this client:
    /// timed_out, closed, not_allowed, bad_argument, server_process.
    /// </summary>
    public sealed class AnimeGamerException : Exception
    {
        /// <summary>What kind of error it is, for programs.</summary>
        public string Code { get; }

        /// <summary>What happened, for people.</summary>
        public string Text { get; }

        /// <summary>What to do about it, for people; null if that is not known.</summary>
        public string Do { get; }

        /// <summary>What to tell the player, in codes, if the instruction was not understood; else empty.</summary>
        public Answer[] Answers { get; internal set; } = new Answer[0];

        public AnimeGamerException(string code, string text, string whatToDo = null)
            : base(whatToDo == null ? text : text + "; " + whatToDo)
        {
            Code = code;
            Text = text;
            Do = whatToDo;
        }
    }
}
