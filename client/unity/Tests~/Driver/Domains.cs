using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;

namespace AnimeGamer.Driver
{
    /// <summary>
    /// What an editor does at every change of a script: loads the code into a domain and unloads it, twenty times, at the
    /// worst moments. An unload ends in time, leaves no thread and no descriptor, and the next load goes on with the game.
    /// </summary>
    static class Domains
    {
        const int Times = 20, MostMs = 2000;
        static readonly string[] Moments = { "connecting", "in a turn", "in a clip", "idle", "server dead" };

        /// <summary>address: of a server; silent: of a program that accepts connections and says nothing.</summary>
        public static void Run(string address, string silent)
        {
            string token = null;
            long turns = 0, slowest = 0;
            var fastest = new Dictionary<string, long>();  // of each moment: a busy machine may hold up one unload, but not all
            Visit(ref token, "idle", address, ref turns);  // so that what the runtime itself opens is open
            int sockets = Here().Count(IsSocket);
            for (int i = 0; i < Times; i++)
            {
                string moment = Moments[i % Moments.Length];
                string at = moment == "connecting" ? silent : moment == "server dead" ? "tcp://127.0.0.1:1" : address;
                long unloading = Visit(ref token, moment, at, ref turns);
                slowest = Math.Max(slowest, unloading);
                fastest[moment] = fastest.TryGetValue(moment, out long before) ? Math.Min(before, unloading) : unloading;
                CheckNothingIsLeft(moment, sockets);
            }
            foreach (KeyValuePair<string, long> one in fastest)
                Help.Check(one.Value < MostMs, "unloading " + one.Key + " takes " + one.Value + " ms, less than " + MostMs);
            Console.WriteLine("unloaded " + Times + " times, " + turns + " turns");
            Console.Error.WriteLine("slowest unload: " + slowest + " ms");
        }

        static long Visit(ref string token, string moment, string address, ref long turns)
        {
            AppDomain domain = AppDomain.CreateDomain(moment, null, AppDomain.CurrentDomain.SetupInformation);
            var visitor = (Visitor)domain.CreateInstanceAndUnwrap(typeof(Visitor).Assembly.FullName, typeof(Visitor).FullName);
            token = visitor.Act(moment, address, token, turns);
            if (moment != "connecting" && moment != "server dead") turns++;
            Stopwatch clock = Stopwatch.StartNew();
            AppDomain.Unload(domain);
            return clock.ElapsedMilliseconds;
        }

        // Waits a little: a thread that was joined may still be on its way out of the kernel.
        static void CheckNothingIsLeft(string moment, int sockets)
        {
            string[] here = Here();
            for (int i = 0; i < 400 && (here.Any(IsOurThread) || here.Count(IsSocket) != sockets); i++)
            {
                Thread.Sleep(50);
                here = Here();
            }
            Help.Check(!here.Any(IsOurThread), "no thread is left after unloading " + moment);
            Help.Check(here.Count(IsSocket) == sockets, "no socket is left after unloading " + moment);
        }

        public static bool IsOurThread(string line) { return line.StartsWith("AnimeGamer", StringComparison.Ordinal); }

        static bool IsSocket(string line) { return line.Contains("socket:"); }

        // The names of this process's threads, and its descriptors.
        public static string[] Here()
        {
            string process = "/proc/" + Process.GetCurrentProcess().Id;
            var start = new ProcessStartInfo("sh", "-c \"cat " + process + "/task/*/comm; ls -l " + process + "/fd\"")
                { RedirectStandardOutput = true, RedirectStandardError = true, UseShellExecute = false };
            using (Process list = Process.Start(start)) return list.StandardOutput.ReadToEnd().Split('\n');
        }
    }

    /// <summary>The code in a domain: it leaves everything open.</summary>
    sealed class Visitor : MarshalByRefObject
    {
        public string Act(string moment, string address, string token, long turns)
        {
            AnimeGamerClient client = Help.Connect(address);
            if (moment == "connecting" || moment == "server dead")
            {
                client.OpenAsync();
                Thread.Sleep(100);
                return token;
            }
            Game game = (token == null ? client.OpenAsync(3) : client.ResumeAsync(token)).Get();
            if (game.RunningTurn != 0) game.Replay(game.RunningTurn).Completion.Wait();
            Help.Check(game.Turns == turns, "the next load resumes the game: " + game.Turns + " of " + turns + " turns");
            Turn turn = game.Say("Mirel waves gently.");
            turn.Until(moment == "in a turn" ? TurnEventKind.Progress : moment == "in a clip" ? TurnEventKind.Frame : TurnEventKind.Done);
            Help.Check(Domains.Here().Any(Domains.IsOurThread), "the threads can be seen");
            Help.Check(LiveClients.Count == 1, "static state begins clean");
            return game.Token;
        }
    }
}
