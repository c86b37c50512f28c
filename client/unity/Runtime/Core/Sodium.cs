#if !UNITY_WEBGL || UNITY_EDITOR
using System;
using System.Runtime.InteropServices;

namespace AnimeGamer
{
    /// <summary>What keys need of libsodium: crypto_box, whose data are sealed and opened in place.</summary>
    static class Sodium
    {
        public const int KeyBytes = 32, NonceBytes = 24, TagBytes = 16;

        const string Library = "libsodium";

        /// <summary>Throws `no_keys` if the library cannot be loaded.</summary>
        public static void Load()
        {
            string why;
            try
            {
                if (sodium_init() >= 0) return;
                why = "the system has no source of random numbers";
            }
            catch (Exception error) when (error is TypeLoadException || error is BadImageFormatException)
            {
                why = error.Message;
            }
            throw new AnimeGamerException("no_keys", "keys need libsodium, which could not be loaded: " + why,
                "put the library of the NuGet package libsodium into Assets/Plugins, or install it (Debian: libsodium-dev); "
                + "or reach the server without keys, by an SSH tunnel or a VPN");
        }

        /// <summary>A new key pair; returns its public key.</summary>
        public static byte[] NewPair(byte[] secret)
        {
            var key = new byte[KeyBytes];
            crypto_box_keypair(key, secret);
            return key;
        }

        public static byte[] PublicKey(byte[] secret)
        {
            var key = new byte[KeyBytes];
            crypto_scalarmult_base(key, secret);
            return key;
        }

        /// <summary>Compute the key that a secret key and another's public key have in common. False: `other` is no key.</summary>
        public static bool Share(byte[] secret, byte[] other, byte[] shared) { return crypto_box_beforenm(shared, other, secret) == 0; }

        /// <summary>Encrypt `count` bytes, and write their tag before them.</summary>
        public static void Seal(byte[] shared, byte[] nonce, byte[] bytes, int at, int count)
        {
            crypto_box_detached_afternm(ref bytes[at], ref bytes[at - TagBytes], ref bytes[at], (ulong)count, nonce, shared);
        }

        /// <summary>Decrypt `count` bytes that follow their tag. False: they were changed, or sealed with another key.</summary>
        public static bool Open(byte[] shared, byte[] nonce, byte[] bytes, int at, int count)
        {
            return crypto_box_open_detached_afternm(ref bytes[at], ref bytes[at], ref bytes[at - TagBytes], (ulong)count, nonce, shared) == 0;
        }

        public static byte[] Random(int count)
        {
            var bytes = new byte[count];
            randombytes_buf(bytes, (UIntPtr)count);
            return bytes;
        }

        [DllImport(Library)] static extern int sodium_init();
        [DllImport(Library)] static extern void randombytes_buf(byte[] bytes, UIntPtr count);
        [DllImport(Library)] static extern int crypto_box_keypair(byte[] publicKey, byte[] secret);
        [DllImport(Library)] static extern int crypto_scalarmult_base(byte[] publicKey, byte[] secret);
        [DllImport(Library)] static extern int crypto_box_beforenm(byte[] shared, byte[] publicKey, byte[] secret);
        [DllImport(Library)] static extern int crypto_box_detached_afternm(ref byte box, ref byte tag, ref byte data, ulong count,
            byte[] nonce, byte[] shared);
        [DllImport(Library)] static extern int crypto_box_open_detached_afternm(ref byte data, ref byte box, ref byte tag, ulong count,
            byte[] nonce, byte[] shared);
    }
}
#endif
