using UnityEngine;

namespace AnimeGamer
{
    /// <summary>Ends threads, sockets and servers when a play mode or the program begins or ends.</summary>
    public static class Lifetime
    {
        /// <summary>Close every client and server of this program. Waits for their threads, two seconds at most.</summary>
        public static void CloseAll()
        {
            ServerProcess.StopAll();
            LiveClients.CloseAll();
        }

        // Also called at each Play without a domain reload, where static fields still hold what the last Play left.
        [RuntimeInitializeOnLoadMethod(RuntimeInitializeLoadType.SubsystemRegistration)]
        static void Begin()
        {
            CloseAll();
            Application.quitting -= CloseAll;
            Application.quitting += CloseAll;
        }
    }
}
