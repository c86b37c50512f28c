#if !UNITY_WEBGL || UNITY_EDITOR
using System;
using System.Collections.Generic;
using System.Net;
using System.Net.Sockets;
using System.Text;

namespace AnimeGamer
{
    /// <summary>One TCP connection that speaks ZMTP 3.1 as a DEALER, with CURVE if there are keys.</summary>
    sealed class Wire : IWire
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

        // Whether TCP is connected, whether the server has shown that it is the one of the keys, and whether the handshake is
        // done so that requests may be sent.
        bool _connected, _knowsServer, _open;

        public bool CanSend { get { return _open && _unsealed == null; } }
        public Header Header { get; private set; }
        public Frame Buffer { get; set; }

        /// <summary>What connects to a host, whose name it looks up each time, as it may have moved; to its addresses in turn.
        /// keys: null, none.</summary>
        public static Func<int, IWire> Opener(DnsEndPoint at, FramePool pool, CurveKeys keys)
        {
            return tries =>
            {
                try
                {
                    IPAddress[] known = IPAddress.TryParse(at.Host, out IPAddress number)
                        ? new[] { number } : Dns.GetHostAddresses(at.Host);
                    if (known.Length > 0) return new Wire(new IPEndPoint(known[tries % known.Length], at.Port), pool, keys);
                }
                catch (SocketException)
                {
                    // As if there were none.
                }
                throw new LostException("no address is known of the host " + at.Host, "check the name, or give its IP address");
            };
        }

        Wire(IPEndPoint at, FramePool pool, CurveKeys keys)
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
                throw Lost();
            }
        }

        public bool WaitToRead(object gate, int milliseconds)
        {
            SealBuffer(gate);
            if (_outgoing.Count > 0) milliseconds = Math.Min(milliseconds, 1);
            try
            {
                if (_connected) return _socket.Poll(1000 * milliseconds, SelectMode.SelectRead);
                if (!_socket.Poll(1000 * milliseconds, SelectMode.SelectWrite))
                {
                    if (_socket.Poll(0, SelectMode.SelectError)) throw Lost();
                    return false;
                }
                if ((int)_socket.GetSocketOption(SocketOptionLevel.Socket, SocketOptionName.Error) != 0) throw Lost();
            }
            catch (SocketException)
            {
                throw Lost();
            }
            _connected = true;
            lock (gate) SendOpening();
            return false;
        }

        void SendOpening()
        {
            _outgoing.Enqueue(Zmtp.Greeting(Mechanism));
            if (_keys == null) _outgoing.Enqueue(Zmtp.Frame(Zmtp.Command, Zmtp.Ready));  // without waiting for the server's
            Flush();
        }

        LostException Lost()
        {
            if (!_connected) return new LostException("nothing listens there");
            if (_open) return new LostException("the connection was lost");
            if (_keys == null)
                return new LostException("a program there ends the connection before the ZeroMQ handshake; it may ask for keys, "
                    + "which this client was not given",
                    "if it is a server with keys, set ServerKey and SecretKey; else use the address that animegamer-rt serve printed");
            if (!_knowsServer)
                return new LostException("the server ends the connection in the handshake: the server's key may be wrong",
                    "set ServerKey to the public key of this server, from its owner (server.key), and check the address");
            return new LostException("the server ends the connection in the handshake: this client's key may be wrong",
                "ask the server's owner to add your public key to its --authorized-keys folder");
        }

        string Mechanism { get { return _keys == null ? "NULL" : "CURVE"; } }

        // With keys the buffer is sealed and sent by SealBuffer.
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

        // Seal and send what Send left: without the lock, as it takes a picture's time. Called by the thread that receives.
        void SealBuffer(object gate)
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

        public void Flush()
        {
            while (_outgoing.Count > 0)
            {
                byte[] next = _outgoing.Peek();
                int sent = _socket.Send(next, _outgoingAt, next.Length - _outgoingAt, SocketFlags.None, out SocketError error);
                if (error == SocketError.WouldBlock || error == SocketError.IOPending) return;
                if (error != SocketError.Success) throw Lost();
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
            if (error != SocketError.Success || count == 0) throw Lost();
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
            _sealed = _curve != null && _open;
            _command = (flags & Zmtp.Command) != 0;
            _more = (flags & Zmtp.More) != 0;
            if (!_open && !_command) throw Zmtp.NotZmtp("a message came before READY");
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
            else if (text == "ERROR" && _keys != null && !_open)
                throw new AnimeGamerException("not_allowed", "the server does not know this client's key",
                    "ask its owner to add your public key to its --authorized-keys folder");
            else if (text == "ERROR")
                throw new AnimeGamerException("not_allowed", "the server ended the ZeroMQ handshake: "
                    + Encoding.ASCII.GetString(_small, 7, Math.Max(0, _bodyLength - 7)), "check the server's log");
            else if (_open) return;
            else if (text == "READY")
            {
                _curve?.CheckReady(_small, _bodyLength);
                lock (gate) _open = true;  // who sends next has to see the number of the last nonce
            }
            else if (text == "WELCOME" && _curve != null && !_knowsServer)
            {
                byte[] initiate = _curve.Initiate(_small, _bodyLength, Zmtp.Metadata);
                _knowsServer = true;
                SendCommand(initiate, gate);
            }
        }

        void SendCommand(byte[] command, object gate)
        {
            lock (gate) SendBytes(Zmtp.Frame(Zmtp.Command, command));
        }
    }
}
#endif
