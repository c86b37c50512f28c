#if UNITY_WEBGL && !UNITY_EDITOR
namespace AnimeGamer
{
    /// <summary>The browser's own WebSocket, of a WebGL build.</summary>
    sealed class BrowserWire : WebSocketWire
    {
        // States of a socket: 0 while it opens; Open; from Closed on, the code with which it was closed.
        const int Open = 1, Closed = 1000;

        readonly int _socket;
        bool _opened;

        public BrowserWire(string address, FramePool pool) : base(pool)
        {
            _socket = BrowserSocket.AnimeGamerOpen(address, Subprotocol);
        }

        public override bool CanSend { get { return BrowserSocket.AnimeGamerState(_socket) == Open; } }

        public override bool WaitToRead(object gate, int milliseconds)
        {
            int state = BrowserSocket.AnimeGamerState(_socket);
            _opened |= state == Open;
            if (state >= Closed && Waiting() < 0) throw Lost(_opened, state);
            return _opened;
        }

        protected override void SendMessage(byte[] message) { BrowserSocket.AnimeGamerSend(_socket, message, message.Length); }

        protected override int Waiting() { return BrowserSocket.AnimeGamerWaiting(_socket); }

        protected override void Copy(int from, byte[] into, int count) { BrowserSocket.AnimeGamerCopy(_socket, from, into, count); }

        protected override void Drop() { BrowserSocket.AnimeGamerDrop(_socket); }

        public override void Dispose()
        {
            base.Dispose();
            BrowserSocket.AnimeGamerClose(_socket);
        }
    }
}
#endif
