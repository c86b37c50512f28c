using System;
using System.Collections.Generic;
using System.Threading;

namespace AnimeGamer.Driver
{
    static class Scenarios
    {
        static readonly string[] Texts = { "Mirel waves gently.", "Bixo jumps quickly in the city at night.", "Tofi sits." };

        public static AnimeGamerClient Connect(string address, double timeout = 30)
        {
            return new AnimeGamerClient(new ClientOptions { Address = address, TimeoutSeconds = timeout });
        }

        /// <summary>Turns, cancel, "say this instead", rewind, branch, list, export, replay, resume, errors, close.</summary>
        public static void Play(string address)
        {
            string token;
            var truth = new List<List<uint>>();
            using (AnimeGamerClient client = Connect(address))
            {
                Welcome welcome = client.ConnectAsync().Get();
                Help.Check(welcome.State == "ready" && welcome.Frames == 17, "welcome says what is played");
                Help.Check(client.StatusAsync().Get().State == "ready", "status is ready");
                Help.Check(client.PingAsync().Get() < 30, "ping is answered");
                Game game = client.OpenAsync(3).Get();
                token = game.Token;
                foreach (string text in Texts) truth.Add(game.Say(text).Pictures());
                Help.Check(game.Turns == 3 && game.Character.Stamina >= 0, "the game has three turns");
                Say("three turns");

                Turn turn = game.Say("Zelki dances.");
                turn.Until(TurnEventKind.Progress);
                turn.Cancel();
                Help.Check(turn.Completion.Error() == "cancelled", "a cancelled turn ends so");
                Turn early = game.Say("Zelki dances.");
                early.Cancel();
                Help.Check(early.Completion.Error() == "cancelled", "a turn that is cancelled at once ends so, too");
                Say("cancel");

                Turn first = game.Say("Zelki dances.");
                first.Until(TurnEventKind.State);
                Turn second = game.SayInstead("Dovan runs."), third = game.SayInstead("Dovan walks.");
                Help.Check(first.Completion.Error() == "cancelled" && second.Completion.Error() == "cancelled"
                    && !first.TryRead(out TurnEvent _), "what was said before is cancelled");
                third.Pictures();
                List<LoggedTurn> log = game.ListAsync().Get();
                Help.Check(log.Count == 4 && log[3].Instruction == "Dovan walks.", "only the last of them counts");
                Say("say instead");

                Turn running = game.Say("Zelki dances.");
                Turn refused = game.Say("Zelki flies.");
                Help.Check(refused.Completion.Error() == "turn_running", "two turns at once are refused");
                running.Pictures();
                Help.Check(game.Say(new string('a', 4000)).Completion.Error() == "instruction", "text too long");
                Help.Check(game.Say(new string('a', 100000)).Completion.Error() == "too_large", "text far too long");
                Help.Check(game.Say("\ud800").Completion.Error() == "bad_field", "text that is not Unicode");
                Help.Check(game.Say("").Completion.Error() == "instruction", "empty text");
                Help.Check(game.Replay(77).Completion.Error() == "no_such_turn", "no such turn");
                Help.Check(client.ResumeAsync("nobody's").Error() == "unknown_session", "unknown token");
                Say("refusals");

                game.RewindAsync(2).Wait();
                Help.Check(game.Turns == 2, "rewound to two turns");
                Help.Check(Help.Same(game.Say(Texts[2]).Pictures(), truth[2]), "a turn after a rewind is the same");
                Game other = game.BranchAsync(1).Get();
                Help.Check(Help.Same(other.Say(Texts[1]).Pictures(), truth[1]), "a turn of a branch is the same");
                Exported exported = game.ExportAsync().Get();
                Help.Check(exported.Turns == 3 && exported.Files.Length > 3, "the game is exported");
                other.CloseAsync().Wait();
                other.CloseAsync().Wait();
                Help.Check(other.Say("Tofi sits.").Completion.Error() == "session_closed", "a closed game is over");
                Say("rewind, branch, export, close");
                game.Say("Mirel flies.").Until(TurnEventKind.State);
            }
            using (AnimeGamerClient client = Connect(address))
            {
                Game game = client.ResumeAsync(token).Get();
                if (game.RunningTurn != 0) Help.Check(game.RunningTurn == 4, "turn 4 runs on without its client");
                game.Replay(4).Pictures();
                Help.Check(Help.Same(game.Replay(1).Pictures(), truth[0]), "a replayed turn is the same");
                var closing = game.ExportAsync((done, all) => client.Dispose());
                Help.Check(closing.Error() == "closed", "a client may be closed within a callback");
                Help.Check(game.Say("Tofi sits.").Completion.Error() == "closed", "a call after Dispose says so");
                client.Dispose();
                Say("resume, replay, closed");
            }
            Help.Check(LiveClients.Count == 0, "no client is left");
        }

        /// <summary>Says "kill the server" in the second turn; whoever started it kills and starts it again.</summary>
        public static void Restart(string address)
        {
            using (AnimeGamerClient client = Connect(address, 60))
            {
                Game game = client.OpenAsync(3).Get();
                game.Say(Texts[0]).Pictures();
                Turn turn = game.Say(Texts[1]);
                var pictures = new List<uint>();
                List<TurnEvent> events = turn.Until(TurnEventKind.Progress, pictures);
                Say("kill the server");
                turn.Pictures(events, pictures);
                Help.Check(game.Turns == 2, "the game has two turns");
                List<uint> again = game.Replay(2).Pictures();
                Help.Check(Help.Same(again, pictures), "and the same pictures");
                Say("restart");
            }
        }

        /// <summary>Prints the server's bundle, or the error of connecting to what is no game server.</summary>
        public static void Reach(string address, double timeout)
        {
            try
            {
                using (AnimeGamerClient client = Connect(address, timeout)) Say("connected to " + client.ConnectAsync().Get().Bundle);
            }
            catch (AnimeGamerException error)
            {
                Say(error.Code + ": " + error.Message);
            }
        }

        /// <summary>A game with keys; then those who are refused: what each is told. Keys: texts or files.</summary>
        public static void Keys(string address, string serverKey, string mine, string stranger)
        {
            var options = new ClientOptions { Address = address, ServerKey = serverKey, SecretKey = mine };
            using (var client = new AnimeGamerClient(options))
            {
                Game game = client.OpenAsync(3).Get();
                List<uint> pictures = game.Say(Texts[0]).Pictures();
                Help.Check(Help.Same(game.Replay(1).Pictures(), pictures), "a replayed turn is the same");
                Help.Check(client.StatusAsync().Get().State == "ready", "the control connection has keys, too");
            }
            Say("a game with keys");
            options.SecretKey = stranger;
            Say(Refused(options));
            options.TimeoutSeconds = 3;
            options.SecretKey = mine;
            options.ServerKey = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
            Say(Refused(options));
            options.SecretKey = options.ServerKey = "";
            Say(Refused(options));
        }

        /// <summary>What is no key, or only one of two, is refused before anything is sent; its text repeats no secret.</summary>
        public static void BadKeys()
        {
            // The pair of ZeroMQ's manual (zmq_curve).
            const string server = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", secret = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs";
            foreach (string[] bad in new[] { new[] { server, "" }, new[] { "", secret }, new[] { server, "no key" },
                new[] { "#" + server, secret }, new[] { server.Substring(1), secret }, new[] { new string('#', 40), secret },
                new[] { server, secret.Substring(1) + "~" } })
            {
                string said = Refused(new ClientOptions { ServerKey = bad[0], SecretKey = bad[1] });
                Help.Check(bad[1] == "" || !said.Contains(bad[1]), "no secret is in it");
                Say(said);
            }
        }

        static string Refused(ClientOptions options)
        {
            try
            {
                using (var client = new AnimeGamerClient(options)) client.ConnectAsync().Get();
                return "not refused";
            }
            catch (AnimeGamerException error)
            {
                return error.Code + ": " + error.Text + "; " + error.Do;
            }
        }

        /// <summary>A server of this program's own.</summary>
        public static void Launch(string command, string arguments, string options)
        {
            var server = new ServerLauncher(command, arguments, options);
            try
            {
                using (AnimeGamerClient client = Connect(server.Address.Get())) client.OpenAsync(3).Get().Say(Texts[0]).Pictures();
                Help.Check(server.Running, "it runs until it is disposed");
                server.Dispose();
                Say(server.Running ? "it goes on" : "launched, then ended");
            }
            catch (AnimeGamerException error)
            {
                server.Dispose();
                Say(error.Code + ": " + error.Text.Replace('\n', ' '));
            }
        }

        static void Say(string line)
        {
            Console.WriteLine(line);
            Console.Out.Flush();
        }
    }
}
