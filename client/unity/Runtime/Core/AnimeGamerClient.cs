using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Net;
using System.Threading;
using System.Threading.Tasks;

namespace AnimeGamer
{
    /// <summary>How to reach the server, and the form of the pictures.</summary>
    public sealed class ClientOptions
    {
        /// <summary>tcp://HOST:PORT, as the server printed it; the next port is the control port. HOST is a name, or
        /// numbers. Or ws://HOST:PORT/ws of a server with --web, wss:// of its proxy: all that a browser can reach.</summary>
        public string Address = "tcp://127.0.0.1:5570";

        /// <summary>Of a gateway with --web-password, for wss://. A secret: not for source code, scenes or logs. A browser sends its
        /// page's login instead.</summary>
        public string Password = "";

        /// <summary>Seconds without an answer after which a call fails with timed_out. Before that a lost connection is
        /// opened again, and what was under way continues.</summary>
        public double TimeoutSeconds = 30;

        public Codecs Codec = Codecs.Raw;
        public PixelFormats PixelFormat = PixelFormats.Rgba32;

        /// <summary>True: the first row is the lowest, as in Unity's textures.</summary>
        public bool Flip = true;

        /// <summary>1..100, for Codecs.Jpeg.</summary>
        public int JpegQuality = 90;
    }

    /// <summary>
    /// One server. Use it from any thread; no call waits. What it returns is a Task that ends within the time limit, with
    /// an <see cref="AnimeGamerException"/> where it fails. A cancelled token ends a Task; what was already sent happens all the same.
    /// </summary>
    public sealed class AnimeGamerClient : IDisposable
    {
        /// <summary>Longest time that <see cref="Dispose"/> waits for the client's two threads.</summary>
        public const int JoinMilliseconds = 1000;

        readonly object _gate = new object();
        readonly List<Game> _waiting = new List<Game>();
        readonly Link _turns, _control;
        volatile bool _closed;

        internal readonly FramePool Pool = new FramePool();

        /// <summary>Starts the threads; connects when a call needs it. Throws `bad_argument`.</summary>
        public AnimeGamerClient(ClientOptions options)
        {
            if (!(options.TimeoutSeconds > 0))
                throw new AnimeGamerException("bad_argument", "TimeoutSeconds is " + options.TimeoutSeconds
                    + "; expected seconds, more than 0");
            if (options.JpegQuality < 1 || options.JpegQuality > 100)
                throw new AnimeGamerException("bad_argument", "JpegQuality is " + options.JpegQuality + "; expected 1..100");
            Request hello = new Request("hello")
                .With("versions", new[] { Codec.Major })
                .With("minor", Codec.Minor)
                .With("client", "com.animegamer.client (C#)")
                .With("pixel_format", options.PixelFormat.ToString().ToLowerInvariant())
                .With("flip", options.Flip)
                .With("codec", options.Codec.ToString().ToLowerInvariant())
                .With("jpeg_quality", options.JpegQuality)
                .With("clip", false);
            string address = options.Address ?? "";
            Func<int, IWire> turns, control = null;
            if (WebSocketWire.IsAddress(address))
            {
                turns = WebSocketWire.Opener(address, options.Password ?? "", Pool);
            }
            else
            {
#if UNITY_WEBGL && !UNITY_EDITOR
                throw new AnimeGamerException("bad_argument", "a browser cannot reach \"" + address + "\"",
                    "start animegamer-rt serve --web PORT, and give ws://HOST:PORT/ws");
#else
                if (!string.IsNullOrEmpty(options.Password))
                    throw new AnimeGamerException("bad_argument", "a Password is given for \"" + address + "\"",
                        "give the address of a gateway that has one, wss://HOST/ws, or leave Password empty");
                DnsEndPoint at = ReadAddress(address);
                address = "tcp://" + (at.Host.Contains(":") ? "[" + at.Host + "]" : at.Host) + ":" + at.Port;
                turns = Wire.Opener(at, Pool);
                control = Wire.Opener(new DnsEndPoint(at.Host, at.Port + 1), Pool);
#endif
            }
            lock (LiveClients.Gate)
            {
                _turns = new Link(this, _gate, turns, new ProtocolState(address, options.TimeoutSeconds, hello), "AnimeGamer turns");
                _control = control == null ? _turns  // a WebSocket carries both
                    : new Link(this, _gate, control, new ProtocolState(address, options.TimeoutSeconds, null), "AnimeGamer control");
                LiveClients.Add(this);
            }
        }

        /// <summary>Whether <see cref="Dispose"/> was called.</summary>
        public bool Closed { get { return _closed; } }

        /// <summary>Connect, and return what the server says of itself. Every other call connects when needed.</summary>
        public Task<Welcome> ConnectAsync(CancellationToken cancel = default(CancellationToken))
        {
            return Start(new Ask<Welcome>(new Request("ping"), "pong", _ => _turns.State.Welcome), cancel);
        }

        /// <summary>Start a game. seed: 0..2^63-1; historyTurns: 0..16; the server chooses what is null.</summary>
        public Task<Game> OpenAsync(long? seed = null, int? historyTurns = null,
            CancellationToken cancel = default(CancellationToken))
        {
            return Open(new Request("open").With("seed", seed).With("history_turns", historyTurns), cancel);
        }

        /// <summary>
        /// Start a game from a picture: the bytes of a PNG, JPEG or WebP file (16 pixels a side or more, 8 MiB and 16 megapixels
        /// at most), and what happens in it ("gently wave"). Only where Welcome.Capabilities has `picture`. Game.Seen says
        /// what the server saw.
        /// </summary>
        public Task<Game> OpenFromPictureAsync(byte[] file, string motion, long? seed = null,
            CancellationToken cancel = default(CancellationToken))
        {
            if (file == null || file.Length == 0 || file.Length > Codec.MaxPictureBytes)
                return Task.FromException<Game>(new AnimeGamerException("bad_argument", "the picture has "
                    + (file == null ? 0 : file.Length) + " bytes; expected 1 to " + Codec.MaxPictureBytes,
                    "give the bytes of a PNG, JPEG or WebP file"));
            Request open = new Request("open").With("seed", seed).With("motion", motion ?? "");
            open.Buffer = file;
            return Open(open, cancel, slow: true);
        }

        /// <summary>Continue the game of this token.</summary>
        public Task<Game> ResumeAsync(string token, CancellationToken cancel = default(CancellationToken))
        {
            return Open(new Request("open").With("token", token), cancel);
        }

        /// <summary>In a browser, which has no threads: receive and send. AnimeGamerSession does so; elsewhere it does nothing.</summary>
        public void Update() { _turns.Update(); }

        /// <summary>Disconnect, and end the threads. Games stay on the server: ResumeAsync continues one.</summary>
        public void Dispose()
        {
            BeginClose();
            EndClose(JoinMilliseconds);
        }

        // slow: it waits in the server's queue, like a turn.
        Task<Game> Open(Request request, CancellationToken cancel, bool slow = false)
        {
            return Start(new Ask<Game>(request, "opened", header => new Game(this, SessionInfo.Read(header))) { Slow = slow }, cancel);
        }

        internal string[] OffersOf(SessionInfo session)
        {
            lock (_gate)
            {
                Offer offer = _turns.State.OfferOf(session.Id);
                return offer.Turn == session.Turns + 1 ? offer.Instructions : Offer.None.Instructions;
            }
        }

        internal Task<T> Start<T>(Ask<T> call, CancellationToken cancel)
        {
            return Start(call, () => StartCall(call, _turns), cancel);
        }

        internal Task<T> StartControl<T>(Ask<T> call, CancellationToken cancel = default(CancellationToken))
        {
            return Start(call, () => StartCall(call, _control), cancel);
        }

        internal Task<T> Start<T>(Ask<T> call, Action start, CancellationToken cancel)
        {
            if (cancel.IsCancellationRequested) return Task.FromCanceled<T>(cancel);
            start();
            if (cancel.CanBeCanceled)
            {
                CancellationTokenRegistration waiting = cancel.Register(() => { lock (_gate) call.Cancel(cancel); });
                call.Result.ContinueWith(_ => waiting.Dispose(), CancellationToken.None,
                    TaskContinuationOptions.ExecuteSynchronously, TaskScheduler.Default);
            }
            return call.Result;
        }

        internal void StartTurn(Call call) { StartCall(call, _turns); }

        /// <summary>Run code under the lock that all of this client's state is under.</summary>
        internal object Gate { get { return _gate; } }

        internal void AddWaiting(Game game)
        {
            if (!_waiting.Contains(game)) _waiting.Add(game);
        }

        // Start what waited for the end of a turn that nobody reads any more. Under the lock.
        internal void StartWaiting()
        {
            for (int i = _waiting.Count - 1; i >= 0; i--)
                if (_waiting[i].StartWaiting()) _waiting.RemoveAt(i);
        }

        void StartCall(Call call, Link link)
        {
            lock (_gate)
            {
                if (_closed) call.Fail(ClosedError());
                else link.Start(call);
            }
        }

        // The first half of Dispose: everything that does not wait.
        internal void BeginClose()
        {
            lock (_gate)
            {
                if (_closed) return;
                _closed = true;
                _turns.State.Fail(ClosedError());
                _control.State.Fail(ClosedError());
                foreach (Game game in _waiting) game.FailWaiting(ClosedError());
                _waiting.Clear();
                _turns.Stop();
                _control.Stop();
            }
        }

        internal bool EndClose(int milliseconds)
        {
            LiveClients.Remove(this);
            if (Monitor.IsEntered(_gate)) return false;  // from within a callback: the threads end when it has returned
            Stopwatch clock = Stopwatch.StartNew();
            bool ended = _turns.Join(milliseconds);
            return _control.Join(Math.Max(0, milliseconds - (int)clock.ElapsedMilliseconds)) && ended;
        }

        static AnimeGamerException ClosedError()
        {
            return new AnimeGamerException("closed", "the client is closed",
                "make another one; the game goes on with ResumeAsync(token)");
        }

#if !UNITY_WEBGL || UNITY_EDITOR
        static DnsEndPoint ReadAddress(string address)
        {
            string rest = address;
            if (rest.StartsWith("tcp://", StringComparison.Ordinal)) rest = rest.Substring(6);
            int colon = rest.LastIndexOf(':');
            string host = colon > 0 ? rest.Substring(0, colon).Trim('[', ']') : "";
            if (host == "localhost") host = "127.0.0.1";
            if (int.TryParse(rest.Substring(colon + 1), out int port) && port >= 1 && port <= 65534
                && Uri.CheckHostName(host) != UriHostNameType.Unknown)
                return new DnsEndPoint(host, port);
            throw new AnimeGamerException("bad_argument", "\"" + address + "\" is not the address of a server",
                "give tcp://HOST:PORT, as in tcp://127.0.0.1:5570");
        }
#endif
    }
}
