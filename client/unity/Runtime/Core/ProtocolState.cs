using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Globalization;

namespace AnimeGamer
{
    enum Phase { Down, Greeting, Ready }

    /// <summary>
    /// The client's side of the protocol on one address, without input or output: greeting, pings, time-outs, repeats.
    /// It outlives connections. All members are used under the client's lock.
    /// </summary>
    sealed class ProtocolState
    {
        const double RetrySeconds = 0.5, MinBackoff = 0.1, MaxBackoff = 2, MaxTick = 1;

        // The longest header that a server of version 1 takes, and what an id adds to one.
        const int MaxHeaderBytes = 64 * 1024, IdBytes = 32;
        static readonly string[] Temporary = { "starting" };
        static readonly string[] TemporaryAgain = { "starting", "draining", "busy", "rate_limited", "too_many_sessions" };
        static readonly string[] TemporaryInTurn =
            { "starting", "draining", "busy", "rate_limited", "too_many_sessions", "degraded", "turn_running" };

        readonly string _address;
        readonly double _timeout;
        readonly Request _hello;
        readonly Stopwatch _clock = Stopwatch.StartNew();
        readonly List<Call> _calls = new List<Call>();
        readonly Dictionary<long, Call> _callOfRequest = new Dictionary<long, Call>();
        readonly Dictionary<long, SessionInfo> _sessionOfResume = new Dictionary<long, SessionInfo>();
        readonly Dictionary<long, TurnCall> _callOfCheck = new Dictionary<long, TurnCall>();
        readonly List<string> _attached = new List<string>();
        readonly Dictionary<string, Offer> _offers = new Dictionary<string, Offer>();
        double _clockAt, _now, _connectAt, _backoff, _heardAt, _answerAt, _pingedAt;
        long _lastId, _helloId;
        string _trouble = "nothing answered", _whatToDo;

        /// <summary>hello: the first message on each connection; null where none is needed (control).</summary>
        public ProtocolState(string address, double timeoutSeconds, Request hello)
        {
            _address = address;
            _timeout = timeoutSeconds;
            _hello = hello;
        }

        public Phase Phase { get; private set; }
        public Welcome Welcome { get; private set; }

        /// <summary>Headers, and buffers or null, to send when the connection's handshake is done.</summary>
        public Queue<KeyValuePair<byte[], byte[]>> Outgoing { get; } = new Queue<KeyValuePair<byte[], byte[]>>();

        /// <summary>The newest offer of a session; one of no instructions for turn 0 if there is none.</summary>
        public Offer OfferOf(string session) { return _offers.TryGetValue(session, out Offer found) ? found : Offer.None; }

        /// <summary>Whether a call waits for something.</summary>
        public bool HasCalls { get { return _calls.Count > 0; } }

        /// <summary>Whether to open a connection now.</summary>
        public bool WantsConnection { get { return Phase == Phase.Down && _now >= _connectAt && _calls.Count > 0; } }

        /// <summary>Add a call. It ends with its answer, an error or the time-out.</summary>
        public void Start(Call call)
        {
            UpdateClock();
            if (_calls.Count == 0) _heardAt = _now;
            call.HeardAt = call.SentAt = _now;
            _calls.Add(call);
            if (Phase == Phase.Ready) SendCall(call);
            RemoveEnded();
        }

        public void Connecting()
        {
            _callOfRequest.Clear();
            _sessionOfResume.Clear();
            _callOfCheck.Clear();
            _attached.Clear();
            _offers.Clear();
            Outgoing.Clear();
            _backoff = Math.Min(Math.Max(MinBackoff, 2 * _backoff), MaxBackoff);
            _connectAt = _now + _backoff;
            _heardAt = _now;
            foreach (Call call in _calls) call.Reconnected = call.Sent;
            Phase = Phase.Greeting;
            if (_hello == null) Ready();
            else _helloId = Send(_hello);
        }

        /// <summary>The connection is gone; another is opened if a call needs it. A time-out then says why, and what to do
        /// where that is known.</summary>
        public void Lost(string trouble, string whatToDo = null)
        {
            _trouble = trouble;
            _whatToDo = whatToDo;
            Phase = Phase.Down;
        }

        /// <summary>End all calls with this error, and the connection.</summary>
        public void Fail(AnimeGamerException error)
        {
            Phase = Phase.Down;
            string text = error.Code == "closed" ? error.Text : _address + ": " + error.Text;
            foreach (Call call in _calls) call.Fail(new AnimeGamerException(error.Code, text, error.Do));
            RemoveEnded();
        }

        /// <summary>Process a message; sets `frame` null if it is taken over. Throws what makes the message unreadable.</summary>
        public void Received(Header header, ref Frame frame)
        {
            UpdateClock();
            _heardAt = _now;
            _whatToDo = null;
            long parent = header.Parent.Exists ? header.Parent.Digits() : -1;
            if (header.Type.Is("welcome"))
            {
                if (parent != _helloId || Phase != Phase.Greeting) return;
                Welcome = Welcome.Read(header.Fields);
                _trouble = "it stopped responding";
                Ready();
                return;
            }
            Call call = CallFor(header, parent);
            if (header.Type.Is("offer"))
            {
                if (header.Session.Exists) _offers[header.Session.AsText] = Offer.Read(header);
            }
            else if (_callOfCheck.TryGetValue(parent, out TurnCall asked))
            {
                _callOfCheck.Remove(parent);  // a refusal says nothing: what comes of the turn itself will tell
                if (header.Type.Is("listed")) asked.OnListed(header.Fields);
                asked.HeardAt = _now;
                if (!asked.Ended) FollowUp(asked, asked.ToSend(true));
            }
            else if (header.Type.Is("error")) OnError(call, header, parent);
            else
            {
                if (header.Type.Is("rewound") || header.Type.Is("accepted")) EndOffer(header);
                _answerAt = _now;
                _backoff = 0;
                if (header.Type.Is("opened") && header.Session.Exists) OnOpened(header);
                if (call != null)
                {
                    call.HeardAt = _now;
                    call.Refused = null;
                    FollowUp(call, call.OnMessage(header, ref frame));
                }
            }
            RemoveEnded();
        }

        /// <summary>Check the clock: ping, send late requests again, reconnect, or end calls whose time is up.</summary>
        public void Tick()
        {
            UpdateClock();
            for (int i = 0; i < _calls.Count; i++)
            {
                Call call = _calls[i];
                double heard = call.MayBeSlow ? Math.Max(call.HeardAt, _answerAt) : call.HeardAt;
                if (_now - heard >= _timeout) call.Fail(call.Begun || call.Refused == null ? TimedOut() : call.Refused);
            }
            RemoveEnded();
            if (Phase == Phase.Down || _calls.Count == 0) return;
            double silent = _now - _heardAt;
            if (silent >= _timeout / 2) Lost(Welcome == null && _hello != null
                ? "a program there accepts connections, but does not respond like a game server"
                : "no message for " + silent.ToString("0", CultureInfo.InvariantCulture) + " s");
            else if (Phase == Phase.Ready)
            {
                if (Math.Min(silent, _now - _pingedAt) >= _timeout / 4)
                {
                    _pingedAt = _now;
                    Send(new Request("ping"));
                }
                for (int i = 0; i < _calls.Count; i++)
                {
                    Call call = _calls[i];
                    bool overdue = call is TurnCall && _now - Math.Max(call.HeardAt, call.SentAt) >= _timeout;
                    if (overdue || (call.RetryAt >= 0 && _now >= call.RetryAt)) SendCall(call);
                }
            }
        }

        void Ready()
        {
            Phase = Phase.Ready;
            for (int i = 0; i < _calls.Count; i++) SendCall(_calls[i]);
            RemoveEnded();
        }

        // Send a call's request; before it, `open` the call's session on this connection.
        void SendCall(Call call)
        {
            if (call.Ended) return;
            Request request = call.ToSend(call.Reconnected);
            call.Sent = true;
            call.SentAt = _now;
            call.RetryAt = -1;
            if (request == null) return;
            if (_hello != null && call.Session != null && !_attached.Contains(call.Session.Id))
            {
                Attach(call.Session.Id);
                long resume = Send(new Request("open").With("token", call.Session.Token));
                _sessionOfResume[resume] = call.Session;
            }
            Request check = call.Reconnected ? (call as TurnCall)?.ToCheck() : null;
            // A `replay` of another client's turn would take that turn's events, or keep this game's next turn waiting.
            if (check != null) _callOfCheck[Send(check)] = (TurnCall)call;
            else FollowUp(call, request);
        }

        void FollowUp(Call call, Request request)
        {
            if (request == null) return;
            try
            {
                call.RequestId = Send(request);
                _callOfRequest[call.RequestId] = call;
            }
            catch (AnimeGamerException error)
            {
                call.Fail(error);
            }
        }

        long Send(Request request)
        {
            byte[] header = request.Encode((++_lastId).ToString(CultureInfo.InvariantCulture));
            int most = Welcome == null ? MaxHeaderBytes : Welcome.HeaderBytes;
            if (header.Length + IdBytes > most)  // a server can tell nobody whose header was too long
                throw new AnimeGamerException("too_large", "`" + request.Type + "` is too long to be sent; found "
                    + header.Length + " bytes, expected at most " + (most - IdBytes), "shorten its text");
            Outgoing.Enqueue(new KeyValuePair<byte[], byte[]>(header, request.Buffer));
            return _lastId;
        }

        // The session's next turn, or a rewind, ends an offer; a replay of an older turn does not.
        void EndOffer(Header header)
        {
            if (header.Session.Exists && (header.Turn == 0 || header.Turn == OfferOf(header.Session.AsText).Turn))
                _offers.Remove(header.Session.AsText);
        }

        void OnOpened(Header header)
        {
            Attach(header.Session.AsText);
            foreach (Call call in _calls)
                if (call is TurnCall turn && header.Session.Is(turn.Session.Id)) turn.OnOpened(header.Fields);
        }

        void Attach(string session)
        {
            if (!_attached.Contains(session)) _attached.Add(session);
        }

        void RemoveEnded()
        {
            for (int i = _calls.Count - 1; i >= 0; i--)
            {
                if (!_calls[i].Ended) continue;
                // Older ids of a request that was sent again stay until the next connection: they answer nothing more.
                _callOfRequest.Remove(_calls[i].RequestId);
                _calls.RemoveAt(i);
            }
        }

        // The call that a message belongs to: by its `parent`, or by session and turn for an event.
        Call CallFor(Header header, long parent)
        {
            if (parent >= 0 && _callOfRequest.TryGetValue(parent, out Call found)) return found.Ended ? null : found;
            if (header.Turn == 0 || !header.Session.Exists) return null;
            for (int i = 0; i < _calls.Count; i++)
                if (_calls[i] is TurnCall turn && turn.Turn == header.Turn && header.Session.Is(turn.Session.Id)) return turn;
            return null;
        }

        void OnError(Call call, Header header, long parent)
        {
            var error = new AnimeGamerException(
                header.Fields.Text("code"), header.Fields.Text("text"), header.Fields.TextOr("do", null))
            {
                Answers = Answer.ReadAll(header.Fields.Find("answer")),
            };
            if (error.Code == "hello_first") Lost("the server was restarted");
            else if (parent >= 0 && parent == _helloId && _hello != null)
            {
                if (Array.IndexOf(Welcome == null ? Temporary : TemporaryAgain, error.Code) >= 0) Lost(error.Text);
                else Fail(error);
            }
            else if (parent >= 0 && _sessionOfResume.TryGetValue(parent, out SessionInfo resumed))
            {
                _attached.Remove(resumed.Id);
                for (int i = 0; i < _calls.Count; i++)
                    if (_calls[i].Session != null && _calls[i].Session.Id == resumed.Id) Refuse(_calls[i], error);
            }
            else if (call != null) Refuse(call, error);
            else if (parent < 0 && header.Turn == 0 && !header.Session.Exists) Fail(error);
        }

        void Refuse(Call call, AnimeGamerException error)
        {
            string[] codes = call.Begun ? TemporaryInTurn : call.Reconnected ? TemporaryAgain : Temporary;
            if (Array.IndexOf(codes, error.Code) >= 0)
            {
                _trouble = error.Text;
                call.Refused = error;
                call.RetryAt = _now + RetrySeconds;
            }
            else FollowUp(call, call.OnError(error));
        }

        // Of a longer time between two ticks only a second counts: the machine was busy, the server was not silent.
        void UpdateClock()
        {
            double clock = _clock.Elapsed.TotalSeconds;
            _now += Math.Min(clock - _clockAt, MaxTick);
            _clockAt = clock;
        }

        AnimeGamerException TimedOut()
        {
            string control = _hello == null ? " (control, the port above the one given)" : "";
            return new AnimeGamerException("timed_out",
                _address + control + ": no answer within " + _timeout.ToString("0.##", CultureInfo.InvariantCulture)
                    + " s (" + _trouble + ")",
                _whatToDo ?? (Welcome == null
                    ? "check that animegamer-rt serve runs there, and that this is the address it printed"
                    : "check the server; its games are kept: continue with the game's token"));
        }
    }
}
