using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Threading;
using System.Threading.Tasks;
using UnityEngine;

namespace AnimeGamer.Driver
{
    /// <summary>Plays what a WebGL build has of the package, in a process whose thread pool does nothing: a browser has none.</summary>
    static class Program
    {
        // Of these namespaces, what works in a browser.
        static readonly string[] Limited = { "System.Threading", "System.Net", "System.IO", "System.Diagnostics", "Microsoft" };
        static readonly string[] Works =
        {
            "CancellationToken", "CancellationTokenRegistration", "SendOrPostCallback", "SynchronizationContext", "Stopwatch",
            "DebuggerBrowsableAttribute", "DebuggerHiddenAttribute", "DebuggerStepThroughAttribute", "ThreadAbortException",
            "Monitor.Enter", "Monitor.Exit", "Monitor.IsEntered", "File.Exists", "Path.Combine", "TaskScheduler.get_Default",
            "Task.FromCanceled", "Task.FromException", "Task.FromResult", "Task.WhenAny", "Task.GetAwaiter", "Task`1.GetAwaiter",
            "Task.get_Exception", "Task.get_IsCompleted", "Task.get_IsFaulted", "Task.get_IsCanceled", "Task`1.ContinueWith",
            "TaskCompletionSource`1",
        };

        static int Main(string[] arguments)
        {
            try
            {
                if (arguments[0] == "calls") Calls();
                else Play(arguments[0], arguments[1], arguments[2], arguments[3]);
                return 0;
            }
            catch (Exception error)
            {
                Console.WriteLine("failed: " + error);
                return 1;
            }
        }

        // All that the assemblies call is there in a browser.
        static void Calls()
        {
            foreach (Type one in new[] { typeof(AnimeGamerClient), typeof(AnimeGamerSession), typeof(Samples.SaySomething) })
            {
                int refused = 0, count = 0;
                for (; Called(one.Module, count + 1, out MemberInfo member); count++)
                {
                    string of = member.DeclaringType.Namespace ?? "";
                    string type = member.DeclaringType.Name, name = type + "." + member.Name;
                    bool options = member.ToString().Contains("TaskCreationOptions");  // RunContinuationsAsynchronously: on the thread pool
                    if (!options && (!Limited.Any(of.StartsWith) || Works.Contains(type) || Works.Contains(name))) continue;
                    Console.WriteLine(of + "." + name + ": a browser has no " + member);
                    refused++;
                }
                Console.WriteLine(one.Assembly.GetName().Name + ": " + (refused == 0 && count > 9 ? "ok" : refused + " of " + count));
            }
        }

        // The member of another assembly that is in this row of the module's table of references.
        static bool Called(Module module, int row, out MemberInfo member)
        {
            var any = new[] { typeof(object), typeof(object) };
            try
            {
                member = module.ResolveMember(0x0a000000 + row, any, any);
                return true;
            }
            catch (ArgumentOutOfRangeException)
            {
                member = null;
                return false;
            }
        }

        // address: of a gateway, which somebody ends when this says so; silent: where nothing listens.
        static void Play(string address, string silent, string node, string arguments)
        {
            HoldThreadPool();
            BrowserSocket.Start(node, arguments);
            var host = new GameObject("game");
            AnimeGamerSession session = host.AddComponent<AnimeGamerSession>();
            session.address = address;
            TurnView view = host.AddComponent<TurnView>();
            view.session = session;
            var shown = new HashSet<int>();
            Task<Done> turn = session.SayAsync("Mirel waves gently in the meadow.");
            Until(() =>
            {
                shown.Add(session.Display.Index);
                return turn.IsCompleted && !session.Display.Playing;
            }, "a turn is played");
            Check(Result(turn).Turns == 1 && shown.Contains(16), "to its last picture");
            Check(view.Texture.Applied.SequenceEqual(session.Display.Picture.Data), "which the view shows");

            Console.WriteLine("in a turn");
            turn = session.SayAsync("Mirel runs.");
            Until(() => turn.IsCompleted, "a turn goes on after the connection was lost");
            Check(Result(turn).Turns == 2, "it is the next");
            Task all = Task.WhenAll(session.Game.ListAsync(), session.Game.WishAsync(new[] { "Mirel sits." }), session.Game.CancelAsync());
            Until(() => all.IsCompleted, "calls that are waited for together are answered");
            CancellationTokenSource stop;
            int asked = 0;
            do
            {
                stop = new CancellationTokenSource();
                turn = session.SayAsync("Mirel flies.", stop.Token);
                Until(() => session.Busy, "a turn runs");
                stop.Cancel();
                Until(() => turn.IsCompleted && !session.Busy, "a turn ends");
            } while (!turn.IsCanceled && ++asked < 5);  // on a busy machine a turn may be done first
            Check(turn.IsCanceled, "a cancelled token stops it");

            var other = host.AddComponent<AnimeGamerSession>();
            other.address = silent;
            other.timeoutSeconds = 2;
            stop = new CancellationTokenSource();
            Task<Game> open = other.ConnectAsync(stop.Token);
            stop.Cancel();
            Until(() => open.IsCanceled, "nobody has to wait");
            Refused(other, "timed_out", "no WebSocket opens there");
            other.address = "tcp://127.0.0.1:5570";
            Refused(other, "bad_argument", "a browser cannot reach");
            other.address = address;
            other.Password = "a secret";
            Refused(other, "bad_argument", "a browser sends no Password");
            other.server = host.AddComponent<ServerProcess>();
            Refused(other, "server_process", "a browser cannot start animegamer-rt");
            foreach (MonoBehaviour each in new MonoBehaviour[] { view, session, other }) UnityEngine.Object.Destroy(each);
            Check(LiveClients.Count == 0, "all clients are closed");
            BrowserSocket.End();
            Console.WriteLine("played in a browser");
        }

        static void Refused(AnimeGamerSession session, string code, string text)
        {
            Task<Game> open = session.ConnectAsync();
            Until(() => open.IsCompleted, "it is refused: " + text);
            var error = open.Exception?.InnerException as AnimeGamerException;
            Check(error != null && error.Code == code && error.Text.Contains(text), code + ", found: " + open.Exception);
        }

        // What is given to it waits for ever.
        static void HoldThreadPool()
        {
            ThreadPool.GetMinThreads(out int threads, out int ports);
            Check(ThreadPool.SetMaxThreads(threads, ports), "there are few");
            var never = new ManualResetEvent(false);
            var held = new CountdownEvent(threads);
            for (int i = 0; i < threads; i++)
                ThreadPool.QueueUserWorkItem(_ =>
                {
                    held.Signal();
                    never.WaitOne();
                });
            held.Wait();
        }

        static T Result<T>(Task<T> task) { return task.GetAwaiter().GetResult(); }

        static void Until(Func<bool> condition, string claim)
        {
            for (int waited = 0; waited < 60000; waited += 8)
            {
                StubLoop.Frame();
                if (condition()) return;
                Thread.Sleep(8);
            }
            Check(false, claim);
        }

        static void Check(bool condition, string claim)
        {
            if (!condition) throw new Exception("not so: " + claim);
        }
    }
}
