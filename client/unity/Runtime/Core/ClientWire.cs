#if !UNITY_WEBGL || UNITY_EDITOR
using System;
using System.Net.WebSockets;
using System.Threading;
using System.Threading.Tasks;

namespace AnimeGamer
{
    /// <summary>The WebSocket of .NET: the editor and programs reach a gateway with it.</summary>
    sealed class ClientWire : WebSocketWire
    {
        readonly ClientWebSocket _socket = new ClientWebSocket();
        readonly Task _opening;
        Task _sending;
        Task<WebSocketReceiveResult> _receiving;
        byte[] _message = new byte[64 * 1024];
        int _length;
        bool _whole;

        public ClientWire(Uri address, string password, FramePool pool) : base(pool)
        {
            _socket.Options.AddSubProtocol(Subprotocol);
            if (password != "") _socket.Options.SetRequestHeader("Authorization", "Bearer " + password);
            _opening = _sending = _socket.ConnectAsync(address, CancellationToken.None);
        }

        public override bool CanSend { get { return _sending.Status == TaskStatus.RanToCompletion; } }

        public override bool WaitToRead(object gate, int milliseconds)
        {
            if (!_opening.IsCompleted) ((IAsyncResult)_opening).AsyncWaitHandle.WaitOne(milliseconds);
            if (!_opening.IsCompleted) return false;
            if (_sending.IsFaulted) throw Lost(_opening != _sending, 0);
            if (_receiving == null && !_whole) Receive();
            if (!_whole && !_receiving.IsCompleted)
                ((IAsyncResult)_receiving).AsyncWaitHandle.WaitOne(_sending.IsCompleted ? milliseconds : Math.Min(milliseconds, 1));
            return _whole || _receiving.IsCompleted;
        }

        protected override void SendMessage(byte[] message)
        {
            _sending = _socket.SendAsync(new ArraySegment<byte>(message), WebSocketMessageType.Binary, true, CancellationToken.None);
        }

        protected override int Waiting()
        {
            while (!_whole)
            {
                if (_receiving == null) Receive();
                if (!_receiving.IsCompleted) return -1;
                if (_receiving.Status != TaskStatus.RanToCompletion || _receiving.Result.MessageType == WebSocketMessageType.Close)
                    throw Lost(true, (int)(_socket.CloseStatus ?? 0));
                _length += _receiving.Result.Count;
                _whole = _receiving.Result.EndOfMessage;
                _receiving = null;
            }
            return _length;
        }

        protected override void Copy(int from, byte[] into, int count) { System.Buffer.BlockCopy(_message, from, into, 0, count); }

        protected override void Drop()
        {
            _whole = false;
            _length = 0;
        }

        public override void Dispose()
        {
            base.Dispose();
            _socket.Abort();
            _socket.Dispose();
        }

        void Receive()
        {
            Codec.CheckSize(2, (ulong)_length, Limits.FromServer);
            if (_length == _message.Length) Array.Resize(ref _message, 2 * _message.Length);
            _receiving = _socket.ReceiveAsync(new ArraySegment<byte>(_message, _length, _message.Length - _length), CancellationToken.None);
        }
    }
}
#endif
