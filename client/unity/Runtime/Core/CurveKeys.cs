#if !UNITY_WEBGL || UNITY_EDITOR
using System;
using System.IO;
using System.Text;

namespace AnimeGamer
{
    /// <summary>The keys for one server, 32 bytes each: its public key and this client's own pair.</summary>
    sealed class CurveKeys : IDisposable
    {
        const int KeyCharacters = 40, MaxFileBytes = 64 * 1024;
        const string Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

        public readonly byte[] Server, Public, Secret;

        CurveKeys(byte[] server, byte[] secret)
        {
            Server = server;
            Secret = secret;
            Public = Sodium.PublicKey(secret);
        }

        /// <summary>Null if both are empty. Each: 40 characters of Z85, or the path of a file of `animegamer-rt keys new`.
        /// Throws `bad_argument`, whose text does not repeat what was given, or `no_keys` without libsodium.</summary>
        public static CurveKeys Read(string serverKey, string secretKey)
        {
            bool hasServer = !string.IsNullOrEmpty(serverKey), hasSecret = !string.IsNullOrEmpty(secretKey);
            if (!hasServer && !hasSecret) return null;
            Sodium.Load();
            if (!hasServer || !hasSecret)
                throw new AnimeGamerException("bad_argument",
                    (hasServer ? "ServerKey is given, SecretKey is not" : "SecretKey is given, ServerKey is not"),
                    "give both: the public key of the server, from its owner, and your secret key, from: animegamer-rt keys new NAME");
            return new CurveKeys(ReadKey(serverKey, "ServerKey", "public-key"), ReadKey(secretKey, "SecretKey", "secret-key"));
        }

        /// <summary>Whether a text is a key, not the name of a file.</summary>
        public static bool IsKey(string text) { return Decode(text) != null && !File.Exists(text); }

        /// <summary>Wipe the secret key.</summary>
        public void Dispose() { Array.Clear(Secret, 0, Secret.Length); }

        static byte[] ReadKey(string given, string option, string entry)
        {
            given = given.Trim();
            if (IsKey(given)) return Decode(given);
            string why = "there is no such file";
            try
            {
                if (new FileInfo(given).Length <= MaxFileBytes)
                {
                    byte[] key = Decode(Entry(File.ReadAllText(given, Encoding.UTF8), entry));
                    if (key != null) return key;
                }
                why = "the file has no " + entry;
            }
            catch (Exception error) when (error is IOException || error is UnauthorizedAccessException
                || error is ArgumentException || error is NotSupportedException)
            {
                if (File.Exists(given)) why = "the file cannot be read";
            }
            throw new AnimeGamerException("bad_argument", option + " is neither a key, 40 characters of Z85, nor the path of a key's file: "
                + why, entry == "secret-key" ? "give your NAME.key_secret, as animegamer-rt keys new NAME made it"
                    : "give the server.key of the server's owner, or the text in it");
        }

        // The value of a line: NAME = "VALUE".
        static string Entry(string file, string name)
        {
            foreach (string line in file.Split('\n'))
            {
                string[] parts = line.Split(new[] { '=' }, 2);
                if (parts.Length == 2 && parts[0].Trim() == name) return parts[1].Trim().Trim('"');
            }
            return "";
        }

        // The 32 bytes of a key; null if it is none. Five characters are four bytes (ZeroMQ RFC 32).
        static byte[] Decode(string text)
        {
            if (text.Length != KeyCharacters) return null;
            var key = new byte[Sodium.KeyBytes];
            for (int group = 0; group < 8; group++)
            {
                ulong value = 0;
                for (int i = 0; i < 5; i++)
                {
                    int digit = Z85.IndexOf(text[5 * group + i]);
                    if (digit < 0) return null;
                    value = 85 * value + (ulong)digit;
                }
                if (value > uint.MaxValue) return null;
                for (int n = 0; n < 4; n++) key[4 * group + n] = (byte)(value >> 24 - 8 * n);
            }
            return key;
        }
    }
}
#endif
