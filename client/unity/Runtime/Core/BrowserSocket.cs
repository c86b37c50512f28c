#if UNITY_WEBGL && !UNITY_EDITOR
using System.Runtime.InteropServices;

namespace AnimeGamer
{
    /// <summary>The functions of AnimeGamer.jslib. Sockets are numbers.</summary>
    static class BrowserSocket
    {
        [DllImport("__Internal")] public static extern int AnimeGamerOpen(string address, string subprotocol);
        [DllImport("__Internal")] public static extern int AnimeGamerState(int socket);
        [DllImport("__Internal")] public static extern void AnimeGamerSend(int socket, byte[] message, int length);
        [DllImport("__Internal")] public static extern int AnimeGamerWaiting(int socket);
        [DllImport("__Internal")] public static extern void AnimeGamerCopy(int socket, int from, byte[] into, int count);
        [DllImport("__Internal")] public static extern void AnimeGamerDrop(int socket);
        [DllImport("__Internal")] public static extern void AnimeGamerClose(int socket);
    }
}
#endif
