using System;
using System.Collections.Generic;
using System.Net;
using System.Net.Sockets;
using System.Text;

namespace AnimeGamer
{
    /// <summary>
    /// One TCP connection that speaks ZMTP 3.1 as a DEALER with NULL security. Nothing here waits, except
    /// <see cref="WaitToRead"/>. Receiving belongs to one thread; <see cref="Send"/> is called under the client's lock.
    /// </summary>
    sealed class Wire : IDisposable
    {
        const int InboxBytes = 64 * 1024;
        static readonly byte[] Opening = MakeOpening();

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

        /// <summary>Whether TCP is connected, and whether the handshake is done so that requests may be sent.</summary>
        public bool Connected { get; private set; }
        public bool Open { get; private set; }

        /// <summary>After TryReceive: the message's header, and its buffer or null. The caller releases the buffer.</summary>
        public Header Header;
        public Frame Buffer;

        public Wire(IPEndPoint at, FramePool pool)
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
        public void SendOpening() { SendBytes(Opening); }

        /// <summary>Send a request, or keep it until the socket takes it. buffer: null, none.</summary>
        public void Send(byte[] header, byte[] buffer)
        {
            var writer = new MsgWriter();
            writer.Byte(0x01);
            writer.Byte(Codec.Magic.Length);
            writer.Raw(Codec.Magic, Codec.Magic.Length);
            FrameStart(writer, header.Length, buffer == null ? 0 : 1);
            writer.Raw(header, header.Length);
            if (buffer != null) FrameStart(writer, buffer.Length, 0);
            SendBytes(writer.ToArray());
            if (buffer != null) SendBytes(buffer);
        }

        static void FrameStart(MsgWriter writer, int length, int more)
        {
            if (length <= 255) writer.Tagged(more, (ulong)length, 1);
            else writer.Tagged(0x02 | more, (ulong)length, 8);
        }

        /// <summary>Whether something waits to be sent.</summary>
        public bool HasOutgoing { get { return _outgoing.Count > 0; } }

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
            if (error != SocketError.Success) throw new SocketException((int)error);
            if (count == 0) throw new SocketException((int)SocketError.ConnectionReset);
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
            if (there < 64) return false;
            string mechanism = Encoding.ASCII.GetString(_inbox, _inboxStart + 12, 20).TrimEnd('\0');
            if (_inbox[_inboxStart + 10] < 3)
                throw new AnimeGamerException("protocol", "a program there speaks an old version of ZeroMQ, not ZMTP 3",
                    "use the address that animegamer-rt serve printed");
            if (mechanism != "NULL")
                throw new AnimeGamerException("not_allowed", "the server speaks " + mechanism + " only; this client has no keys",
                    "run the game on the server's machine, with a server that was started without --keys");
            _inboxStart += 64;
            _greeted = true;
            return true;
        }

        bool ReadFrameStart()
        {
            int there = _inboxEnd - _inboxStart;
            if (there < 2) return false;
            byte flags = _inbox[_inboxStart];
            if (flags > 0x06 || flags == 0x05) throw NotZmtp("a frame has flags " + flags);
            bool isLong = (flags & 2) != 0;
            if (isLong && there < 9) return false;
            ulong length = isLong ? MsgView.BigEndian(_inbox, _inboxStart + 1, 8) : _inbox[_inboxStart + 1];
            _inboxStart += isLong ? 9 : 2;
            _command = (flags & 4) != 0;
            _more = (flags & 1) != 0;
            if (!Open && !_command) throw NotZmtp("a message came before READY");
            if (_command)
            {
                if (length > (ulong)_small.Length) throw NotZmtp("a command has " + length + " bytes");
                _body = _small;
            }
            else if (_index == 0)
            {
                if (length > (ulong)_small.Length) Codec.CheckMagic(_small, 0);
                _body = _small;
            }
            else
            {
                Codec.CheckSize(_index, length, Limits.FromServer);
                if (_index == 1)
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
            _bodyLength = (int)length;
            _bodyAt = 0;
            _inBody = true;
            return true;
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
            if (text == "READY") Open = true;
            else if (text == "PING" && _bodyLength >= 7)
            {
                int context = _bodyLength - 7;
                var pong = new byte[2 + 5 + context];
                pong[0] = 0x04;
                pong[1] = (byte)(5 + context);
                pong[2] = 4;
                Encoding.ASCII.GetBytes("PONG", 0, 4, pong, 3);
                System.Buffer.BlockCopy(_small, 7, pong, 7, context);
                lock (gate) SendBytes(pong);
            }
            else if (text == "ERROR")
                throw new AnimeGamerException("not_allowed", "the server ended the ZeroMQ handshake: "
                    + Encoding.ASCII.GetString(_small, 7, Math.Max(0, _bodyLength - 7)), "check the server's log");
        }

        static AnimeGamerException NotZmtp(string what)
        {
            return new AnimeGamerException("protocol", "what answers there does not speak ZMTP 3: " + what,
                "use the address that animegamer-rt serve printed");
        }

        static byte[] MakeOpening()
        {
            var bytes = new byte[107];
            bytes[0] = 0xff;
            bytes[8] = 0x01;
            bytes[9] = 0x7f;
            bytes[10] = 3;
            bytes[11] = 1;
            Encoding.ASCII.GetBytes("NULL", 0, 4, bytes, 12);
            bytes[64] = 0x04;
            bytes[65] = 0x29;
            byte[] ready = Encoding.ASCII.GetBytes("\x05READY\x0bSocket-Type\0\0\0\x06" + "DEALER\x08Identity\0\0\0\0");
            System.Buffer.BlockCopy(ready, 0, bytes, 66, ready.Length);
            return bytes;
        }
    }
}
