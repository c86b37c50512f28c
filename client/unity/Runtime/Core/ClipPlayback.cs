using System.Collections.Generic;

namespace AnimeGamer
{
    /// <summary>
    /// Which picture is due. Frames come in bursts; a clip is played at its own rate from its first frame on. Its last
    /// frame is held until the next clip begins, which it does when the one before has been played. Use it from one
    /// thread; times are in seconds, of any clock.
    /// </summary>
    public sealed class ClipPlayback
    {
        sealed class Clip
        {
            public readonly List<Frame> Frames = new List<Frame>(32);
            public long Turn;
            public int Shown, Count;
            public double Start;
        }

        readonly Queue<Clip> _clips = new Queue<Clip>();
        readonly Stack<Clip> _free = new Stack<Clip>();
        Clip _newest;

        /// <summary>Frames shown in a second, as the server's welcome says.</summary>
        public double FramesPerSecond = 8;

        /// <summary>The picture to show; null before the first. It stays valid until the next Advance or Clear.</summary>
        public Frame Shown { get; private set; }

        /// <summary>Changes whenever Shown does.</summary>
        public int Version { get; private set; }

        /// <summary>Whether pictures are still to be shown.</summary>
        public bool Playing { get; private set; }

        /// <summary>Add a raw picture of a turn; the playback owns it from now on.</summary>
        public void Add(long turn, Frame frame)
        {
            if (_newest == null || _newest.Turn != turn || frame.Index < _newest.Frames.Count)
            {
                EndClip();
                _newest = _free.Count > 0 ? _free.Pop() : new Clip();
                _newest.Turn = turn;
                _newest.Count = frame.Count;
                _newest.Shown = -1;
                _clips.Enqueue(_newest);
                while (_clips.Count > 2) Drop();  // the player is two clips behind: go on with the next
            }
            _newest.Frames.Add(frame);
            Playing = true;
        }

        /// <summary>No more pictures come for the newest clip: its turn was cancelled, or is done.</summary>
        public void EndClip()
        {
            if (_newest != null) _newest.Count = _newest.Frames.Count;
        }

        /// <summary>Set Shown to what is due now.</summary>
        public void Advance(double now)
        {
            if (_clips.Count == 0) return;
            Clip clip = _clips.Peek();
            bool over = clip.Shown >= 0 && now >= clip.Start + clip.Count / FramesPerSecond;
            if (over && _clips.Count > 1)
            {
                Drop();
                clip = _clips.Peek();
                over = false;
            }
            if (clip.Shown < 0) clip.Start = now;
            int due = (int)((now - clip.Start) * FramesPerSecond);
            if (due < 0) due = 0;
            if (due >= clip.Frames.Count) due = clip.Frames.Count - 1;  // late, or the last one: it is held
            Playing = !over || _clips.Count > 1;
            if (due == clip.Shown) return;
            for (int i = clip.Shown < 0 ? 0 : clip.Shown; i < due; i++) clip.Frames[i].Release();
            clip.Shown = due;
            Shown = clip.Frames[due];
            Version++;
        }

        /// <summary>Forget all pictures.</summary>
        public void Clear()
        {
            while (_clips.Count > 0) Drop();
            _newest = null;
            Shown = null;
            Playing = false;
            Version++;
        }

        void Drop()
        {
            Clip clip = _clips.Dequeue();
            for (int i = clip.Shown < 0 ? 0 : clip.Shown; i < clip.Frames.Count; i++) clip.Frames[i].Release();
            clip.Frames.Clear();
            _free.Push(clip);
        }
    }
}
