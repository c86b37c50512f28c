#if !UNITY_WEBGL || UNITY_EDITOR
using System.Text;

namespace AnimeGamer
{
    /// <summary>Bytes of ZMTP 3.1 as a DEALER sends them. Knows no socket.</summary>
    static class Zmtp
    {
        public const int GreetingBytes = 64;

        /// <summary>Flags of a frame's start.</summary>
        public const int More = 0x01, Long = 0x02, Command = 0x04;

        /// <summary>What to do about a server with keys.</summary>
        public const string WithoutKeys = "reach a server on another machine by wss:// of its proxy, or by an SSH tunnel to one without --keys";

        /// <summary>The command READY, with the socket's properties.</summary>
        public static readonly byte[] Ready = Encoding.ASCII.GetBytes("\x05READY\x0bSocket-Type\0\0\0\x06" + "DEALER\x08Identity\0\0\0\0");

        public static byte[] Greeting()
        {
            var greeting = new byte[GreetingBytes];
            greeting[0] = 0xff;
            greeting[8] = 0x01;
            greeting[9] = 0x7f;
            greeting[10] = 3;
            greeting[11] = 1;
            Encoding.ASCII.GetBytes("NULL", 0, 4, greeting, 12);
            return greeting;
        }

        /// <summary>A frame with its body.</summary>
        public static byte[] Frame(int flags, byte[] body)
        {
            var writer = new MsgWriter();
            FrameStart(writer, body.Length, flags);
            writer.Raw(body, body.Length);
            return writer.ToArray();
        }

        /// <summary>Flags and length, which stand before a frame's body.</summary>
        public static void FrameStart(MsgWriter writer, int length, int flags)
        {
            if (length <= 255) writer.Tagged(flags, (ulong)length, 1);
            else writer.Tagged(Long | flags, (ulong)length, 8);
        }

        public static AnimeGamerException NotZmtp(string what)
        {
            return new AnimeGamerException("protocol", "what answers there does not speak ZMTP 3: " + what,
                "use the address that animegamer-rt serve printed");
        }
    }
}
#endif
