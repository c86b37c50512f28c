using System;
using System.Collections.Generic;

namespace AnimeGamer
{
    /// <summary>What a clip does when it was played once. Hold gives up each picture as it passes; the others keep the clip.</summary>
    public enum PlayMode { Hold, Loop, PingPong }

    /// <summary>
    /// Which picture to show: clips at their own rate, held, looped or played back and forth, faded into each other. A clip
    /// begins when the one before was played once; while its next picture has not arrived, its time stands still. Use it from
    /// one thread. Once warm, nothing is allocated. client/vectors/display.json says what every client does.
    /// </summary>
    public sealed class ClipDisplay
    {
        sealed class Clip
        {
            public readonly List<Frame> Frames = new List<Frame>(32);
            public long Turn;
            public int First, Count, Shown, Passed;
            public double Seconds;
            public bool Begun, Keeps, Ended;

            public int Arrived { get { return First + Frames.Count; } }
            public Frame Picture { get { return Frames[Shown - First]; } }
        }

        // The one that is shown, and the one after it: when a third begins, the first is cut short.
        readonly Clip[] _clips = { new Clip(), new Clip() };
        int _count;
        Frame _under;
        double _fading, _now = double.NaN;
        long _ended;

        /// <summary>Pictures shown in a second, as the server's welcome says.</summary>
        public double FramesPerSecond = 8;

        /// <summary>Of the clips that begin from now on.</summary>
        public PlayMode Mode = PlayMode.Hold;

        /// <summary>How long the last picture stays before the clip comes again.</summary>
        public double RestSeconds;

        /// <summary>In which a clip is faded into the next; 0: a cut.</summary>
        public double FadeSeconds;

        /// <summary>A clip begins with its first picture, although the one before was not played once.</summary>
        public bool AtOnce;

        /// <summary>Time stands still.</summary>
        public bool Paused;

        /// <summary>Draw this, null before the first; and Next over it, if it is not null, with the weight Blend (0..1). They stay
        /// valid until the next Advance or Clear.</summary>
        public Frame Picture { get; private set; }
        public Frame Next { get; private set; }
        public double Blend { get; private set; }

        /// <summary>Of the newer picture; 0 and -1 before the first.</summary>
        public long Turn { get; private set; }
        public int Index { get; private set; } = -1;

        /// <summary>A turn whose clip was played once, or was cut short, in the last Advance; 0: none.</summary>
        public long Ended { get; private set; }

        /// <summary>Changes whenever Picture, Next or Blend does.</summary>
        public int Version { get; private set; }

        /// <summary>Whether a clip has not been played once.</summary>
        public bool Playing { get { return _count > 1 || (_count == 1 && !_clips[0].Ended); } }

        /// <summary>Take a raw picture; the display releases it. Another turn, or another order, begins another clip.</summary>
        public void Add(Frame frame)
        {
            Clip newest = _count > 0 ? _clips[_count - 1] : null;
            if (newest == null || newest.Turn != frame.Turn || frame.Index != newest.Arrived || frame.Index >= newest.Count)
            {
                EndClip();
                if (_count == _clips.Length) Leave();
                newest = _clips[_count++];
                newest.Turn = frame.Turn;
                newest.First = newest.Shown = frame.Index;
                newest.Count = frame.Count;
                newest.Frames.Clear();
                newest.Passed = 0;
                newest.Begun = newest.Keeps = newest.Ended = false;
            }
            newest.Frames.Add(frame);
        }

        /// <summary>No more pictures come for the newest clip: its turn is done or was cancelled.</summary>
        public void EndClip()
        {
            if (_count > 0) _clips[_count - 1].Count = _clips[_count - 1].Arrived;
        }

        /// <summary>Play the clip from its beginning, if it keeps its pictures.</summary>
        public void Again()
        {
            if (_count == 0 || !_clips[0].Keeps) return;
            _clips[0].Seconds = _clips[0].First / FramesPerSecond;
            _clips[0].Ended = false;
        }

        /// <summary>Forget all pictures.</summary>
        public void Clear()
        {
            while (_count > 0) Leave();
            GiveUpUnder();
            _ended = 0;
            Show(null, null, 0, 0, -1);
        }

        /// <summary>Set what to draw at this time, in seconds of any clock that does not jump.</summary>
        public void Advance(double now)
        {
            double passed = Paused || double.IsNaN(_now) ? 0 : Math.Max(0, now - _now);
            _now = now;
            _fading += passed;
            if (_count > 0 && _clips[0].Begun && !Paused) Play(_clips[0], passed);
            if (_count > 0) Draw(_clips[0]);
            Ended = _ended;
            _ended = 0;
        }

        void Draw(Clip clip)
        {
            if (!clip.Begun)
            {
                clip.Begun = true;
                clip.Keeps = Mode != PlayMode.Hold;
                clip.Seconds = clip.First / FramesPerSecond;
                _fading = 0;
            }
            clip.Shown = Math.Max(clip.First, Math.Min(Position(clip), clip.Arrived - 1));
            if (!clip.Keeps) GiveUp(clip, clip.Shown - clip.First);
            if (FadeSeconds <= 0 || _fading >= FadeSeconds) GiveUpUnder();
            if (_under == null) Show(clip.Picture, null, 0, clip.Turn, clip.Shown);
            else Show(_under, clip.Picture, _fading / FadeSeconds, clip.Turn, clip.Shown);
        }

        void Show(Frame picture, Frame next, double blend, long turn, int index)
        {
            if (picture != Picture || next != Next || blend != Blend || turn != Turn || index != Index) Version++;
            Picture = picture;
            Next = next;
            Blend = blend;
            Turn = turn;
            Index = index;
        }

        // Let time pass for the clip that is shown; leave it if the next one begins.
        void Play(Clip clip, double passed)
        {
            clip.Seconds += passed;
            if (clip.Arrived < clip.Count) clip.Seconds = Math.Min(clip.Seconds, clip.Arrived / FramesPerSecond);
            else if (clip.Seconds >= clip.Count / FramesPerSecond && !clip.Ended)
            {
                clip.Ended = true;
                _ended = clip.Turn;
            }
            if (_count > 1 && (clip.Ended || AtOnce)) Leave();
        }

        int Position(Clip clip)
        {
            double once = clip.Count / FramesPerSecond;
            int last = clip.Count - 1;
            if (clip.Seconds >= once && (Mode == PlayMode.Hold || !clip.Keeps)) return last;
            int back = Mode == PlayMode.PingPong ? Math.Max(0, clip.Count - 2) : 0;
            double seconds = clip.Seconds % (once + RestSeconds + back / FramesPerSecond);
            if (seconds < once) return (int)(seconds * FramesPerSecond);
            return seconds < once + RestSeconds ? last : last - 1 - (int)((seconds - once - RestSeconds) * FramesPerSecond);
        }

        // Drop the first clip, except for the picture that is shown, which the next one is drawn over.
        void Leave()
        {
            Clip clip = _clips[0];
            if (clip.Begun)
            {
                if (!clip.Ended) _ended = clip.Turn;
                GiveUpUnder();
                _under = clip.Picture;
                GiveUp(clip, clip.Shown - clip.First);
                clip.Passed++;
            }
            GiveUp(clip, clip.Frames.Count);
            _clips[0] = _clips[1];
            _clips[1] = clip;
            _count--;
        }

        void GiveUp(Clip clip, int before)
        {
            for (; clip.Passed < before; clip.Passed++) clip.Frames[clip.Passed].Release();
        }

        void GiveUpUnder()
        {
            _under?.Release();
            _under = null;
        }
    }
}
