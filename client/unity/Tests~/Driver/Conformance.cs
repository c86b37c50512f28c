using System;
using System.Collections.Generic;
using System.Globalization;
using System.Threading;

namespace AnimeGamer.Driver
{
    /// <summary>The driver of the conformance suite: commands on standard input, one line of answer to each
    /// (client/conformance/README.md).</summary>
    sealed class Conformance
    {
        readonly ShownClips _display = new ShownClips();
        AnimeGamerClient _client;
        Game _game;
        Turn _turn;
        List<TurnEvent> _events;
        uint _hash;
        readonly List<string> _pictures = new List<string>();
        Answer[] _answers = new Answer[0];
        string _address, _password = "", _token, _understood = "";
        double _timeout;

        public void Run()
        {
            for (string line = Console.ReadLine(); line != null; line = Console.ReadLine())
            {
                string answer;
                try
                {
                    string[] words = line.Split(new[] { ' ' }, 2);
                    answer = Answer(words[0], words.Length > 1 ? words[1] : "");
                }
                catch (AnimeGamerException error)
                {
                    _answers = error.Answers;
                    answer = "error " + error.Code + " " + error.Message;
                }
                Console.WriteLine(answer.Replace('\n', ' '));
                Console.Out.Flush();
            }
            _client?.Dispose();
        }

        string Answer(string verb, string rest)
        {
            string[] words = rest.Split(' ');
            switch (verb)
            {
                case "new":
                    _address = words[0];
                    _timeout = double.Parse(words[1], CultureInfo.InvariantCulture);
                    _password = words.Length > 2 ? words[2] : "";
                    Renew();
                    return "ok";
                case "connect":
                    Welcome welcome = _client.ConnectAsync().Get();
                    return "ok " + welcome.Bundle + " " + welcome.State;
                case "words": return "ok" + Words(_client.ConnectAsync().Get());
                case "understood": return ("ok " + _understood).TrimEnd();
                case "answers": return "ok" + string.Concat(Array.ConvertAll(_answers, Line));
                case "open": return Opened(_client.OpenAsync(long.Parse(rest)).Get());
                case "resume":
                    Renew();
                    return Opened(_client.ResumeAsync(rest.Length > 0 ? rest : _token).Get());
                case "open-picture":
                    byte[] picture = System.IO.File.ReadAllBytes(words[1]);
                    return Opened(_client.OpenFromPictureAsync(picture, After(After(rest)), long.Parse(words[0])).Get())
                        + " " + _game.Seen.Text;
                case "offers":
                    _client.ConnectAsync().Get();  // what the server has sent before this answer has been read then
                    return "ok " + _game.Offers.Length + " " + (_game.Offers.Length > 0 ? _game.Offers[0] : "");
                case "wish":
                    string[] wished = _game.WishAsync(rest.Split(new[] { '|' }, StringSplitOptions.RemoveEmptyEntries)).Get();
                    return "ok " + wished.Length + " " + (wished.Length > 0 ? wished[0] : "");
                case "display": return _display.Answer(words);
                case "turn": return End(Say(rest), new List<TurnEvent>());
                case "begin":
                    Begin(Say(rest));
                    return "ok";
                case "rest": return End(_turn, _events);
                case "replay": return End(_game.Replay(long.Parse(words[0]), long.Parse(words[1])), new List<TurnEvent>());
                case "cancel": return "ok " + (_game.CancelAsync().Get() ? 1 : 0);
                case "rewind":
                    _game.RewindAsync(long.Parse(rest)).Wait();
                    return "ok " + _game.Turns;
                case "branch": return Opened(_game.BranchAsync(long.Parse(rest)).Get());
                case "list":
                    List<LoggedTurn> log = _game.ListAsync().Get();
                    return "ok " + log.Count + " " + (log.Count > 0 ? log[log.Count - 1].Instruction : "");
                case "end": _game.CloseAsync().Wait(); return "ok";
                case "close": _client.Dispose(); return "ok";
                default: return "error unknown " + verb;
            }
        }

        void Renew()
        {
            _client?.Dispose();
            _client = new AnimeGamerClient(new ClientOptions { Address = _address, Password = _password, TimeoutSeconds = _timeout, Flip = false });
        }

        static string Words(Welcome welcome)
        {
            string text = "";
            foreach (string[] list in new[]
                { welcome.People, welcome.Motions, welcome.Places, welcome.Hours, welcome.Clothes, welcome.Manners })
                if (list.Length > 0) text += " " + string.Join(",", list);
            return text;
        }

        static string Line(Understood read)
        {
            return read.Notice == null ? read.Text : read.Text + " [" + string.Join(",", read.Unknown) + "] " + read.Notice;
        }

        static string Line(Answer told)
        {
            return " " + told.Code + ":" + told.Value + ":" + string.Join(",", told.People) + ":" + string.Join(",", told.Words);
        }

        string Opened(Game game)
        {
            _game = game;
            _token = game.Token;
            return "ok " + game.Turns;
        }

        static string After(string rest) { return rest.Substring(rest.IndexOf(' ') + 1); }

        Turn Say(string rest) { return _game.Say(After(rest), rest.Substring(0, rest.IndexOf(' '))); }

        void Begin(Turn turn)
        {
            var events = new List<TurnEvent>();
            StartPictures();
            events.Add(Next(turn));
            if (events[0].Error != null) throw events[0].Error;
            _turn = turn;
            _events = events;
        }

        TurnEvent Next(Turn turn)
        {
            TurnEvent next;
            while (!turn.TryRead(out next)) Thread.Sleep(1);
            return next;
        }

        void StartPictures()
        {
            _hash = 2166136261;
            _pictures.Clear();
        }

        static uint Hash(uint hash, byte[] data, int size)
        {
            for (int i = 0; i < size; i++) hash = (hash ^ data[i]) * 16777619;
            return hash;
        }

        string End(Turn turn, List<TurnEvent> events)
        {
            if (events.Count == 0) StartPictures();
            while (events.Count == 0 || events[events.Count - 1].Kind != TurnEventKind.Done)
            {
                TurnEvent next = Next(turn);
                if (next.Error != null) throw next.Error;
                if (next.Frame != null)
                {
                    _pictures.Add(next.Frame.Turn + "." + next.Frame.Index);
                    _hash = Hash(_hash, next.Frame.Data, next.Frame.PictureBytes);
                    next.Frame.Release();
                }
                events.Add(next);
            }
            var numbers = new List<long>();
            bool replayed = false, whole = true;
            _understood = "";
            foreach (TurnEvent each in events)
            {
                if (each.Kind == TurnEventKind.Accepted) replayed = each.Accepted.Replayed;
                if (each.Kind == TurnEventKind.Understood)
                {
                    _understood = Line(each.Understood);
                    _answers = each.Understood.Answers;
                }
                if (each.Kind == TurnEventKind.Restarting || each.Kind == TurnEventKind.Understood) continue;
                if (numbers.Count > 0) whole = whole && each.Seq == numbers[numbers.Count - 1] + 1;
                numbers.Add(each.Seq);
            }
            string seqs = whole ? numbers[0] + "-" + numbers[numbers.Count - 1] : string.Join(",", numbers);
            return "done turns=" + _game.Turns + " seq=" + seqs + " pictures=" + string.Join(",", _pictures) + " hash=" + _hash.ToString("x8")
                + " replayed=" + (replayed ? 1 : 0);
        }
    }
}
