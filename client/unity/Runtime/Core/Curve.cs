#if !UNITY_WEBGL || UNITY_EDITOR
using System;

namespace AnimeGamer
{
    /// <summary>
    /// CurveZMQ (RFC 26), the client's side of one connection: commands of the handshake, and messages sealed and opened.
    /// The cryptography is libsodium's. Knows no frames and no sockets. One thread may seal while another one opens.
    /// Throws `not_allowed` in the handshake, and `protocol` after it, for what is not from the server of the keys.
    /// </summary>
    sealed class Curve : IDisposable
    {
        /// <summary>Bytes of a sealed message before its data: MESSAGE, a short nonce, a tag, flags.</summary>
        public const int Overhead = 33;

        /// <summary>Flags of a message: another frame follows; it is a command.</summary>
        public const int More = 1, Command = 2;

        const int ShortNonceBytes = 8, LongNonceBytes = 16, CookieBytes = 96, Key = Sodium.KeyBytes, Tag = Sodium.TagBytes;

        readonly CurveKeys _keys;
        readonly byte[] _public, _secret = new byte[Key];  // of this connection alone
        readonly byte[] _sealNonce = Nonce("CurveZMQMESSAGEC"), _openNonce = Nonce("CurveZMQMESSAGES");
        readonly byte[] _shared = new byte[Key];  // with the server's long-term key, after WELCOME with its key of this connection
        ulong _sent, _received;

        public Curve(CurveKeys keys)
        {
            _keys = keys;
            _public = Sodium.NewPair(_secret);
            if (!Sodium.Share(_secret, keys.Server, _shared)) throw NotTheServer();
        }

        /// <summary>The first command, of 200 bytes.</summary>
        public byte[] Hello()
        {
            var hello = new byte[200];  // with 72 zeros: longer than the answer, so that a server cannot be used to flood others
            Write(hello, 0, "\x05HELLO\x01");
            Copy(_public, hello, 80);
            byte[] nonce = Nonce("CurveZMQHELLO---");
            NextNonce(hello, 112, nonce);
            Sodium.Seal(_shared, nonce, hello, 120 + Tag, 64);
            return hello;
        }

        /// <summary>INITIATE, the answer to WELCOME. metadata: the socket's properties.</summary>
        public byte[] Initiate(byte[] welcome, int length, byte[] metadata)
        {
            const int boxAt = 8 + LongNonceBytes + Tag;
            if (length != boxAt + Key + CookieBytes || !Begins(welcome, "\x07WELCOME")) throw NotTheServer();
            byte[] nonce = Nonce("WELCOME-");
            Buffer.BlockCopy(welcome, 8, nonce, 8, LongNonceBytes);
            if (!Sodium.Open(_shared, nonce, welcome, boxAt, Key + CookieBytes)) throw NotTheServer();
            var server = new byte[Key];
            Buffer.BlockCopy(welcome, boxAt, server, 0, Key);
            byte[] vouchKey = new byte[Key];
            if (!Sodium.Share(_secret, server, _shared) || !Sodium.Share(_keys.Secret, server, vouchKey)) throw NotTheServer();

            const int innerAt = 9 + CookieBytes + ShortNonceBytes + Tag, vouchAt = innerAt + Key + LongNonceBytes + Tag;
            var initiate = new byte[vouchAt + 2 * Key + metadata.Length];
            Write(initiate, 0, "\x08INITIATE");
            Buffer.BlockCopy(welcome, boxAt + Key, initiate, 9, CookieBytes);
            Copy(_keys.Public, initiate, innerAt);
            byte[] vouchNonce = Nonce("VOUCH---"), random = Sodium.Random(LongNonceBytes);
            Copy(random, vouchNonce, 8);
            Copy(random, initiate, innerAt + Key);
            Copy(_public, initiate, vouchAt);
            Copy(_keys.Server, initiate, vouchAt + Key);
            Sodium.Seal(vouchKey, vouchNonce, initiate, vouchAt, 2 * Key);
            Array.Clear(vouchKey, 0, Key);
            Copy(metadata, initiate, vouchAt + 2 * Key);
            nonce = Nonce("CurveZMQINITIATE");
            NextNonce(initiate, 9 + CookieBytes, nonce);
            Sodium.Seal(_shared, nonce, initiate, innerAt, initiate.Length - innerAt);
            return initiate;
        }

        /// <summary>Check READY, the answer to INITIATE.</summary>
        public void CheckReady(byte[] ready, int length)
        {
            const int boxAt = 6 + ShortNonceBytes + Tag;
            byte[] nonce = Nonce("CurveZMQREADY---");
            if (length < boxAt || !Begins(ready, "\x05READY") || !TakeNonce(ready, 6, nonce)
                || !Sodium.Open(_shared, nonce, ready, boxAt, length - boxAt)) throw NotTheServer();
        }

        /// <summary>A sealed message: Overhead bytes, and as many as the data has.</summary>
        public byte[] Seal(int flags, byte[] data)
        {
            var message = new byte[Overhead + data.Length];
            Write(message, 0, "\x07MESSAGE");
            NextNonce(message, 8, _sealNonce);
            message[32] = (byte)flags;
            Copy(data, message, Overhead);
            Sodium.Seal(_shared, _sealNonce, message, 32, 1 + data.Length);
            return message;
        }

        /// <summary>Open a message of at least Overhead bytes in place: its data follow them. Returns its flags.</summary>
        public int Open(byte[] message, int length)
        {
            if (!Begins(message, "\x07MESSAGE") || !TakeNonce(message, 8, _openNonce)
                || !Sodium.Open(_shared, _openNonce, message, 32, length - 32)) throw NotSealed();
            return message[32];
        }

        public static AnimeGamerException NotSealed()
        {
            return new AnimeGamerException("protocol", "what arrived was not sealed with the server's key, was changed or came twice",
                "try again; if it goes on, something between this machine and the server changes bytes");
        }

        /// <summary>Wipe the keys of this connection.</summary>
        public void Dispose()
        {
            Array.Clear(_secret, 0, Key);
            Array.Clear(_shared, 0, Key);
        }

        static AnimeGamerException NotTheServer()
        {
            return new AnimeGamerException("not_allowed", "the server there does not have the key of ServerKey",
                "give the public key of this server, from its owner (server.key)");
        }

        static byte[] Nonce(string prefix)
        {
            var nonce = new byte[Sodium.NonceBytes];
            Write(nonce, 0, prefix);
            return nonce;
        }

        // Write the next number, big-endian, into a command or message, and as the nonce's last 8 bytes.
        void NextNonce(byte[] message, int at, byte[] nonce)
        {
            _sent++;
            for (int i = 0; i < ShortNonceBytes; i++) message[at + i] = nonce[16 + i] = (byte)(_sent >> 56 - 8 * i);
        }

        // Take the server's number; whether it is above the one before, as each must be.
        bool TakeNonce(byte[] message, int at, byte[] nonce)
        {
            Buffer.BlockCopy(message, at, nonce, 16, ShortNonceBytes);
            ulong before = _received;
            _received = MsgView.BigEndian(message, at, ShortNonceBytes);
            return _received > before;
        }

        static bool Begins(byte[] bytes, string name)
        {
            for (int i = 0; i < name.Length; i++)
                if (bytes[i] != name[i]) return false;
            return true;
        }

        static void Write(byte[] bytes, int at, string text)
        {
            for (int i = 0; i < text.Length; i++) bytes[at + i] = (byte)text[i];
        }

        static void Copy(byte[] from, byte[] to, int at) { Buffer.BlockCopy(from, 0, to, at, from.Length); }
    }
}
#endif
