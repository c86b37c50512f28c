using System;
using System.Threading;
using System.Threading.Tasks;

namespace AnimeGamer.Driver
{
    /// <summary>What only this package has; the rest is played by commands (Conformance). Says what it saw, a line each; a line
    /// "failed: ..." and exit code 1 where it was not as expected.</summary>
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
                    case "launch": Launch(arguments[1], arguments[2], arguments[3]); break;
                    case "engine": Engine.Run(arguments[1]); break;
                    case "engine-server": Engine.WithServer(arguments[1], arguments[2], arguments[3], arguments[4]); break;
                    case "engine-past": Engine.Past(arguments[1]); break;
                    case "first-steps": FirstSteps.Take(arguments); break;
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

        // A server of this program's own.
        static void Launch(string command, string arguments, string options)
        {
            var server = new ServerLauncher(command, arguments, options);
            try
            {
                using (AnimeGamerClient client = Help.Connect(server.Address.Get()))
                    client.OpenAsync(3).Get().Say("Mirel waves gently.").Until(TurnEventKind.Done);
                Help.Check(server.Running, "it runs until it is disposed");
                server.Dispose();
                Console.WriteLine(server.Running ? "it goes on" : "launched, then ended");
            }
            catch (AnimeGamerException error)
            {
                server.Dispose();
                Console.WriteLine(error.Code + ": " + error.Text.Replace('\n', ' '));
            }
        }
    }

    static class Help
    {
        public const int LimitMs = 60000;

        public static AnimeGamerClient Connect(string address) { return new AnimeGamerClient(new ClientOptions { Address = address }); }

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

        /// <summary>Read the turn up to the first event of a kind, or to its end; frames are given back.</summary>
        public static void Until(this Turn turn, TurnEventKind kind)
        {
            for (int waited = 0; waited < LimitMs; )
            {
                if (!turn.TryRead(out TurnEvent next))
                {
                    Thread.Sleep(2);
                    waited += 2;
                    continue;
                }
                next.Frame?.Release();
                if (next.Kind == kind || next.Kind == TurnEventKind.Done || next.Kind == TurnEventKind.Error) return;
            }
            throw new Exception("not so: the turn goes on");
        }
    }
}
