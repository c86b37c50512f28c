using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace AnimeGamer
{
    /// <summary>One request in progress: what to send on each connection, and what to do with each answer. Knows neither
    /// sockets nor the clock. All members are used under the client's lock.</summary>
    abstract class Call
    {
        public readonly SessionInfo Session;

        /// <summary>The number of the request, for its `id`; of the newest if it was sent again.</summary>
        public long RequestId;

        // Times of ProtocolState's clock, in seconds; RetryAt is negative if nothing is to be sent again.
        public double HeardAt, SentAt, RetryAt = -1;
        public bool Sent, Reconnected;
        public AnimeGamerException Refused;

        protected Call(SessionInfo session) { Session = session; }

        public bool Ended { get; protected set; }

        /// <summary>As long as the server answers pings, this call does not time out.</summary>
        public virtual bool MayBeSlow { get { return false; } }

        /// <summary>An event has arrived, so that a refusal is of its replay.</summary>
        public virtual bool Begun { get { return false; } }

        /// <summary>What to send; null: nothing. again: it was sent on an earlier connection.</summary>
        public abstract Request ToSend(bool again);

        /// <summary>Process an answer; returns what to send in turn, or null. Takes `frame` over by setting it null.</summary>
        public abstract Request OnMessage(Header header, ref Frame frame);

        /// <summary>Process the server's refusal; returns what to send in turn. If that is null the call has ended.</summary>
        public virtual Request OnError(AnimeGamerException error)
        {
            Fail(error);
            return null;
        }

        /// <summary>End the call, unless it has ended.</summary>
        public abstract void Fail(AnimeGamerException error);
    }

    delegate T ReadAnswer<T>(Header header);

    /// <summary>A request with one answer of type `answer`.</summary>
    sealed class Ask<T> : Call
    {
        readonly Promise<T> _result = new Promise<T>();
        Request _request;
        readonly string _answer;
        readonly ReadAnswer<T> _read;

        /// <summary>A code that is taken as an answer; the result is then default(T).</summary>
        public string AlsoFine;

        /// <summary>After an answer, what to ask next; null from it: that was the last one.</summary>
        public Func<Request> Next;
        public bool Slow;

        public Ask(Request request, string answer, ReadAnswer<T> read, SessionInfo session = null) : base(session)
        {
            _request = request;
            _answer = answer;
            _read = read;
        }

        public Task<T> Result { get { return _result.Task; } }
        public override bool MayBeSlow { get { return Slow; } }

        public override Request ToSend(bool again) { return _request; }

        public override Request OnMessage(Header header, ref Frame frame)
        {
            if (!header.Type.Is(_answer)) return null;
            T value = _read(header);
            Request next = Next?.Invoke();
            if (next == null) End(value);
            else _request = next;
            return next;
        }

        public override Request OnError(AnimeGamerException error)
        {
            if (error.Code == AlsoFine) End(default(T));
            else Fail(error);
            return null;
        }

        public override void Fail(AnimeGamerException error)
        {
            if (Ended) return;
            Ended = true;
            _result.Fail(error);
        }

        /// <summary>End the Task without an error. What was sent is still answered, as the game may have changed by it.</summary>
        public void Cancel(CancellationToken cancel)
        {
            if (Ended) return;
            Ended = !Sent;
            _result.Cancel(cancel);
        }

        void End(T value)
        {
            Ended = true;
            _result.Set(value);
        }
    }

    /// <summary>The events of one turn, in order, each once, however often the connection or the server is lost.</summary>
    sealed class TurnCall : Call
    {
        readonly Promise<Done> _done = new Promise<Done>();
        readonly Queue<TurnEvent> _events = new Queue<TurnEvent>(64);
        readonly Request _request;
        readonly bool _new;
        string _turnId;
        bool _wasSent, _begun, _understood;
        long _seq, _gapAfter = -2;
        Character _character;
        bool _hasState;

        public long Turn;

        /// <summary>Nobody reads it any more; it is cancelled, and followed to its end.</summary>
        public bool Abandoned;

        /// <summary>A cancel was sent for it; another follows if the first came before its first event.</summary>
        public bool CancelWanted;

        /// <summary>A cancel was sent for it after its first event had come, so that it cannot have come too early.</summary>
        public bool CancelSentInTime;

        /// <summary>turnId: null where it is not known yet.</summary>
        public TurnCall(SessionInfo session, Request request, string turnId, long turn = 0, long afterSeq = -1) : base(session)
        {
            _request = request;
            _turnId = turnId;
            _new = turn == 0;
            Turn = turn;
            _seq = afterSeq;
        }

        public Task<Done> Completion { get { return _done.Task; } }
        public override bool MayBeSlow { get { return Turn != 0; } }
        public override bool Begun { get { return _begun; } }

        /// <summary>The next event, if there is one. Any thread, without the client's lock.</summary>
        public bool TryRead(out TurnEvent next)
        {
            lock (_events)
            {
                if (_events.Count > 0)
                {
                    next = _events.Dequeue();
                    return true;
                }
            }
            next = new TurnEvent();
            return false;
        }

        public void Abandon()
        {
            Abandoned = true;
            while (TryRead(out TurnEvent unread)) unread.Frame?.Release();
        }

        public override Request ToSend(bool again)
        {
            if (Abandoned && !_wasSent)
            {
                Fail(Cancelled());
                return null;
            }
            _wasSent = true;
            if (Turn != 0) return Replay(Turn);
            return Abandoned && again ? Replay(Session.Turns + 1) : _request;
        }

        public override Request OnMessage(Header header, ref Frame frame)
        {
            bool understood = header.Type.Is("understood"), done = header.Type.Is("done");
            bool unnumbered = understood || header.Type.Is("restarting");
            if (header.Turn == 0 || (header.Seq < 0 && !unnumbered) || (understood && _understood)) return null;
            Turn = header.Turn;
            _begun = true;
            _understood |= understood;  // a replay sends it again
            if (unnumbered) header.Seq = _seq;
            else if (header.Seq > _seq + 1)
            {
                if (_gapAfter == _seq && !done) return null;
                _gapAfter = _seq;  // asked for once, as the server may drop the same again; and once more after `done`
                return Replay(Turn);
            }
            else if (header.Seq <= _seq && !done) return null;
            if (TurnEvent.Read(header, frame, out TurnEvent next))
            {
                if (next.Frame != null) frame = null;
                Add(next);
            }
            if (!unnumbered && header.Seq > _seq) _seq = header.Seq;
            return null;
        }

        public override Request OnError(AnimeGamerException error)
        {
            if (error.Code == "no_such_turn" && _new && Turn != 0 && !Abandoned)
            {
                Turn = 0;  // the server has lost it: the same turn_id plays it again, and what was seen is skipped
                return _request;
            }
            Fail(Abandoned && error.Code == "no_such_turn" ? Cancelled() : error);
            return null;
        }

        /// <summary>What to ask before the rest of a turn on a new connection: whose turn has its number now; null: nothing.
        /// A server that was killed keeps no turn that was not done, and who else has the token may have played since.</summary>
        public Request ToCheck()
        {
            return Turn == 0 || _turnId == null ? null : Session.Request("list").With("before", Turn + 1);
        }

        /// <summary>Process the answer to ToCheck: ends with an error if the number is another client's turn.</summary>
        public void OnListed(MsgView fields)
        {
            var page = new List<LoggedTurn>();
            LoggedTurn.ReadPage(fields, page);
            foreach (LoggedTurn other in page) Compare(other.Turn, other.TurnId);
        }

        /// <summary>As OnListed, for the `opened` of its session.</summary>
        public void OnOpened(MsgView fields)
        {
            MsgView running = fields.Find("running");
            if (running.Kind == MsgKind.Map && Compare(running.Int("turn", 1), running.Text("turn_id")))
                Session.Turns = fields.Int("turns", 0);
        }

        bool Compare(long turn, string turnId)
        {
            if (Ended || turn != Turn || _turnId == null || turnId == _turnId) return false;
            Fail(new AnimeGamerException("no_such_turn",
                "the server lost turn " + Turn + ", and another client has since played a turn with that number",
                "read the game's list, and play the turn again if it still fits"));
            return true;
        }

        public override void Fail(AnimeGamerException error)
        {
            if (Ended) return;
            Ended = true;
            Put(new TurnEvent { Kind = TurnEventKind.Error, Turn = Turn, Seq = _seq, Data = error });
            _done.Fail(error);
        }

        void Add(TurnEvent next)
        {
            if (next.Accepted != null) _turnId = next.Accepted.TurnId;
            if (next.State != null)
            {
                _character = next.State.Character;
                _hasState = true;
            }
            Put(next);
            if (next.Done == null) return;
            Ended = true;
            Session.Turns = next.Done.Turns;
            if (_hasState && next.Turn == next.Done.Turns) Session.Character = _character;
            _done.Set(next.Done);
        }

        void Put(TurnEvent next)
        {
            if (Abandoned) next.Frame?.Release();
            else
                lock (_events) _events.Enqueue(next);
        }

        Request Replay(long turn) { return Session.Request("replay", turn).With("after_seq", _seq); }

        static AnimeGamerException Cancelled() { return new AnimeGamerException("cancelled", "the turn was cancelled"); }
    }
}
