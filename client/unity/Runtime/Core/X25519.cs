using System;

namespace AnimeGamer
{
    /// <summary>
    /// The function X25519 of RFC 7748: a secret and a public key, 32 bytes each, to what both sides share. Its time and
    /// its memory accesses do not depend on the keys. Works for a handshake; it allocates.
    /// </summary>
    sealed class X25519
    {
        // A number modulo 2^255 - 19 in ten limbs of 26 and 25 bits by turns, each of either sign.
        const int Limbs = 10;
        static readonly long[] A24 = { 121665, 0, 0, 0, 0, 0, 0, 0, 0, 0 };

        readonly long[] _x1 = new long[Limbs], _x2 = new long[Limbs], _z2 = new long[Limbs];
        readonly long[] _x3 = new long[Limbs], _z3 = new long[Limbs];
        readonly long[] _a = new long[Limbs], _b = new long[Limbs], _c = new long[Limbs], _d = new long[Limbs];
        readonly long[] _product = new long[2 * Limbs];

        X25519() { }

        /// <summary>The public key of a secret one.</summary>
        public static byte[] PublicKey(byte[] secret)
        {
            var nine = new byte[32];
            nine[0] = 9;
            return Multiply(secret, nine);
        }

        /// <summary>What the owner of this secret key shares with the owner of that public key.</summary>
        public static byte[] Multiply(byte[] secret, byte[] point)
        {
            var work = new X25519();
            byte[] result = work.Climb(secret, point);
            foreach (long[] each in new[]
                { work._x1, work._x2, work._z2, work._x3, work._z3, work._a, work._b, work._c, work._d, work._product })
                Array.Clear(each, 0, each.Length);
            return result;
        }

        // The Montgomery ladder of RFC 7748, section 5. Its AA is _a, BB _b, DA _c, CB _d.
        byte[] Climb(byte[] secret, byte[] point)
        {
            Read(_x1, point);
            Array.Copy(_x1, _x3, Limbs);
            _x2[0] = _z3[0] = 1;
            int swap = 0;
            for (int t = 254; t >= 0; t--)
            {
                // The secret's lowest three bits count as 0, and its bit 254 as 1.
                int bit = t < 3 ? 0 : t == 254 ? 1 : secret[t >> 3] >> (t & 7) & 1;
                Swap(swap ^ bit);
                swap = bit;
                Add(_a, _x2, _z2);
                Subtract(_b, _x2, _z2);
                Add(_c, _x3, _z3);
                Subtract(_d, _x3, _z3);
                Multiply(_d, _d, _a);
                Multiply(_c, _c, _b);
                Add(_x3, _d, _c);
                Multiply(_x3, _x3, _x3);
                Subtract(_z3, _d, _c);
                Multiply(_z3, _z3, _z3);
                Multiply(_z3, _z3, _x1);
                Multiply(_a, _a, _a);
                Multiply(_b, _b, _b);
                Multiply(_x2, _a, _b);
                Subtract(_b, _a, _b);
                Multiply(_z2, _b, A24);
                Add(_z2, _z2, _a);
                Multiply(_z2, _z2, _b);
            }
            Swap(swap);
            Invert(_a, _z2);
            Multiply(_x2, _x2, _a);
            return Write(_x2);
        }

        void Swap(int swap)
        {
            long mask = -swap;
            for (int i = 0; i < Limbs; i++)
            {
                long x = mask & (_x2[i] ^ _x3[i]), z = mask & (_z2[i] ^ _z3[i]);
                _x2[i] ^= x;
                _x3[i] ^= x;
                _z2[i] ^= z;
                _z3[i] ^= z;
            }
        }

        static void Add(long[] sum, long[] f, long[] g)
        {
            for (int i = 0; i < Limbs; i++) sum[i] = f[i] + g[i];
        }

        static void Subtract(long[] difference, long[] f, long[] g)
        {
            for (int i = 0; i < Limbs; i++) difference[i] = f[i] - g[i];
        }

        // Limbs of f and g may be a sum of two products' limbs: below 2^27, so that no sum here leaves 64 bits.
        void Multiply(long[] product, long[] f, long[] g)
        {
            long[] sums = _product;
            Array.Clear(sums, 0, sums.Length);
            for (int i = 0; i < Limbs; i++)
            {
                // Limb i stands at bit 25.5 i, rounded up: of two odd ones, the product lies one bit above its place.
                long even = f[i], odd = even << (i & 1);
                for (int j = 0; j < Limbs; j += 2)
                {
                    sums[i + j] += even * g[j];
                    sums[i + j + 1] += odd * g[j + 1];
                }
            }
            for (int i = 0; i < Limbs; i++) product[i] = sums[i] + 19 * sums[i + Limbs];  // 2^255 is 19
            Carry(product, 1);
            Carry(product, 1);
        }

        // Bring the limbs to their bits. half: 1, to the nearest, of either sign; 0, downwards, to none below 0.
        static void Carry(long[] f, int half)
        {
            for (int i = 0; i < Limbs; i++)
            {
                long carry = f[i] + ((long)half << (Bits(i) - 1)) >> Bits(i);
                f[i] -= carry << Bits(i);
                f[(i + 1) % Limbs] += i == Limbs - 1 ? 19 * carry : carry;
            }
        }

        static int Bits(int limb) { return 26 - (limb & 1); }

        // f to the power of p - 2 = 2^255 - 21, whose bits are all 1 but bits 2 and 4. Bit 254 is done at the start.
        void Invert(long[] inverse, long[] f)
        {
            Array.Copy(f, inverse, Limbs);
            for (int bit = 253; bit >= 0; bit--)
            {
                Multiply(inverse, inverse, inverse);
                if (bit != 2 && bit != 4) Multiply(inverse, inverse, f);
            }
        }

        static void Read(long[] f, byte[] bytes)
        {
            for (int i = 0, at = 0; i < Limbs; at += Bits(i), i++)
            {
                uint four = 0;
                for (int n = 3; n >= 0; n--) four = four << 8 | bytes[(at >> 3) + n];
                f[i] = four >> (at & 7) & (1u << Bits(i)) - 1;
            }
        }

        static byte[] Write(long[] f)
        {
            for (int i = 0; i < 3; i++) Carry(f, 0);  // now from 0 to 2^255 - 1
            long over = 19;
            for (int i = 0; i < Limbs; i++) over = f[i] + over >> Bits(i);
            f[0] += 19 * over;  // over: 1 from p upwards. Then its 2^255 is left out below
            var bytes = new byte[32];
            long carry = 0;
            for (int i = 0, at = 0; i < Limbs; at += Bits(i), i++)
            {
                long limb = f[i] + carry;
                carry = limb >> Bits(i);
                limb = (limb & (1L << Bits(i)) - 1) << (at & 7);
                for (int n = 0; n < 4; n++) bytes[(at >> 3) + n] |= (byte)(limb >> 8 * n);
            }
            return bytes;
        }
    }
}
