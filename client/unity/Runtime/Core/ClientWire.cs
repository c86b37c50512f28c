#if !UNITY_WEBGL || UNITY_EDITOR
using System;
using System.Net.WebSockets;
using System.Threading;
using System.Threading.Tasks;

namespace AnimeGamer
{
    /// <summary>A client's password, empty for none, and whether it has opened a connection.</summary>
    sealed class Password
    {
        public string Text;
        public volatile bool Accepted;

        public bool IsDoubtful { get { return Text != "" && !Accepted; } }
    }

    /// <summary>The WebSocket of .NET: the editor and programs reach a gateway with it.</summary>
    sealed class ClientWire : WebSocketWire
    {
        readonly ClientWebSocket _socket = new ClientWebSocket();
        readonly Task _opening;
        readonly Password _password;
        Task _sending;
        Task<WebSocketReceiveResult> _receiving;
        byte[] _message = new byte[64 * 1024];
        int _length;
        bool _whole;

        public ClientWire(Uri address, Password password, FramePool pool) : base(pool)
        {
            _password = password;
            _socket.Options.AddSubProtocol(Subprotocol);
            if (password.Text != "") _socket.Options.SetRequestHeader("Authorization", "Bearer " + password.Text);
            _opening = _sending = _socket.ConnectAsync(address, CancellationToken.None);
        }

        public override bool CanSend { get { return _sending.Status == TaskStatus.RanToCompletion; } }

        public override bool WaitToRead(object gate, int milliseconds)
        {
            if (!_opening.IsCompleted) ((IAsyncResult)_opening).AsyncWaitHandle.WaitOne(milliseconds);
            if (!_opening.IsCompleted) return false;
            // An answer that opens no WebSocket has no inner error. It ends the calls: more wrong passwords would lock this address out.
            if (_opening.IsFaulted && _password.IsDoubtful && _opening.Exception.InnerException.InnerException == null)
                throw new AnimeGamerException("not_allowed", "the gateway opens no WebSocket: Password may be wrong",
                    "check it, and the address; after ten wrong ones wait a minute");
            if (_sending.IsFaulted) throw Lost(_opening != _sending, 0);
            _password.Accepted = true;
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
