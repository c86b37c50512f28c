using System.Collections.Generic;
using System.Globalization;

namespace AnimeGamer.Driver
{
    /// <summary>The driver's `display`: the commands of client/vectors/display.json.</summary>
    sealed class ShownClips
    {
        readonly List<Frame> _added = new List<Frame>();
        ClipDisplay _display;
        FramePool _pool;

        public string Answer(string[] words)
        {
            switch (words[0])
            {
                case "new":
                    _display = new ClipDisplay
                    {
                        FramesPerSecond = Number(words[1]),
                        Mode = words[2] == "hold" ? PlayMode.Hold : words[2] == "loop" ? PlayMode.Loop : PlayMode.PingPong,
                        RestSeconds = Number(words[3]),
                        FadeSeconds = Number(words[4]),
                        AtOnce = words.Length > 5,
                    };
                    _pool = new FramePool();
                    _added.Clear();
                    break;
                case "add":
                    var frame = new Frame(_pool, 0) { Turn = long.Parse(words[1]), Index = int.Parse(words[2]), Count = int.Parse(words[3]) };
                    _added.Add(frame);
                    _display.Add(frame);
                    break;
                case "at":
                    _display.Advance(Number(words[1]));
                    return Name(_display.Picture) + " " + Name(_display.Next) + " " + _display.Blend.ToString(CultureInfo.InvariantCulture)
                        + " " + _display.Turn + " " + _display.Index + " " + _display.Ended + " " + Released();
                case "pause":
                case "go": _display.Paused = words[0] == "pause"; break;
                case "end": _display.EndClip(); break;
                case "again": _display.Again(); break;
                default: _display.Clear(); break;
            }
            return "ok";
        }

        // The pool gives back the newest first.
        string Released()
        {
            string names = "";
            for (Frame frame = _pool.Take(0); _added.Remove(frame); frame = _pool.Take(0))
                names = Name(frame) + (names == "" ? "" : ",") + names;
            return names == "" ? "-" : names;
        }

        static string Name(Frame frame) { return frame == null ? "-" : frame.Turn + "." + frame.Index; }

        static double Number(string text) { return double.Parse(text, CultureInfo.InvariantCulture); }
    }
}
