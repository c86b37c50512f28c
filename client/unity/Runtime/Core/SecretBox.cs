using System;

namespace AnimeGamer
{
    /// <summary>
    /// NaCl's crypto_secretbox: XSalsa20 hides, Poly1305 finds what was changed. With a key of <see cref="SharedKey"/> it is
    /// crypto_box. Works in place and allocates nothing; for one thread at a time. Its time and its memory accesses do not
    /// depend on keys and contents.
    /// </summary>
    sealed class SecretBox : IDisposable
    {
        public const int KeyBytes = 32, NonceBytes = 24, TagBytes = 16;

        readonly XSalsa20 _stream;
        readonly Poly1305 _mac = new Poly1305();
        readonly byte[] _macKey = new byte[KeyBytes], _tag = new byte[TagBytes];

        public SecretBox(byte[] key) { _stream = new XSalsa20(key); }

        /// <summary>The key between one's own secret key and another's public key: crypto_box's.</summary>
        public static byte[] SharedKey(byte[] secret, byte[] other)
        {
            byte[] shared = X25519.Multiply(secret, other);
            var stream = new XSalsa20(shared);
            byte[] key = stream.Derive();
            stream.Wipe();
            Array.Clear(shared, 0, shared.Length);
            return key;
        }

        /// <summary>Hide `count` bytes, and write their tag before them.</summary>
        public void Seal(byte[] nonce, byte[] bytes, int at, int count)
        {
            Start(nonce);
            _stream.Apply(bytes, at, count);
            _mac.Add(bytes, at, count);
            _mac.Finish(bytes, at - TagBytes);
        }

        /// <summary>Open `count` bytes that follow their tag, and `restCount` more in another array. False: they were
        /// changed, or sealed with another key; then they are left as they are.</summary>
        public bool Open(byte[] nonce, byte[] bytes, int at, int count, byte[] rest = null, int restCount = 0)
        {
            Start(nonce);
            _mac.Add(bytes, at, count);
            _mac.Add(rest, 0, restCount);
            _mac.Finish(_tag, 0);
            int different = 0;
            for (int i = 0; i < TagBytes; i++) different |= _tag[i] ^ bytes[at - TagBytes + i];
            if (different != 0) return false;
            _stream.Apply(bytes, at, count);
            _stream.Apply(rest, 0, restCount);
            return true;
        }

        /// <summary>Wipe the keys.</summary>
        public void Dispose()
        {
            _stream.Wipe();
            _mac.Wipe();
            Array.Clear(_macKey, 0, _macKey.Length);
        }

        // The stream's first 32 bytes are the tag's key; what is hidden takes the bytes after them.
        void Start(byte[] nonce)
        {
            _stream.Start(nonce);
            Array.Clear(_macKey, 0, _macKey.Length);
            _stream.Apply(_macKey, 0, _macKey.Length);
            _mac.Start(_macKey);
        }
    }

    /// <summary>The stream XSalsa20 ("Extending the Salsa20 nonce", D. J. Bernstein). Its words are little-endian, as those
    /// of every machine that Unity runs on.</summary>
    sealed class XSalsa20
    {
        const int BlockWords = 16, BlockBytes = 64, ChunkBytes = 64 * BlockBytes;
        static readonly uint[] Constants = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 };  // "expand 32-byte k"

        readonly uint[] _key = new uint[8], _nonceKey = new uint[8], _nonce = new uint[6];
        readonly uint[] _state = new uint[BlockWords], _mixed = new uint[BlockWords], _chunk = new uint[ChunkBytes / 4];
        long _position;

        /// <summary>key: 32 bytes.</summary>
        public XSalsa20(byte[] key) { Buffer.BlockCopy(key, 0, _key, 0, SecretBox.KeyBytes); }

        /// <summary>HSalsa20 of the key and 16 zeros: the key of 32 bytes that crypto_box derives from what is shared.</summary>
        public byte[] Derive()
        {
            var derived = new byte[SecretBox.KeyBytes];
            Start(new byte[SecretBox.NonceBytes]);
            Buffer.BlockCopy(_nonceKey, 0, derived, 0, derived.Length);
            return derived;
        }

        /// <summary>Begin the stream of a nonce of 24 bytes: that of Salsa20, by HSalsa20 of its first 16.</summary>
        public void Start(byte[] nonce)
        {
            Buffer.BlockCopy(nonce, 0, _nonce, 0, SecretBox.NonceBytes);
            SetState(_key, _nonce[0], _nonce[1], _nonce[2], _nonce[3]);
            Mix();
            for (int i = 0; i < 4; i++)
            {
                _nonceKey[i] = _mixed[5 * i];
                _nonceKey[4 + i] = _mixed[6 + i];
            }
            SetState(_nonceKey, _nonce[4], _nonce[5], 0, 0);
            _position = 0;
        }

        /// <summary>XOR the next `count` bytes of the stream into these.</summary>
        public void Apply(byte[] bytes, int at, int count)
        {
            while (count > 0)
            {
                int used = (int)(_position % BlockBytes), part = Math.Min(count, ChunkBytes - used);
                Buffer.BlockCopy(bytes, at, _chunk, used, part);
                long block = _position / BlockBytes;
                for (int word = 0; 4 * word < used + part; word += BlockWords) ApplyBlock(block++, word);
                Buffer.BlockCopy(_chunk, used, bytes, at, part);
                _position += part;
                at += part;
                count -= part;
            }
        }

        public void Wipe()
        {
            foreach (uint[] each in new[] { _key, _nonceKey, _state, _mixed, _chunk }) Array.Clear(each, 0, each.Length);
        }

        void ApplyBlock(long block, int at)
        {
            _state[8] = (uint)block;
            _state[9] = (uint)(block >> 32);
            Mix();
            for (int i = 0; i < BlockWords; i++) _chunk[at + i] ^= _mixed[i] + _state[i];
        }

        void SetState(uint[] key, uint n0, uint n1, uint n2, uint n3)
        {
            for (int i = 0; i < 4; i++)
            {
                _state[5 * i] = Constants[i];
                _state[1 + i] = key[i];
                _state[11 + i] = key[4 + i];
            }
            _state[6] = n0;
            _state[7] = n1;
            _state[8] = n2;
            _state[9] = n3;
        }

        // The 20 rounds of Salsa20, columns and rows by turns.
        void Mix()
        {
            uint[] from = _state;
            uint x0 = from[0], x1 = from[1], x2 = from[2], x3 = from[3], x4 = from[4], x5 = from[5], x6 = from[6], x7 = from[7];
            uint x8 = from[8], x9 = from[9], x10 = from[10], x11 = from[11], x12 = from[12], x13 = from[13], x14 = from[14], x15 = from[15];
            for (int round = 0; round < 20; round += 2)
            {
                uint t;
                t = x0 + x12; x4 ^= t << 7 | t >> 25; t = x4 + x0; x8 ^= t << 9 | t >> 23;
                t = x8 + x4; x12 ^= t << 13 | t >> 19; t = x12 + x8; x0 ^= t << 18 | t >> 14;
                t = x5 + x1; x9 ^= t << 7 | t >> 25; t = x9 + x5; x13 ^= t << 9 | t >> 23;
                t = x13 + x9; x1 ^= t << 13 | t >> 19; t = x1 + x13; x5 ^= t << 18 | t >> 14;
                t = x10 + x6; x14 ^= t << 7 | t >> 25; t = x14 + x10; x2 ^= t << 9 | t >> 23;
                t = x2 + x14; x6 ^= t << 13 | t >> 19; t = x6 + x2; x10 ^= t << 18 | t >> 14;
                t = x15 + x11; x3 ^= t << 7 | t >> 25; t = x3 + x15; x7 ^= t << 9 | t >> 23;
                t = x7 + x3; x11 ^= t << 13 | t >> 19; t = x11 + x7; x15 ^= t << 18 | t >> 14;
                t = x0 + x3; x1 ^= t << 7 | t >> 25; t = x1 + x0; x2 ^= t << 9 | t >> 23;
                t = x2 + x1; x3 ^= t << 13 | t >> 19; t = x3 + x2; x0 ^= t << 18 | t >> 14;
                t = x5 + x4; x6 ^= t << 7 | t >> 25; t = x6 + x5; x7 ^= t << 9 | t >> 23;
                t = x7 + x6; x4 ^= t << 13 | t >> 19; t = x4 + x7; x5 ^= t << 18 | t >> 14;
                t = x10 + x9; x11 ^= t << 7 | t >> 25; t = x11 + x10; x8 ^= t << 9 | t >> 23;
                t = x8 + x11; x9 ^= t << 13 | t >> 19; t = x9 + x8; x10 ^= t << 18 | t >> 14;
                t = x15 + x14; x12 ^= t << 7 | t >> 25; t = x12 + x15; x13 ^= t << 9 | t >> 23;
                t = x13 + x12; x14 ^= t << 13 | t >> 19; t = x14 + x13; x15 ^= t << 18 | t >> 14;
            }
            _mixed[0] = x0; _mixed[1] = x1; _mixed[2] = x2; _mixed[3] = x3;
            _mixed[4] = x4; _mixed[5] = x5; _mixed[6] = x6; _mixed[7] = x7;
            _mixed[8] = x8; _mixed[9] = x9; _mixed[10] = x10; _mixed[11] = x11;
            _mixed[12] = x12; _mixed[13] = x13; _mixed[14] = x14; _mixed[15] = x15;
        }
    }

    /// <summary>The one-time authenticator Poly1305 (RFC 8439, section 2.5). Its words are little-endian, too.</summary>
    sealed class Poly1305
    {
        const int BlockBytes = 16, ChunkBytes = 4096;
        const uint Limb = 0x3ffffff;

        // Numbers modulo 2^130 - 5 in five limbs of 26 bits: the sum, and the factor r.
        readonly uint[] _h = new uint[5], _r = new uint[5], _key = new uint[8], _chunk = new uint[ChunkBytes / 4];
        int _held;

        /// <summary>Begin, with the key of 32 bytes of one message.</summary>
        public void Start(byte[] key)
        {
            Buffer.BlockCopy(key, 0, _key, 0, SecretBox.KeyBytes);
            uint k0 = _key[0] & 0x0fffffff, k1 = _key[1] & 0x0ffffffc, k2 = _key[2] & 0x0ffffffc, k3 = _key[3] & 0x0ffffffc;
            _r[0] = k0 & Limb;
            _r[1] = (k0 >> 26 | k1 << 6) & Limb;
            _r[2] = (k1 >> 20 | k2 << 12) & Limb;
            _r[3] = (k2 >> 14 | k3 << 18) & Limb;
            _r[4] = k3 >> 8;
            Array.Clear(_h, 0, _h.Length);
            _held = 0;
        }

        /// <summary>Go on with these bytes.</summary>
        public void Add(byte[] bytes, int at, int count)
        {
            while (count > 0)
            {
                int part = Math.Min(count, ChunkBytes - _held);
                Buffer.BlockCopy(bytes, at, _chunk, _held, part);
                at += part;
                count -= part;
                int blocks = (_held + part) / BlockBytes;
                AddBlocks(blocks, 1u << 24);
                _held = (_held + part) % BlockBytes;
                Buffer.BlockCopy(_chunk, blocks * BlockBytes, _chunk, 0, _held);
            }
        }

        /// <summary>End, and write the tag of 16 bytes.</summary>
        public void Finish(byte[] tag, int at)
        {
            if (_held > 0)
            {
                Buffer.SetByte(_chunk, _held, 1);
                for (int i = _held + 1; i < BlockBytes; i++) Buffer.SetByte(_chunk, i, 0);
                AddBlocks(1, 0);
            }
            Carry();
            Carry();
            // The sum is below 2^130 now. Where 5 more reach that, it is p or above, and p is taken off.
            uint over = 5;
            for (int i = 0; i < 5; i++) over = _h[i] + over >> 26;
            uint carry = 5 * over;
            for (int i = 0; i < 5; i++)
            {
                carry += _h[i];
                _h[i] = carry & Limb;
                carry >>= 26;
            }
            ulong sum = 0;
            for (int i = 0; i < 4; i++)
            {
                sum = (sum >> 32) + (_h[i] >> 6 * i | _h[i + 1] << 26 - 6 * i) + _key[4 + i];
                _chunk[i] = (uint)sum;
            }
            Buffer.BlockCopy(_chunk, 0, tag, at, SecretBox.TagBytes);
        }

        public void Wipe()
        {
            foreach (uint[] each in new[] { _h, _r, _key, _chunk }) Array.Clear(each, 0, each.Length);
        }

        void Carry()
        {
            for (int i = 0; i < 5; i++)
            {
                uint carry = _h[i] >> 26;
                _h[i] &= Limb;
                _h[(i + 1) % 5] += i == 4 ? 5 * carry : carry;  // 2^130 is 5
            }
        }

        // Add blocks from the chunk, each a number of 16 bytes with a 1 after its last byte, and multiply with r each time.
        // top: that 1, in the fifth limb; 0 where it stands in the block.
        void AddBlocks(int blocks, uint top)
        {
            uint h0 = _h[0], h1 = _h[1], h2 = _h[2], h3 = _h[3], h4 = _h[4];
            uint r0 = _r[0], r1 = _r[1], r2 = _r[2], r3 = _r[3], r4 = _r[4];
            uint s1 = 5 * r1, s2 = 5 * r2, s3 = 5 * r3, s4 = 5 * r4;
            uint[] chunk = _chunk;
            for (int at = 0; at < 4 * blocks; at += 4)
            {
                uint w0 = chunk[at], w1 = chunk[at + 1], w2 = chunk[at + 2], w3 = chunk[at + 3];
                h0 += w0 & Limb;
                h1 += (w0 >> 26 | w1 << 6) & Limb;
                h2 += (w1 >> 20 | w2 << 12) & Limb;
                h3 += (w2 >> 14 | w3 << 18) & Limb;
                h4 += w3 >> 8 | top;
                ulong d0 = (ulong)h0 * r0 + (ulong)h1 * s4 + (ulong)h2 * s3 + (ulong)h3 * s2 + (ulong)h4 * s1;
                ulong d1 = (ulong)h0 * r1 + (ulong)h1 * r0 + (ulong)h2 * s4 + (ulong)h3 * s3 + (ulong)h4 * s2;
                ulong d2 = (ulong)h0 * r2 + (ulong)h1 * r1 + (ulong)h2 * r0 + (ulong)h3 * s4 + (ulong)h4 * s3;
                ulong d3 = (ulong)h0 * r3 + (ulong)h1 * r2 + (ulong)h2 * r1 + (ulong)h3 * r0 + (ulong)h4 * s4;
                ulong d4 = (ulong)h0 * r4 + (ulong)h1 * r3 + (ulong)h2 * r2 + (ulong)h3 * r1 + (ulong)h4 * r0;
                d1 += d0 >> 26;
                d2 += d1 >> 26;
                d3 += d2 >> 26;
                d4 += d3 >> 26;
                h0 = (uint)d0 & Limb;
                h1 = (uint)d1 & Limb;
                h2 = (uint)d2 & Limb;
                h3 = (uint)d3 & Limb;
                h4 = (uint)d4 & Limb;
                h0 += 5 * (uint)(d4 >> 26);
                h1 += h0 >> 26;
                h0 &= Limb;
            }
            _h[0] = h0;
            _h[1] = h1;
            _h[2] = h2;
            _h[3] = h3;
            _h[4] = h4;
        }
    }
}
