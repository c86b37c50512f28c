using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace AnimeGamer
{
    /// <summary>One game on a server. Use it from any thread; no method waits.</summary>
    public sealed class Game
    {
        readonly AnimeGamerClient _client;
        readonly SessionInfo _session;
        readonly List<TurnCall> _turns = new List<TurnCall>();
        readonly List<Ask<bool>> _cancels = new List<Ask<bool>>();
        readonly Queue<Call> _waiting = new Queue<Call>();

        internal Game(AnimeGamerClient client, SessionInfo session)
        {
            _client = client;
            _session = session;
        }

        public string Id { get { return _session.Id; } }

        /// <summary>The game's secret: keep it, and ResumeAsync(token) continues the game, also after a restart.</summary>
        public string Token { get { return _session.Token; } }
        public long Seed { get { return _session.Seed; } }

        /// <summary>Finished turns, as far as this client knows.</summary>
        public long Turns { get { lock (_client.Gate) return _session.Turns; } }

        /// <summary>The values after the last finished turn.</summary>
        public Character Character { get { lock (_client.Gate) return _session.Character; } }

        /// <summary>The turn that was running when the game was resumed; 0 if none was. Replay follows it.</summary>
        public long RunningTurn { get { return _session.RunningTurn; } }

        /// <summary>What the server saw in the picture that the game was opened with; null without one, and if the server
        /// recognised nobody.</summary>
        public Understood Seen { get { return _session.Seen; } }

        /// <summary>Instructions for the next turn that the server answers at once; empty where it does not play ahead. To offer
        /// them to a player. The array is another one whenever they change.</summary>
        public string[] Offers { get { return _client.OffersOf(_session); } }

        /// <summary>
        /// Play the next turn. turnId: sending the same id twice plays one turn; null: a new one. deadlineSeconds: the
        /// server ends the turn after so long, time in its queue included.
        /// </summary>
        public Turn Say(string instruction, string turnId = null, double? deadlineSeconds = null)
        {
            string id = turnId ?? Guid.NewGuid().ToString("N");
            return StartTurn(new TurnCall(_session, _session.Request("turn")
                .With("instruction", instruction ?? "")
                .With("turn_id", id)
                .With("deadline_s", deadlineSeconds), id));
        }

        /// <summary>
        /// Say what the next turn may be, the likeliest first, at most 16; while a turn runs, what the one after it may be. A
        /// server that plays ahead makes these ready, so that they start at once: those in the result, as it would play them.
        /// Replaces the earlier wish.
        /// </summary>
        public Task<string[]> WishAsync(string[] instructions, CancellationToken cancel = default(CancellationToken))
        {
            return Start(new Ask<string[]>(_session.Request("wish").With("instructions", instructions), "wished",
                header => header.Fields.Texts("instructions"), _session), cancel);
        }

        /// <summary>
        /// Say this instead: cancel the running turn, and play this one as soon as the server has ended it. No event of
        /// the old one can be read any more; its Completion fails with `cancelled`, or has a result if it was faster.
        /// </summary>
        public Turn SayInstead(string instruction, double? deadlineSeconds = null)
        {
            lock (_client.Gate)
            {
                foreach (TurnCall turn in _turns)
                    if (!turn.Ended && !turn.Abandoned) Abandon(turn);
                return Say(instruction, null, deadlineSeconds);
            }
        }

        /// <summary>The events of a finished turn again, with the same bytes; or the rest of the running turn's.</summary>
        public Turn Replay(long turn, long afterSeq = -1)
        {
            string id = turn == _session.RunningTurn ? _session.RunningTurnId : null;
            return StartTurn(new TurnCall(_session, null, id, turn, afterSeq));
        }

        /// <summary>Stop the running turn: it ends with the error `cancelled`. False if none was running.</summary>
        public Task<bool> CancelAsync(CancellationToken cancel = default(CancellationToken))
        {
            lock (_client.Gate)
            {
                if (cancel.IsCancellationRequested) return Task.FromCanceled<bool>(cancel);
                Ask<bool> call = SendCancel();
                foreach (TurnCall turn in _turns) WantCancel(turn);
                return call.Result;
            }
        }

        /// <summary>Delete the turns after this one; 0 deletes all.</summary>
        public Task RewindAsync(long turn, CancellationToken cancel = default(CancellationToken))
        {
            return Start(new Ask<bool>(_session.Request("rewind").With("turn", turn), "rewound", header =>
            {
                _session.Turns = header.Fields.Int("turns", 0);
                _session.Character = Character.Read(header.Fields.Map("character"));
                return true;
            }, _session), cancel);
        }

        /// <summary>A second game that shares the turns up to this one. seed: of its own; null: this game's.</summary>
        public Task<Game> BranchAsync(long turn, long? seed = null, CancellationToken cancel = default(CancellationToken))
        {
            return Start(new Ask<Game>(_session.Request("branch").With("turn", turn).With("seed", seed), "opened",
                header => new Game(_client, SessionInfo.Read(header)), _session), cancel);
        }

        /// <summary>All finished turns, the newest last.</summary>
        public Task<List<LoggedTurn>> ListAsync(CancellationToken cancel = default(CancellationToken))
        {
            var turns = new List<LoggedTurn>();
            bool more = false;
            return Start(new Ask<List<LoggedTurn>>(_session.Request("list"), "listed", header =>
            {
                var page = new List<LoggedTurn>();
                LoggedTurn.ReadPage(header.Fields, page);
                turns.InsertRange(0, page);
                more = header.Fields.Flag("more") && page.Count > 0;
                return turns;
            }, _session) { Next = () => more ? _session.Request("list").With("before", turns[0].Turn) : null }, cancel);
        }

        /// <summary>End the game for good: it cannot be resumed.</summary>
        public Task CloseAsync(CancellationToken cancel = default(CancellationToken))
        {
            return Start(new Ask<bool>(_session.Request("close"), "closed", _ => true, _session) { AlsoFine = "session_closed" }, cancel);
        }

        internal void Cancel(TurnCall turn)
        {
            lock (_client.Gate)
            {
                if (turn.Ended || turn.Abandoned) return;
                SendCancel();
                WantCancel(turn);
            }
        }

        Task<T> Start<T>(Ask<T> call, CancellationToken cancel)
        {
            return _client.Start(call, () => StartInOrder(call), cancel);
        }

        Turn StartTurn(TurnCall call)
        {
            lock (_client.Gate)
            {
                _turns.RemoveAll(turn => turn.Ended);
                _turns.Add(call);
                StartInOrder(call);
            }
            return new Turn(this, call);
        }

        // Send it now, or when the turns that nobody reads any more have ended.
        void StartInOrder(Call call)
        {
            lock (_client.Gate)
            {
                if (_client.Closed || (_waiting.Count == 0 && !MustWait()))
                {
                    _client.StartTurn(call);
                    return;
                }
                _waiting.Enqueue(call);
                _client.AddWaiting(this);
            }
        }

        // Start what waits, if it need not wait any more; returns whether nothing waits. Under the lock.
        internal bool StartWaiting()
        {
            if (MustWait()) return false;
            while (_waiting.Count > 0 && !MustWait())
            {
                Call call = _waiting.Dequeue();
                if (!call.Ended) _client.StartTurn(call);
            }
            return _waiting.Count == 0;
        }

        internal void FailWaiting(AnimeGamerException error)
        {
            while (_waiting.Count > 0) _waiting.Dequeue().Fail(error);
        }

        // Whether a turn that is to be cancelled still runs, or a cancel is unanswered: it would stop the next turn.
        bool MustWait()
        {
            bool wait = false;
            for (int i = 0; i < _turns.Count; i++)
            {
                TurnCall turn = _turns[i];
                if (!turn.CancelWanted || turn.Ended) continue;
                wait = true;
                if (!turn.Begun || turn.CancelSentInTime) continue;
                turn.CancelSentInTime = true;  // the first one came before the turn had begun
                SendCancel();
            }
            for (int i = _cancels.Count - 1; i >= 0; i--)
            {
                if (_cancels[i].Ended) _cancels.RemoveAt(i);
                else wait = true;
            }
            return wait;
        }

        void Abandon(TurnCall turn)
        {
            turn.Abandon();
            if (_waiting.Contains(turn)) turn.Fail(new AnimeGamerException("cancelled", "the turn was cancelled"));
            else if (!turn.CancelWanted)
            {
                SendCancel();
                WantCancel(turn);
            }
        }

        void WantCancel(TurnCall turn)
        {
            if (turn.Ended) return;
            turn.CancelWanted = true;
            turn.CancelSentInTime = turn.Begun;
            _client.AddWaiting(this);
        }

        Ask<bool> SendCancel()
        {
            Ask<bool> call = CancelCall();
            _cancels.Add(call);
            _client.StartControl(call);
            return call;
        }

        Ask<bool> CancelCall()
        {
            return new Ask<bool>(_session.Request("cancel"), "cancelling", header => header.Fields.Flag("running"));
        }
    }

    /// <summary>One turn that is played: its events, as they arrive, and its end. Use it from any thread.</summary>
    public sealed class Turn
    {
        readonly Game _game;
        readonly TurnCall _call;

        internal Turn(Game game, TurnCall call)
        {
            _game = game;
            _call = call;
        }

        /// <summary>The turn's number in its game, from 1; 0 until the server has accepted it.</summary>
        public long Number { get { return _call.Turn; } }

        /// <summary>Whether no event will be added.</summary>
        public bool Ended { get { return _call.Ended; } }

        /// <summary>Ends with the turn: its Done, or its AnimeGamerException.</summary>
        public Task<Done> Completion { get { return _call.Completion; } }

        /// <summary>The next event, if one has arrived. Never waits and allocates nothing.</summary>
        public bool TryRead(out TurnEvent next) { return _call.TryRead(out next); }

        /// <summary>Stop the turn: it ends with the error `cancelled`, or is done if that was faster.</summary>
        public void Cancel() { _game.Cancel(_call); }
    }
}
