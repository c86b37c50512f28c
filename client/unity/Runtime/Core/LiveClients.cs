using System;
using System.Collections.Generic;
using System.Diagnostics;

namespace AnimeGamer
{
    /// <summary>
    /// All clients that are not closed, so that they can be closed before the code is unloaded: at an editor's domain
    /// reload, at the end of a play mode, at the program's end.
    /// </summary>
    public static class LiveClients
    {
        internal static readonly object Gate = new object();
        static readonly List<AnimeGamerClient> Clients = new List<AnimeGamerClient>();
        static bool _watching;

        /// <summary>How many clients are open.</summary>
        public static int Count { get { lock (Gate) return Clients.Count; } }

        /// <summary>Close all clients; returns whether all their threads have ended within the time. Games stay on the
        /// server.</summary>
        public static bool CloseAll(int milliseconds = AnimeGamerClient.JoinMilliseconds)
        {
            AnimeGamerClient[] open;
            lock (Gate) open = Clients.ToArray();
            Stopwatch clock = Stopwatch.StartNew();
            foreach (AnimeGamerClient client in open) client.BeginClose();
            bool ended = true;
            foreach (AnimeGamerClient client in open)
                ended &= client.EndClose(Math.Max(0, milliseconds - (int)clock.ElapsedMilliseconds));
            return ended;
        }

        internal static void Add(AnimeGamerClient client)
        {
            lock (Gate)
            {
                Clients.Add(client);
                if (_watching) return;
                _watching = true;
                AppDomain.CurrentDomain.DomainUnload += OnUnload;
                AppDomain.CurrentDomain.ProcessExit += OnUnload;
            }
        }

        internal static void Remove(AnimeGamerClient client)
        {
            lock (Gate) Clients.Remove(client);
        }

        static void OnUnload(object sender, EventArgs arguments) { CloseAll(); }
    }
}
