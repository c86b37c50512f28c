using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace AnimeGamer.Driver
{
    /// <summary>Plays scenarios against a live server. Says what it saw, a line each; a line "failed: ..." and exit code 1
    /// where it was not as expected.</summary>
    static class Program
    {
        static int Main(string[] arguments)
        {
            try
            {
                switch (arguments[0])
                {
                    case "vectors": return Vectors.Run();
                    case "conform": new Conformance().Run(); break;
                    case "bad-keys": Scenarios.BadKeys(); break;
                    case "play": Scenarios.Play(arguments[1]); break;
                    case "restart": Scenarios.Restart(arguments[1]); break;
                    case "reach": Scenarios.Reach(arguments[1], int.Parse(arguments[2])); break;
                    case "keys": Scenarios.Keys(arguments[1], arguments[2], arguments[3], arguments[4]); break;
                    case "launch": Scenarios.Launch(arguments[1], arguments[2], arguments[3]); break;
                    case "tests": Engine.RunTests(arguments[1]); break;
                    case "engine": Engine.Run(arguments[1]); break;
                    case "engine-server": Engine.WithServer(arguments[1], arguments[2], arguments[3], arguments[4]); break;
                    case "engine-keys": Engine.WithKeys(arguments[1], arguments[2], arguments[3]); break;
                    case "picture": Engine.FromPicture(arguments[1]); break;
                    case "domains": Domains.Run(arguments[1], arguments[2]); break;
                    case "assemblies": Assemblies.Check(arguments); break;
                    default: throw new ArgumentException(arguments[0]);
                }
                return 0;
            }
            catch (Exception error)
            {
                Console.WriteLine("failed: " + error);
                return 1;
            }
        }
    }

    static class Help
    {
        public const int LimitMs = 60000;

        public static void Check(bool condition, string claim)
        {
            if (!condition) throw new Exception("not so: " + claim);
        }

        /// <summary>The result of a task; every task of the package ends by itself.</summary>
        public static T Get<T>(this Task<T> task)
        {
            Wait(task);
            return task.GetAwaiter().GetResult();
        }

        public static void Wait(this Task task)
        {
            Check(((IAsyncResult)task).AsyncWaitHandle.WaitOne(LimitMs), "a task ends in time");
            if (task.IsFaulted) task.GetAwaiter().GetResult();
        }

        /// <summary>The code of the error that the task ends with.</summary>
        public static string Error(this Task task)
        {
            try
            {
                Wait(task);
            }
            catch (AnimeGamerException error)
            {
                Check(!string.IsNullOrEmpty(error.Text), "an error has a text");
                return error.Code;
            }
            return "none";
        }

        /// <summary>The turn's events up to the first of a kind, or to its end; frames are given back.</summary>
        public static List<TurnEvent> Until(this Turn turn, TurnEventKind kind, List<uint> pictures = null)
        {
            var events = new List<TurnEvent>();
            for (int waited = 0; waited < LimitMs; )
            {
                if (!turn.TryRead(out TurnEvent next))
                {
                    Thread.Sleep(2);
                    waited += 2;
                    continue;
                }
                if (next.Frame != null)
                {
                    Check(next.Frame.Data.Length == next.Frame.PictureBytes, "a picture has no gaps");
                    pictures?.Add(Hash(next.Frame.Data));
                    next.Frame.Release();
                }
                events.Add(next);
                if (next.Kind == kind || next.Kind == TurnEventKind.Done || next.Kind == TurnEventKind.Error) return events;
            }
            throw new Exception("not so: the turn goes on");
        }

        /// <summary>Hashes of the pictures of a whole turn; fails unless every event came once, in order.</summary>
        public static List<uint> Pictures(this Turn turn, List<TurnEvent> before = null, List<uint> seen = null)
        {
            List<uint> pictures = seen ?? new List<uint>();
            List<TurnEvent> events = before ?? new List<TurnEvent>();
            events.AddRange(turn.Until(TurnEventKind.Done, pictures));
            TurnEvent last = events[events.Count - 1];
            Check(last.Kind == TurnEventKind.Done, "the turn is done; " + last.Error);
            long seq = 0;
            foreach (TurnEvent each in events)
                if (each.Kind != TurnEventKind.Restarting && each.Kind != TurnEventKind.Understood) Check(each.Seq == seq++, "events come once, in order");
            Check(pictures.Count == 17, "a turn has 17 pictures");
            return pictures;
        }

        public static bool Same(List<uint> a, List<uint> b) { return string.Join(" ", a) == string.Join(" ", b); }

        static uint Hash(byte[] data)
        {
            uint hash = 2166136261;
            foreach (byte each in data) hash = (hash ^ each) * 16777619;
            return hash;
        }
    }
}
