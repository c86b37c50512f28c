using System;

namespace AnimeGamer
{
    /// <summary>A connection to a server: whole messages go out and come in. Nothing waits, except <see cref="WaitToRead"/>.
    /// Receiving belongs to one thread; sending is done under the client's lock, `gate`. A lost connection is thrown as
    /// <see cref="LostException"/>.</summary>
    interface IWire : IDisposable
    {
        /// <summary>Whether Send may be called.</summary>
        bool CanSend { get; }

        /// <summary>After TryReceive: the message's header, and its buffer or null. The caller releases the buffer.</summary>
        Header Header { get; }
        Frame Buffer { get; set; }

        /// <summary>Send a request, or keep it until it can be sent. buffer: null, none.</summary>
        void Send(byte[] header, byte[] buffer);

        /// <summary>Send what was kept, as far as it goes.</summary>
        void Flush();

        /// <summary>Wait until there may be something to read, at most so long; false if there is not.</summary>
        bool WaitToRead(object gate, int milliseconds);

        /// <summary>Read until a message is whole (true), or nothing more is there (false). Throws AnimeGamerException for what
        /// is not the protocol.</summary>
        bool TryReceive(object gate);
    }

    /// <summary>The connection is gone, or cannot be opened: why, and what to do or null.</summary>
    sealed class LostException : Exception
    {
        public readonly string WhatToDo;

        public LostException(string why, string whatToDo = null) : base(why) { WhatToDo = whatToDo; }
    }
}
