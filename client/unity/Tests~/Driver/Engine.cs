using System;
using System.Reflection;
using System.Threading;
using UnityEngine;

namespace AnimeGamer.Driver
{
    /// <summary>Runs the Unity layer's components in a game loop of stubs, against a live server.</summary>
    static class Engine
    {
        public static void Run(string address)
        {
            var saved = ScriptableObject.CreateInstance<SavedGame>();
            Play(address, saved, false);
            Help.Check(saved.Token != "" && saved.Turns == 3, "the story's three turns are in the saved game");
            string token = saved.Token;
            Play(address, saved, true);
            Help.Check(saved.Token == token && saved.Turns == 5, "the second Play goes on with the game");
            Say("two plays of one game");
        }

        /// <summary>What a session does with turns that were played, and what a cancelled token ends.</summary>
        public static void Past(string address)
        {
            var host = new GameObject("game");
            AnimeGamerSession session = host.AddComponent<AnimeGamerSession>();
            session.address = address;
            TurnView view = host.AddComponent<TurnView>();
            view.session = session;
            foreach (string sentence in new[] { "Mirel walks.", "Mirel waves.", "Mirel sits." }) Ended(session.SayAsync(sentence)).Get();
            ClipDisplay display = session.Display;
            display.FadeSeconds = 20;
            Ended(session.ReplayAsync(1)).Get();
            Until(() => display.Turn == 1 && display.Blend > 0.05, "a replayed clip is shown");
            Frame before = display.Picture, after = display.Next;
            byte[] pixels = view.Texture.Applied;
            for (int i = 0; i < pixels.Length; i++)
            {
                double faded = before.Data[i] + (after.Data[i] - before.Data[i]) * display.Blend;
                Help.Check(Math.Abs(pixels[i] - faded) <= 2, "faded in over the one before");
            }
            Help.Check(!Equal(pixels, before.Data) && !Equal(pixels, after.Data), "so that both are seen");
            display.FadeSeconds = 0;
            System.Threading.Tasks.Task<System.Collections.Generic.List<LoggedTurn>> listed = session.ListAsync();
            Help.Check(Ended(listed).Get().Count == 3, "the turns are listed");
            session.Undo();
            Until(() => session.Game.Turns == 2 && session.Display.Turn == 2 && !session.Busy, "the turn before is shown");
            byte[] second = session.Display.Picture.Data;
            Until(() => Equal(view.Texture.Applied, second), "by the view, too");
            string first = session.Game.Token;
            Ended(session.BranchAsync(1)).Get();
            Until(() => session.Display.Turn == 1 && !session.Busy, "the branch's last turn is shown");
            Help.Check(session.Game.Turns == 1 && session.Game.Token != first, "the session goes on with the branch");
            Help.Check(Ended(session.SayAsync("Tofi runs.")).Get().Turns == 2, "and plays on");
            var stop = new CancellationTokenSource();
            session.Game.ListAsync(stop.Token);
            stop.Cancel();  // compiled now: the next one is faster than the server
            stop = new CancellationTokenSource();
            System.Threading.Tasks.Task rewinding = session.Game.RewindAsync(1, stop.Token);
            stop.Cancel();
            Until(() => rewinding.IsCompleted && session.Game.Turns == 1, "a rewind that was sent happens, and the game knows it");
            Ended(session.RewindAsync(0)).Wait();
            Help.Check(session.Game.Turns == 0 && session.Display.Picture == null, "nothing is left to show");
            Help.Check(AnimeGamer.EditorTools.SessionEditor.State(session).Contains("press Play"), "the Inspector says what to do");

            stop = new CancellationTokenSource();
            System.Threading.Tasks.Task<Done> turn = session.SayAsync("Tofi flies.", stop.Token);
            Until(() => session.Busy, "a turn runs");
            stop.Cancel();
            Until(() => turn.IsCompleted && !session.Busy, "a cancelled token stops it");
            Help.Check(turn.IsCanceled && session.Game.Turns == 0, "without an error");
            Help.Check(session.ConnectAsync(stop.Token).Get() == session.Game, "what has ended is not cancelled");
            Help.Check(Ended(session.ListAsync(stop.Token)).IsCanceled, "nothing is asked with a cancelled token");
            using (var unanswered = Help.Connect("tcp://127.0.0.1:1"))
            {
                stop = new CancellationTokenSource();
                System.Threading.Tasks.Task<Game> open = unanswered.OpenAsync(null, null, stop.Token);
                stop.Cancel();
                Until(() => open.IsCompleted, "nor waited for");
                Help.Check(open.IsCanceled, "a call without an answer");
            }
            using (var named = Help.Connect(address.Replace("127.0.0.1", "LOCALHOST")))
                Help.Check(named.ConnectAsync().Get().Bundle != "", "a host's name is looked up");
            using (var nowhere = new AnimeGamerClient(new ClientOptions { Address = "tcp://no-such-host.invalid:5570", TimeoutSeconds = 1 }))
                try
                {
                    nowhere.ConnectAsync().Get();
                }
                catch (AnimeGamerException error)
                {
                    Help.Check(error.Code == "timed_out" && error.Text.Contains("no-such-host"), "a name that nobody knows");
                }
            rewinding = session.RewindAsync(0);
            Thread.Sleep(300);  // it is answered, and the scene is left before the next frame
            UnityEngine.Object.Destroy(view);
            UnityEngine.Object.Destroy(session);
            Until(() => rewinding.IsCompleted, "what was awaited ends");
            Help.Check(rewinding.Error() == "closed", "as the session does");
            Say("replayed, undone, branched, cancelled");
        }

        static T Ended<T>(T task) where T : System.Threading.Tasks.Task
        {
            Until(() => task.IsCompleted, "a task ends");
            return task;
        }

        /// <summary>A game that starts from a picture, and the offers for its next turn, with a server that has both.</summary>
        public static void FromPicture(string address)
        {
            var file = new byte[] { 0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a };
            var host = new GameObject("game");
            AnimeGamerSession session = host.AddComponent<AnimeGamerSession>();
            session.address = address;
            string[] offers = null;
            session.onOffers.AddListener(each => offers = each);
            System.Threading.Tasks.Task<Game> starting = session.StartFromPictureAsync(file, "gently wave");
            Until(() => starting.IsCompleted, "the game is open");
            Help.Check(session.Game == starting.Get() && session.Game.Seen.Motion == "run", "what was seen is said");
            Until(() => offers != null && offers.Length == 1, "an offer comes");
            string[] first = offers;
            session.Say(offers[0]);
            Until(() => session.Game.Turns == 1 && offers != first && offers.Length == 1, "the next turn has another offer");
            starting = session.StartFromPictureAsync(new byte[1], "gently wave");
            Until(() => starting.IsCompleted, "it is answered");
            Help.Check(starting.Error() == "picture" && session.Game.Turns == 1, "what is no picture leaves the game");
            UnityEngine.Object.Destroy(session);
            Say("from a picture");
        }

        /// <summary>A session with a server of its own, which dies between two turns.</summary>
        public static void WithServer(string command, string arguments, string options, string folder)
        {
            var host = new GameObject("game");
            ServerProcess server = host.AddComponent<ServerProcess>();
            server.command = command;
            server.arguments = arguments;
            server.options = options;
            server.folder = folder;
            Help.Check(!server.Running, "none is started before the fields are set");
            StubLoop.Frame();
            Help.Check(server.Running, "it is started in the next frame");
            server.enabled = false;
            Help.Check(!server.Running, "the server ends when its component is disabled");
            server.enabled = true;
            Help.Check(server.Running, "and is started again when it is enabled");
            AnimeGamerSession session = host.AddComponent<AnimeGamerSession>();
            session.server = server;
            System.Threading.Tasks.Task<Done> turn = session.SayAsync("Mirel walks.");
            Until(() => turn.IsCompleted, "the first turn is over");
            Help.Check(turn.Get().Turns == 1 && server.Running, "the first turn is done");
            string address = server.Address.Result;
            Kill(server);
            Until(() => !server.Running, "the server has died");
            turn = session.SayAsync("Mirel waves.");
            Until(() => turn.IsCompleted, "the second turn is over");
            Help.Check(turn.Get().Turns == 2 && server.Address.Result != address, "the game goes on with another server");
            UnityEngine.Object.Destroy(session);
            UnityEngine.Object.Destroy(server);
            Help.Check(!server.Running, "the server ends with its component");
            Say("a server that died was started again");
        }

        static void Kill(ServerProcess server)
        {
            object launcher = Field(server, "_launcher");
            ((System.Diagnostics.Process)Field(launcher, "_process")).Kill();
        }

        internal static object Field(object of, string name)
        {
            return of.GetType().GetField(name, BindingFlags.NonPublic | BindingFlags.Instance).GetValue(of);
        }

        static void Play(string address, SavedGame saved, bool instead)
        {
            Lifetime.CloseAll();
            var host = new GameObject("game");
            AnimeGamerSession session = host.AddComponent<AnimeGamerSession>();
            session.address = address;
            session.savedGame = saved;
            string error = "";
            session.onError.AddListener(each => error += each.Code + " ");
            TurnView view = host.AddComponent<TurnView>();
            view.session = session;
            if (!instead)
            {
                foreach (string sentence in new[] { "Mirel walks.", "Mirel waves.", "Mirel sits." }) Ended(session.SayAsync(sentence)).Get();
                Until(() => !session.Display.Playing, "the last clip was played");
            }
            else
            {
                Until(() => view.Texture != null, "the last clip is shown again at once");
                session.Say("Tofi jumps.");
                Until(() => saved.Turns == 4, "what is said meanwhile is played after it");
                session.Say("Tofi dances.");
                session.Say("Tofi flies.");
                Until(() => error == "turn_running ", "a second turn is refused");
                session.SayInstead("Tofi sits.");
                Until(() => saved.Turns == 5 && !session.Busy, "the turn is over");
                Help.Check(error == "turn_running cancelled ", "the first was cancelled, found: " + error);
            }
            TurnView late = host.AddComponent<TurnView>();
            late.session = session;
            StubLoop.Frame();
            Help.Check(late.Texture != null && Equal(late.Texture.Applied, session.Display.Picture.Data),
                "a view that is added late shows the picture at once");
            Help.Check(Equal(view.Texture.Applied, late.Texture.Applied), "both show the same picture");
            foreach (MonoBehaviour each in new MonoBehaviour[] { late, view, session }) UnityEngine.Object.Destroy(each);
            Help.Check(Texture2D.Alive == 0, "all textures are destroyed");
            Help.Check(LiveClients.Count == 0, "all clients are closed");
        }

        internal static void Until(Func<bool> condition, string claim)
        {
            for (int waited = 0; waited < Help.LimitMs; waited += 8)
            {
                StubLoop.Frame();
                if (condition()) return;
                Thread.Sleep(8);
            }
            Help.Check(false, claim);
        }

        static bool Equal(byte[] a, byte[] b)
        {
            if (a.Length != b.Length) return false;
            for (int i = 0; i < a.Length; i++)
                if (a[i] != b[i]) return false;
            return true;
        }

        static void Say(string line) { Console.WriteLine(line); }
    }
}
