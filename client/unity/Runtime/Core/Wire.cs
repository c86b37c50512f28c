using System;
using System.Collections.Generic;
using System.Net;
using System.Net.Sockets;
using System.Text;

namespace AnimeGamer
{
    /// <summary>
    /// One TCP connection that speaks ZMTP 3.1 as a DEALER, with CURVE if there are keys. Nothing here waits, except
    /// <see cref="WaitToRead"/>. Receiving belongs to one thread; <see cref="Send"/> is called under the client's lock.
    /// </summary>
    sealed class Wire : IDisposable
    {
        const int InboxBytes = 64 * 1024;

        readonly Socket _socket;
        readonly FramePool _pool;
        readonly CurveKeys _keys;
        Curve _curve;
        readonly Queue<byte[]> _outgoing = new Queue<byte[]>();
        int _outgoingAt;
        byte[] _unsealed;

        readonly byte[] _inbox = new byte[InboxBytes];
        int _inboxStart, _inboxEnd;
        byte[] _headerBytes = new byte[1024];
        readonly byte[] _small = new byte[256];
        byte[] _body, _sealedBytes = new byte[1024];
        int _bodyAt, _bodyLength, _index;
        bool _inBody, _sealed, _command, _more, _greeted;
        int _headerLength;

        /// <summary>Whether TCP is connected, and whether the handshake is done so that requests may be sent.</summary>
        public bool Connected { get; private set; }
        public bool Open { get; private set; }

        /// <summary>Whether the server has shown that it is the one of the keys.</summary>
        public bool KnowsServer { get; private set; }

        /// <summary>Whether Send may be called.</summary>
        public bool CanSend { get { return Open && _unsealed == null; } }

        /// <summary>After TryReceive: the message's header, and its buffer or null. The caller releases the buffer.</summary>
        public Header Header;
        public Frame Buffer;

        /// <summary>keys: null, none.</summary>
        public Wire(IPEndPoint at, FramePool pool, CurveKeys keys)
        {
            _pool = pool;
            _keys = keys;
            _socket = new Socket(at.AddressFamily, SocketType.Stream, ProtocolType.Tcp)
            {
                Blocking = false,
                NoDelay = true,
                ReceiveBufferSize = 1 << 20,
            };
            _socket.SetSocketOption(SocketOptionLevel.Socket, SocketOptionName.KeepAlive, true);
            try
            {
                _socket.Connect(at);
            }
            catch (SocketException error)
            {
                if (error.SocketErrorCode == SocketError.WouldBlock || error.SocketErrorCode == SocketError.InProgress)
                    return;
                _socket.Close();
                throw;
            }
        }

        /// <summary>Wait until there is something to read, or until the connection is made, at most so long.</summary>
        public bool WaitToRead(int milliseconds)
        {
            if (Connected) return _socket.Poll(1000 * milliseconds, SelectMode.SelectRead);
            if (!_socket.Poll(1000 * milliseconds, SelectMode.SelectWrite))
            {
                if (_socket.Poll(0, SelectMode.SelectError)) throw new SocketException((int)SocketError.ConnectionRefused);
                return false;
            }
            var error = (int)_socket.GetSocketOption(SocketOptionLevel.Socket, SocketOptionName.Error);
            if (error != 0) throw new SocketException(error);
            Connected = true;
            return true;
        }

        /// <summary>Send the greeting; once, when Connected.</summary>
        public void SendOpening()
        {
            _outgoing.Enqueue(Zmtp.Greeting(Mechanism));
            if (_keys == null) _outgoing.Enqueue(Zmtp.Frame(Zmtp.Command, Zmtp.Ready));  // without waiting for the server's
            Flush();
        }

        string Mechanism { get { return _keys == null ? "NULL" : "CURVE"; } }

        /// <summary>Send a request, or keep it until the socket takes it. buffer: null, none. With keys it is sealed and sent
        /// by <see cref="SealBuffer"/>.</summary>
        public void Send(byte[] header, byte[] buffer)
        {
            if (_keys != null)
            {
                _outgoing.Enqueue(Sealed(Curve.More, Codec.Magic));
                _outgoing.Enqueue(Sealed(buffer == null ? 0 : Curve.More, header));
                _unsealed = buffer;
                Flush();
                return;
            }
            var writer = new MsgWriter();
            Zmtp.FrameStart(writer, Codec.Magic.Length, Zmtp.More);
            writer.Raw(Codec.Magic, Codec.Magic.Length);
            Zmtp.FrameStart(writer, header.Length, buffer == null ? 0 : Zmtp.More);
            writer.Raw(header, header.Length);
            if (buffer != null) Zmtp.FrameStart(writer, buffer.Length, 0);
            SendBytes(writer.ToArray());
            if (buffer != null) SendBytes(buffer);
        }

        /// <summary>Seal and send what <see cref="Send"/> left: without the lock, as it takes a picture's time. Called by the
        /// thread that receives.</summary>
        public void SealBuffer(object gate)
        {
            if (_keys == null) return;
            byte[] buffer;
            lock (gate) buffer = _unsealed;
            if (buffer == null) return;
            byte[] frame = Sealed(0, buffer);
            lock (gate)
            {
                _unsealed = null;
                SendBytes(frame);
            }
        }

        byte[] Sealed(int flags, byte[] data) { return Zmtp.Frame(0, _curve.Seal(flags, data)); }

        /// <summary>Whether something waits to be sent.</summary>
        public bool HasOutgoing { get { return _outgoing.Count > 0 || _unsealed != null; } }

        /// <summary>Send what waits, as far as the socket takes it. Throws SocketException if the connection is lost.</summary>
        public void Flush()
        {
            while (_outgoing.Count > 0)
            {
                byte[] next = _outgoing.Peek();
                int sent = _socket.Send(next, _outgoingAt, next.Length - _outgoingAt, SocketFlags.None, out SocketError error);
                if (error == SocketError.WouldBlock || error == SocketError.IOPending) return;
                if (error != SocketError.Success) throw new SocketException((int)error);
                _outgoingAt += sent;
                if (_outgoingAt < next.Length) return;
                _outgoingAt = 0;
                _outgoing.Dequeue();
            }
        }

        void SendBytes(byte[] bytes)
        {
            _outgoing.Enqueue(bytes);
            Flush();
        }

        /// <summary>
        /// Read until a message is whole (true), or nothing more is there (false). `gate` is held while a PONG is sent.
        /// Throws SocketException if the connection is lost, AnimeGamerException for what is not the protocol.
        /// </summary>
        public bool TryReceive(object gate)
        {
            while (true)
            {
                if (_inBody)
                {
                    if (!FillBody()) return false;
                    _inBody = false;
                    if (_sealed) OpenSealed();
                    if (_command) OnCommand(gate);
                    else if (OnFrame()) return true;
                }
                else if (!_greeted ? !ReadGreeting(gate) : !ReadFrameStart())
                {
                    if (!FillInbox()) return false;
                }
            }
        }

        public void Dispose()
        {
            Buffer?.Release();
            Buffer = null;
            _socket.Close(0);
            _curve?.Dispose();
        }

        bool FillInbox()
        {
            if (_inboxStart > 0)
            {
                System.Buffer.BlockCopy(_inbox, _inboxStart, _inbox, 0, _inboxEnd - _inboxStart);
                _inboxEnd -= _inboxStart;
                _inboxStart = 0;
            }
            int count = Receive(_inbox, _inboxEnd, _inbox.Length - _inboxEnd);
            _inboxEnd += count;
            return count > 0;
        }

        bool FillBody()
        {
            int there = Math.Min(_inboxEnd - _inboxStart, _bodyLength - _bodyAt);
            System.Buffer.BlockCopy(_inbox, _inboxStart, _body, _bodyAt, there);
            _inboxStart += there;
            _bodyAt += there;
            while (_bodyAt < _bodyLength)
            {
                int count = Receive(_body, _bodyAt, _bodyLength - _bodyAt);
                if (count == 0) return false;
                _bodyAt += count;
            }
            return true;
        }

        // Bytes received; 0 if there are none now.
        int Receive(byte[] into, int at, int size)
        {
            int count = _socket.Receive(into, at, size, SocketFlags.None, out SocketError error);
            if (error == SocketError.WouldBlock || error == SocketError.IOPending) return 0;
            if (error != SocketError.Success) throw new SocketException((int)error);
            if (count == 0) throw new SocketException((int)SocketError.ConnectionReset);
            return count;
        }

        bool ReadGreeting(object gate)
        {
            int there = _inboxEnd - _inboxStart;
            if (there > 0 && _inbox[_inboxStart] != 0xff)
            {
                string said = Encoding.ASCII.GetString(_inbox, _inboxStart, Math.Min(there, 12)).Split('\r', '\n')[0];
                throw new AnimeGamerException("protocol",
                    "another program answers there, not a game server (its first bytes are \"" + said + "\")",
                    "use the address that animegamer-rt serve printed");
            }
            if (there < Zmtp.GreetingBytes) return false;
            string mechanism = Encoding.ASCII.GetString(_inbox, _inboxStart + 12, 20).TrimEnd('\0');
            if (_inbox[_inboxStart + 10] < 3)
                throw new AnimeGamerException("protocol", "a program there speaks an old version of ZeroMQ, not ZMTP 3",
                    "use the address that animegamer-rt serve printed");
            if (mechanism != Mechanism)
                throw _keys == null
                    ? new AnimeGamerException("not_allowed", "the server asks for keys (" + mechanism + "); this client was given none",
                        "set ServerKey and SecretKey; its owner makes yours with: animegamer-rt keys new NAME")
                    : new AnimeGamerException("not_allowed", "the server there has no keys; this client was given some",
                        "leave ServerKey and SecretKey empty, or check the address");
            _inboxStart += Zmtp.GreetingBytes;
            _greeted = true;
            if (_keys != null)
            {
                _curve = new Curve(_keys);
                SendCommand(_curve.Hello(), gate);
            }
            return true;
        }

        bool ReadFrameStart()
        {
            int there = _inboxEnd - _inboxStart;
            if (there < 2) return false;
            byte flags = _inbox[_inboxStart];
            if (flags > 0x06 || flags == 0x05) throw Zmtp.NotZmtp("a frame has flags " + flags);
            bool isLong = (flags & Zmtp.Long) != 0;
            int start = isLong ? 9 : 2;
            if (there < start) return false;
            ulong length = isLong ? MsgView.BigEndian(_inbox, _inboxStart + 1, 8) : _inbox[_inboxStart + 1];
            _inboxStart += start;
            _sealed = _curve != null && Open;
            _command = (flags & Zmtp.Command) != 0;
            _more = (flags & Zmtp.More) != 0;
            if (!Open && !_command) throw Zmtp.NotZmtp("a message came before READY");
            if (_sealed) ChooseSealedBody(length);
            else if (_command) ChooseCommandBody(length);
            else ChooseBody(length);
            _bodyLength = (int)length;
            _bodyAt = 0;
            _inBody = true;
            return true;
        }

        // Where a sealed frame goes: only when it is open is it known whether it is a small command.
        void ChooseSealedBody(ulong length)
        {
            if (length < Curve.Overhead) throw Curve.NotSealed();
            if (length > (ulong)(Curve.Overhead + _small.Length)) CheckFrameLength(length - Curve.Overhead);
            if (length > (ulong)_sealedBytes.Length) _sealedBytes = new byte[(int)length];
            _body = _sealedBytes;
        }

        void ChooseCommandBody(ulong length)
        {
            if (length > (ulong)_small.Length) throw Zmtp.NotZmtp("a command has " + length + " bytes");
            _body = _small;
        }

        // Where a message's frame goes.
        void ChooseBody(ulong length)
        {
            CheckFrameLength(length);
            if (_index == 0) _body = _small;
            else if (_index == 1)
            {
                if (length > (ulong)_headerBytes.Length) _headerBytes = new byte[(int)length];
                _body = _headerBytes;
            }
            else
            {
                Buffer = _pool.Take((int)length);
                _body = Buffer.Data;
            }
        }

        void CheckFrameLength(ulong length)
        {
            if (_index > 0) Codec.CheckSize(_index, length, Limits.FromServer);
            else if (length > (ulong)_small.Length) Codec.CheckMagic(_small, 0);
        }

        void OpenSealed()
        {
            int flags = _curve.Open(_sealedBytes, _bodyLength);
            _more = (flags & Curve.More) != 0;
            _command = (flags & Curve.Command) != 0;
            _bodyLength -= Curve.Overhead;
            if (_command) ChooseCommandBody((ulong)_bodyLength);
            else ChooseBody((ulong)_bodyLength);
            System.Buffer.BlockCopy(_sealedBytes, Curve.Overhead, _body, 0, _bodyLength);
        }

        // Whether the message is whole.
        bool OnFrame()
        {
            if (_index == 0) Codec.CheckMagic(_small, _bodyLength);
            else if (_index == 1)
            {
                _headerLength = _bodyLength;
                Header = Codec.ReadHeader(_headerBytes, _headerLength);
            }
            if (_more)
            {
                _index++;
                return false;
            }
            if (_index == 0) throw new AnimeGamerException("protocol", "received a message of 1 frame; expected at least 2");
            _index = 0;
            return true;
        }

        void OnCommand(object gate)
        {
            int name = _bodyLength > 0 ? _small[0] : 0;
            string text = name < _bodyLength ? Encoding.ASCII.GetString(_small, 1, name) : "";
            if (text == "PING" && _bodyLength >= 7)
            {
                var pong = new byte[_bodyLength - 2];
                Encoding.ASCII.GetBytes("\x04PONG", 0, 5, pong, 0);
                System.Buffer.BlockCopy(_small, 7, pong, 5, _bodyLength - 7);
                lock (gate) SendBytes(_sealed ? Sealed(Curve.Command, pong) : Zmtp.Frame(Zmtp.Command, pong));
            }
            else if (text == "ERROR" && _keys != null && !Open)
                throw new AnimeGamerException("not_allowed", "the server does not know this client's key",
                    "ask its owner to add your public key to its --authorized-keys folder");
            else if (text == "ERROR")
                throw new AnimeGamerException("not_allowed", "the server ended the ZeroMQ handshake: "
                    + Encoding.ASCII.GetString(_small, 7, Math.Max(0, _bodyLength - 7)), "check the server's log");
            else if (Open) return;
            else if (text == "READY")
            {
                _curve?.CheckReady(_small, _bodyLength);
                lock (gate) Open = true;  // who sends next has to see the number of the last nonce
            }
            else if (text == "WELCOME" && _curve != null && !KnowsServer)
            {
                byte[] initiate = _curve.Initiate(_small, _bodyLength, Zmtp.Metadata);
                KnowsServer = true;
                SendCommand(initiate, gate);
            }
        }

        void SendCommand(byte[] command, object gate)
        {
            lock (gate) SendBytes(Zmtp.Frame(Zmtp.Command, command));
        }
    }
}
