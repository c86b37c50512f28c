#if !UNITY_WEBGL || UNITY_EDITOR
using System.Threading;

namespace AnimeGamer
{
    /// <summary>The thread that keeps a link going, and ends in time.</summary>
    sealed class Pump
    {
        // How long the thread sleeps at most; so long, too, may its end take.
        const int PollMs = 50, IdleMs = 250;

        readonly AutoResetEvent _wake = new AutoResetEvent(false);
        readonly Link _link;
        readonly Thread _thread;

        public Pump(Link link, string name)
        {
            _link = link;
            _thread = new Thread(Run) { IsBackground = true, Name = name };
            _thread.Start();
        }

        /// <summary>There is something to send, or the link was stopped.</summary>
        public void Wake() { _wake.Set(); }

        /// <summary>Nothing: the thread does it.</summary>
        public void Update() { }

        /// <summary>Wait for the thread's end, so long at most; false if it goes on.</summary>
        public bool Join(int milliseconds)
        {
            if (Thread.CurrentThread == _thread) return true;
            if (!_thread.Join(milliseconds)) return false;
            _wake.Close();
            return true;
        }

        void Run()
        {
            try
            {
                while (!_link.Stopped)
                    if (!_link.Step(PollMs)) _wake.WaitOne(_link.State.HasCalls ? PollMs : IdleMs);
            }
            finally
            {
                _link.DropWire();
            }
        }
    }
}
#else
namespace AnimeGamer
{
    /// <summary>Keeps a link going in a browser, which has no threads: a step at each update of the game.</summary>
    sealed class Pump
    {
        readonly Link _link;

        public Pump(Link link, string name) { _link = link; }

        public void Wake()
        {
            if (_link.Stopped) _link.DropWire();
        }

        public void Update() { _link.Step(0); }

        public bool Join(int milliseconds) { return true; }
    }
}
#endif
