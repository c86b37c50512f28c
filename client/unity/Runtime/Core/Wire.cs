#if !UNITY_WEBGL || UNITY_EDITOR
using System;
using System.Collections.Generic;
using System.Net;
using System.Net.Sockets;
using System.Text;

namespace AnimeGamer
{
    /// <summary>One TCP connection that speaks ZMTP 3.1 as a DEALER.</summary>
    sealed class Wire : IWire
    {
        const int InboxBytes = 64 * 1024;

        readonly Socket _socket;
        readonly FramePool _pool;
        readonly Queue<byte[]> _outgoing = new Queue<byte[]>();
        int _outgoingAt;

        readonly byte[] _inbox = new byte[InboxBytes];
        int _inboxStart, _inboxEnd;
        byte[] _headerBytes = new byte[1024];
        readonly byte[] _small = new byte[256];
        byte[] _body;
        int _bodyAt, _bodyLength, _index;
        bool _inBody, _command, _more, _greeted;
        int _headerLength;

        // Whether TCP is connected, and whether the handshake is done so that requests may be sent.
        bool _connected, _open;

        public bool CanSend { get { return _open; } }
        public Header Header { get; private set; }
        public Frame Buffer { get; set; }

        /// <summary>What connects to a host, whose name it looks up each time, as it may have moved; to its addresses in turn.</summary>
        public static Func<int, IWire> Opener(DnsEndPoint at, FramePool pool)
        {
            return tries =>
            {
                try
                {
                    IPAddress[] known = IPAddress.TryParse(at.Host, out IPAddress number)
                        ? new[] { number } : Dns.GetHostAddresses(at.Host);
                    if (known.Length > 0) return new Wire(new IPEndPoint(known[tries % known.Length], at.Port), pool);
                }
                catch (SocketException)
                {
                    // As if there were none.
                }
                throw new LostException("no address is known of the host " + at.Host, "check the name, or give its IP address");
            };
        }

        Wire(IPEndPoint at, FramePool pool)
        {
            _pool = pool;
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
            lock (gate)
            {
                _outgoing.Enqueue(Zmtp.Greeting());
                SendBytes(Zmtp.Frame(Zmtp.Command, Zmtp.Ready));  // without waiting for the server's
            }
            return false;
        }

        LostException Lost()
        {
            if (!_connected) return new LostException("nothing listens there");
            if (_open) return new LostException("the connection was lost");
            return new LostException("a program there ends the connection before the ZeroMQ handshake; it may ask for keys, "
                + "which this client does not have", "use the address that animegamer-rt serve printed; " + Zmtp.WithoutKeys);
        }

        public void Send(byte[] header, byte[] buffer)
        {
            var writer = new MsgWriter();
            Zmtp.FrameStart(writer, Codec.Magic.Length, Zmtp.More);
            writer.Raw(Codec.Magic, Codec.Magic.Length);
            Zmtp.FrameStart(writer, header.Length, buffer == null ? 0 : Zmtp.More);
            writer.Raw(header, header.Length);
            if (buffer != null) Zmtp.FrameStart(writer, buffer.Length, 0);
            SendBytes(writer.ToArray());
            if (buffer != null) SendBytes(buffer);
        }

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
                    if (_command) OnCommand(gate);
                    else if (OnFrame()) return true;
                }
                else if (!_greeted ? !ReadGreeting() : !ReadFrameStart())
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

        bool ReadGreeting()
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
            if (mechanism != "NULL")
                throw new AnimeGamerException("not_allowed", "the server asks for keys (" + mechanism + "), which this client does not have",
                    Zmtp.WithoutKeys);
            _inboxStart += Zmtp.GreetingBytes;
            _greeted = true;
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
            _command = (flags & Zmtp.Command) != 0;
            _more = (flags & Zmtp.More) != 0;
            if (!_open && !_command) throw Zmtp.NotZmtp("a message came before READY");
            if (_command) ChooseCommandBody(length);
            else ChooseBody(length);
            _bodyLength = (int)length;
            _bodyAt = 0;
            _inBody = true;
            return true;
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
                lock (gate) SendBytes(Zmtp.Frame(Zmtp.Command, pong));
            }
            else if (text == "ERROR")
                throw new AnimeGamerException("not_allowed", "the server ended the ZeroMQ handshake: "
                    + Encoding.ASCII.GetString(_small, 7, Math.Max(0, _bodyLength - 7)), "check the server's log");
            else if (text == "READY") lock (gate) _open = true;
        }
    }
}
#endif
