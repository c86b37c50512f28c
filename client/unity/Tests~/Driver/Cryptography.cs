using System;
using System.Diagnostics;
using System.Globalization;

namespace AnimeGamer.Driver
{
    /// <summary>The mathematics of keys: published test vectors, planted wrong bits, no allocations; and its speed.</summary>
    static class Cryptography
    {
        const int FrameBytes = 480 * 720 * 4;

        // The keys of Alice and Bob in "Cryptography in NaCl", which RFC 7748 has too, and what they share.
        const string Alice = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
        const string AlicePublic = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        const string Bob = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb";
        const string BobPublic = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f";
        const string BoxKey = "1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389";
        const string BoxNonce = "69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37";
        const string BoxText = "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296cdc3c"
            + "01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902"
            + "e52f0a089bc76897040e082f937763848645e0705";
        const string Box = "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98"
            + "dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da9"
            + "9832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5";

        public static void Run()
        {
            Agreement();
            Authenticator();
            Boxes();
            Connection();
            Keys();
            Allocations();
        }

        // RFC 7748, sections 5.2 and 6.1.
        static void Agreement()
        {
            Shared("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
                "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
                "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
            Shared("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
                "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957");
            const string shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
            Shared(Alice, BobPublic, shared);
            Shared(Bob, AlicePublic, shared);
            Same(X25519.PublicKey(FromHex(Alice)), AlicePublic, "a public key");
            byte[] k = FromHex("0900000000000000000000000000000000000000000000000000000000000000"), u = k;
            for (int i = 0; i < 1000; i++)
            {
                byte[] next = X25519.Multiply(k, u);
                u = k;
                k = next;
                if (i == 0) Same(k, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079", "X25519 once");
            }
            Same(k, "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51", "X25519 a thousand times");
            // Numbers from p upwards are read modulo p: p + 9 is the base point, and 2^255 - 1 is 18.
            Shared(Alice, "f6ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", AlicePublic);
            var eighteen = new byte[32];
            eighteen[0] = 18;
            Shared(Alice, new string('f', 64), ToHex(X25519.Multiply(FromHex(Alice), eighteen)));
            Say("X25519");
        }

        static void Shared(string secret, string point, string expected)
        {
            Same(X25519.Multiply(FromHex(secret), FromHex(point)), expected, "X25519");
        }

        // RFC 8439, section 2.5.2, and of its appendix A.3 those where a sum reaches p or 2^128, and 11, whose carry is long.
        static void Authenticator()
        {
            Tag("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b",
                "43727970746f6772617068696320466f72756d2052657365617263682047726f7570", "a8061dc1305136c6c22b8baf0c0127a9");
            string zeros = new string('0', 30), ones = new string('f', 30);
            string two = "02" + zeros, one = "01" + zeros, none = "00" + zeros;
            Tag(two + none, "ff" + ones, "03" + zeros);
            Tag(two + "ff" + ones, two, "03" + zeros);
            Tag(one + none, "ff" + ones + "f0" + ones + "11" + zeros, "05" + zeros);
            Tag(one + none, "ff" + ones + "fb" + ones.Replace("ff", "fe") + "01" + zeros.Replace("00", "01"), none);
            Tag(two + none, "fd" + ones, "fa" + ones);
            const string key = "01000000000000000400000000000000", text = "e33594d7505e43b900000000000000003394d7505e4379cd0100000000000000";
            Tag(key + none, text + none + one, "14000000000000005500000000000000");
            Tag(key + none, text + none, "13" + zeros);
            Say("Poly1305");
        }

        static void Tag(string key, string text, string expected)
        {
            byte[] bytes = FromHex(text), tag = new byte[16];
            var mac = new Poly1305();
            for (int cut = 0; cut <= bytes.Length; cut++)  // also where the bytes come in two parts
            {
                mac.Start(FromHex(key));
                mac.Add(bytes, 0, cut);
                mac.Add(bytes, cut, bytes.Length - cut);
                mac.Finish(tag, 0);
                Same(tag, expected, "Poly1305");
            }
        }

        static void Boxes()
        {
            Same(SecretBox.SharedKey(FromHex(Alice), FromHex(BobPublic)), BoxKey, "the key of a box");
            byte[] nonce = FromHex(BoxNonce), text = FromHex(BoxText), box = new byte[SecretBox.TagBytes + text.Length];
            Buffer.BlockCopy(text, 0, box, SecretBox.TagBytes, text.Length);
            var sealer = new SecretBox(FromHex(BoxKey));
            sealer.Seal(nonce, box, SecretBox.TagBytes, text.Length);
            Same(box, Box, "a box");
            Help.Check(sealer.Open(nonce, box, SecretBox.TagBytes, text.Length), "a box is opened");
            Same(box, Box.Substring(0, 32) + BoxText, "what was in it");

            byte[] sealedBox = FromHex(Box);
            for (int bit = 0; bit < 8 * sealedBox.Length; bit++)
            {
                var changed = (byte[])sealedBox.Clone();
                changed[bit / 8] ^= (byte)(1 << bit % 8);
                string before = ToHex(changed);
                Help.Check(!sealer.Open(nonce, changed, SecretBox.TagBytes, text.Length), "bit " + bit + " is missed if it is wrong");
                Same(changed, before, "a box that is refused");
            }
            Help.Check(!sealer.Open(nonce, sealedBox, SecretBox.TagBytes, text.Length - 1), "a box that is cut is refused");
            nonce[23] ^= 1;
            Help.Check(!sealer.Open(nonce, sealedBox, SecretBox.TagBytes, text.Length), "another nonce is refused");

            // In one array or two, and across the parts in which a picture is worked on.
            foreach (int size in new[] { 0, 1, 30, 31, 32, 63, 64, 4062, 4063, 4064, 4096, 10000 })
            {
                var whole = new byte[SecretBox.TagBytes + 1 + size];
                for (int i = SecretBox.TagBytes; i < whole.Length; i++) whole[i] = (byte)(i * i >> 3);
                string plain = ToHex(whole).Substring(32);
                sealer.Seal(nonce, whole, SecretBox.TagBytes, 1 + size);
                byte[] start = new byte[SecretBox.TagBytes + 1], rest = new byte[size];
                Buffer.BlockCopy(whole, 0, start, 0, start.Length);
                Buffer.BlockCopy(whole, start.Length, rest, 0, size);
                Help.Check(sealer.Open(nonce, whole, SecretBox.TagBytes, 1 + size), "a box of " + size + " is opened");
                Help.Check(sealer.Open(nonce, start, SecretBox.TagBytes, 1, rest, size), "in two arrays, too");
                Help.Check(ToHex(whole).Substring(32) == plain, "it is what was in it");
                Help.Check(ToHex(start).Substring(32) + ToHex(rest) == plain, "it is the same in two arrays");
            }
            Say("boxes");
        }

        // A server's side of the handshake, with Bob's keys; Alice is the client.
        static void Connection()
        {
            CurveKeys keys = CurveKeys.Read(ToZ85(FromHex(BobPublic)), ToZ85(FromHex(Alice)));
            Same(keys.Public, AlicePublic, "the client's public key");
            for (int wrong = -1; wrong < 168; wrong += 6)  // -1: none is wrong
                using (var curve = new Curve(keys))
                {
                    byte[] welcome = Welcome(curve.Hello(), out SecretBox box);
                    if (wrong >= 0) welcome[wrong] ^= 4;
                    string refused = Refused(() => curve.Initiate(welcome, welcome.Length, new byte[5]));
                    Help.Check(refused == (wrong < 0 ? null : "not_allowed"), "WELCOME with a wrong byte " + wrong + " ends so: " + refused);
                    if (wrong >= 0) continue;
                    byte[] message = Message(box, 1, 7, "5041"), again = Message(box, 1, 7, "5041"), changed = Message(box, 0, 8, "5041");
                    Help.Check(Open(curve, message) == "015041", "a message is opened");
                    Help.Check(Refused(() => Open(curve, again)) == "protocol", "a message that is sent again is refused");
                    changed[34] ^= 1;
                    Help.Check(Refused(() => Open(curve, changed)) == "protocol", "a message that was changed is refused");
                    Help.Check(Open(curve, Message(box, 2, 9, "")) == "02", "an empty one is opened");
                    Help.Check(ToHex(curve.Seal(0, new byte[3])) != ToHex(curve.Seal(0, new byte[3])), "no nonce is used twice");
                }
            Say("a connection");
        }

        static byte[] Welcome(byte[] hello, out SecretBox box)
        {
            var client = new byte[32];
            Buffer.BlockCopy(hello, 80, client, 0, 32);
            byte[] nonce = Nonce("CurveZMQHELLO---", hello, 112, 8);
            var first = new SecretBox(SecretBox.SharedKey(FromHex(Bob), client));
            Help.Check(hello.Length == 200 && first.Open(nonce, hello, 136, 64), "the server opens HELLO");
            byte[] welcome = new byte[168], secret = FromHex(Bob);
            secret[5] ^= 1;  // a key of the connection
            for (int i = 0; i < 8; i++) welcome[i] = (byte)"\x07WELCOME"[i];
            Buffer.BlockCopy(X25519.PublicKey(secret), 0, welcome, 40, 32);
            first.Seal(Nonce("WELCOME-", welcome, 8, 16), welcome, 40, 128);
            box = new SecretBox(SecretBox.SharedKey(secret, client));
            return welcome;
        }

        static byte[] Message(SecretBox box, int flags, int number, string hex)
        {
            byte[] data = FromHex(hex), message = new byte[Curve.Overhead + data.Length];
            for (int i = 0; i < 8; i++) message[i] = (byte)"\x07MESSAGE"[i];
            message[15] = (byte)number;
            message[32] = (byte)flags;
            Buffer.BlockCopy(data, 0, message, Curve.Overhead, data.Length);
            box.Seal(Nonce("CurveZMQMESSAGES", message, 8, 8), message, 32, 1 + data.Length);
            return message;
        }

        // Flags and data, in hex.
        static string Open(Curve curve, byte[] message)
        {
            byte[] start = new byte[Curve.Overhead], data = new byte[message.Length - start.Length];
            Buffer.BlockCopy(message, 0, start, 0, start.Length);
            Buffer.BlockCopy(message, start.Length, data, 0, data.Length);
            return curve.Open(start, data, data.Length).ToString("x2") + ToHex(data);
        }

        // The code of the error; null if there is none. Its text does not repeat a secret.
        static string Refused(Action action, string secret = null)
        {
            try
            {
                action();
                return null;
            }
            catch (AnimeGamerException error)
            {
                Help.Check(error.Do != null, "it is said what to do");
                Help.Check(string.IsNullOrEmpty(secret) || !error.Message.Contains(secret), "no secret is in it");
                return error.Code;
            }
        }

        static byte[] Nonce(string prefix, byte[] from, int at, int count)
        {
            var nonce = new byte[24];
            for (int i = 0; i < prefix.Length; i++) nonce[i] = (byte)prefix[i];
            Buffer.BlockCopy(from, at, nonce, prefix.Length, count);
            return nonce;
        }

        // The pair of ZeroMQ's manual (zmq_curve). What is no key, or only one of two, is refused before anything is sent.
        static void Keys()
        {
            const string server = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", secret = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs";
            CurveKeys keys = CurveKeys.Read(server, " " + secret + "\n");
            Same(keys.Server, "bb88471d65e2659b30c55a5321cebb5aab2b70a398645c26dca2b2fcb43fc518", "a public key");
            Same(keys.Secret, "7bb864b489afa3671fbe69101f94b38972f24816dfb01b51656b3fec8dfd0888", "a secret key");
            Same(keys.Public, ToHex(keys.Server), "the secret key's public one");
            keys.Dispose();
            Same(keys.Secret, new string('0', 64), "a secret key that is wiped");
            Help.Check(CurveKeys.Read("", null) == null, "no keys are no keys");
            foreach (string[] bad in new[] { new[] { server, "" }, new[] { "", secret }, new[] { server, "no key" },
                new[] { "#" + server, secret }, new[] { server.Substring(1), secret }, new[] { new string('#', 40), secret },
                new[] { server, secret.Substring(1) + "~" } })
                Help.Check(Refused(() => CurveKeys.Read(bad[0], bad[1]), bad[1]) == "bad_argument", "what is no key is refused");
            Say("keys");
        }

        // A collection of the youngest generation comes when its 4 MiB are full.
        static void Allocations()
        {
            var box = new SecretBox(FromHex(BoxKey));
            byte[] nonce = FromHex(BoxNonce), bytes = new byte[SecretBox.TagBytes + 100];
            int collections = 0;
            for (int i = 0; i < 120000; i++)
            {
                if (i == 10) collections = GC.CollectionCount(0);
                box.Seal(nonce, bytes, SecretBox.TagBytes, 100);
                Help.Check(box.Open(nonce, bytes, SecretBox.TagBytes, 100), "it is opened");
            }
            Help.Check(GC.CollectionCount(0) == collections, "sealing and opening allocate nothing");
            Say("no allocations");
        }

        /// <summary>One line of JSON: pictures of full size, by this process's CPU time.</summary>
        public static void Measure()
        {
            const int times = 100;
            var box = new SecretBox(FromHex(BoxKey));
            byte[] nonce = FromHex(BoxNonce), start = new byte[SecretBox.TagBytes + 1], rest = new byte[FrameBytes];
            double opening = 0;
            for (int i = -3; i < times; i++)
            {
                byte[] whole = new byte[SecretBox.TagBytes + 1 + FrameBytes];
                box.Seal(nonce, whole, SecretBox.TagBytes, 1 + FrameBytes);
                Buffer.BlockCopy(whole, 0, start, 0, start.Length);
                Buffer.BlockCopy(whole, start.Length, rest, 0, rest.Length);
                double before = CpuSeconds();
                Help.Check(box.Open(nonce, start, SecretBox.TagBytes, 1, rest, rest.Length), "a picture is opened");
                if (i >= 0) opening += CpuSeconds() - before;
            }
            double agreeing = CpuSeconds();
            for (int i = 0; i < times; i++) X25519.PublicKey(FromHex(Alice));
            agreeing = CpuSeconds() - agreeing;
            Say(string.Format(CultureInfo.InvariantCulture, "{{\"open_mb_per_s\": {0:0}, \"frame_bytes\": {1}, \"x25519_ms\": {2:0.00}}}",
                1e-6 * times * FrameBytes / opening, FrameBytes, 1000 * agreeing / times));
        }

        static double CpuSeconds() { return Process.GetCurrentProcess().TotalProcessorTime.TotalSeconds; }

        static string ToZ85(byte[] key)
        {
            const string digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
            string text = "";
            for (int group = 0; group < 8; group++)
            {
                ulong value = MsgView.BigEndian(key, 4 * group, 4);
                string five = "";
                for (int i = 0; i < 5; i++, value /= 85) five = digits[(int)(value % 85)] + five;
                text += five;
            }
            return text;
        }

        static byte[] FromHex(string hex)
        {
            var bytes = new byte[hex.Length / 2];
            for (int i = 0; i < bytes.Length; i++) bytes[i] = Convert.ToByte(hex.Substring(2 * i, 2), 16);
            return bytes;
        }

        static string ToHex(byte[] bytes) { return BitConverter.ToString(bytes).Replace("-", "").ToLowerInvariant(); }

        static void Same(byte[] found, string expected, string claim)
        {
            Help.Check(ToHex(found) == expected, claim + " is " + expected + ", found " + ToHex(found));
        }

        static void Say(string line) { Console.WriteLine(line); }
    }
}
