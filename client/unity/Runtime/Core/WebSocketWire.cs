using System;

namespace AnimeGamer
{
    /// <summary>A WebSocket to the gateway of `animegamer-rt serve --web`, in the form animegamer.v1.msgpack (PROTOCOL.md).</summary>
    abstract class WebSocketWire : IWire
    {
        protected const string Subprotocol = "animegamer.v1.msgpack";
        const int LengthBytes = 4;

        readonly FramePool _pool;
        readonly byte[] _length = new byte[LengthBytes];
        byte[] _headerBytes = new byte[1024];

        protected WebSocketWire(FramePool pool) { _pool = pool; }

        public abstract bool CanSend { get; }
        public Header Header { get; private set; }
        public Frame Buffer { get; set; }

        public static bool IsAddress(string address)
        {
            return address.StartsWith("ws://", StringComparison.Ordinal) || address.StartsWith("wss://", StringComparison.Ordinal);
        }

        /// <summary>What connects to this address.</summary>
        public static Func<int, IWire> Opener(string address, string password, FramePool pool)
        {
            if (!Uri.TryCreate(address, UriKind.Absolute, out Uri at))
                throw new AnimeGamerException("bad_argument", "\"" + address + "\" is not the address of a gateway",
                    "give ws://HOST:PORT/ws of animegamer-rt serve --web PORT, or wss:// of its proxy");
#if UNITY_WEBGL && !UNITY_EDITOR
            if (password != "")
                throw new AnimeGamerException("bad_argument", "a browser sends no Password", "log in on the gateway's page, and leave it empty");
            return _ => new BrowserWire(address, pool);
#else
            var given = new Password { Text = password };
            return _ => new ClientWire(at, given, pool);
#endif
        }

        public void Send(byte[] header, byte[] buffer)
        {
            var writer = new MsgWriter();
            for (int shift = 24; shift >= 0; shift -= 8) writer.Byte((header.Length >> shift) & 0xff);
            writer.Raw(header, header.Length);
            if (buffer != null) writer.Raw(buffer, buffer.Length);
            SendMessage(writer.ToArray());
        }

        public void Flush() { }

        public abstract bool WaitToRead(object gate, int milliseconds);

        public bool TryReceive(object gate)
        {
            int length = Waiting();
            if (length < 0) return false;
            Copy(0, _length, Math.Min(length, LengthBytes));
            ulong header = MsgView.BigEndian(_length, 0, LengthBytes);
            if (length < LengthBytes || header > (ulong)(length - LengthBytes))
                throw new AnimeGamerException("protocol", "received a WebSocket message of " + length + " bytes, without its header",
                    "use the address of animegamer-rt serve --web, with /ws at its end");
            Codec.CheckSize(1, header, Limits.FromServer);
            var count = (int)header;
            if (count > _headerBytes.Length) _headerBytes = new byte[count];
            Copy(LengthBytes, _headerBytes, count);
            int rest = length - LengthBytes - count;
            Codec.CheckSize(2, (ulong)rest, Limits.FromServer);
            if (rest > 0)
            {
                Buffer = _pool.Take(rest);
                Copy(LengthBytes + count, Buffer.Data, rest);
            }
            Drop();
            Header = Codec.ReadHeader(_headerBytes, count);
            return true;
        }

        public virtual void Dispose()
        {
            Buffer?.Release();
            Buffer = null;
        }

        /// <summary>Why there is no connection. opened: there was one; code: the WebSocket's.</summary>
        protected static LostException Lost(bool opened, int code)
        {
            if (!opened)
                return new LostException("no WebSocket opens there",
                    "give ws://HOST:PORT/ws of animegamer-rt serve --web PORT, and its password if it has one; a page of another site must be in the server's `origins`, "
                    + "and one of https needs wss://");
            return new LostException(code == 1013 ? "the gateway needed the place for somebody else" : "the connection was lost");
        }

        /// <summary>Send a message; only if CanSend.</summary>
        protected abstract void SendMessage(byte[] message);

        /// <summary>Bytes of the oldest message that has come and was not dropped; -1: none.</summary>
        protected abstract int Waiting();

        /// <summary>Copy `count` of its bytes, from the one at `from`.</summary>
        protected abstract void Copy(int from, byte[] into, int count);

        protected abstract void Drop();
    }
}
