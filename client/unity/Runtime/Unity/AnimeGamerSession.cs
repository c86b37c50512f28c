using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;
using UnityEngine;
using UnityEngine.Events;

namespace AnimeGamer
{
    [Serializable] public sealed class UnderstoodEvent : UnityEvent<Understood> { }
    [Serializable] public sealed class StateEvent : UnityEvent<GameState> { }
    [Serializable] public sealed class ProgressEvent : UnityEvent<float> { }
    [Serializable] public sealed class DoneEvent : UnityEvent<Done> { }
    [Serializable] public sealed class OffersEvent : UnityEvent<string[]> { }
    [Serializable] public sealed class ErrorEvent : UnityEvent<AnimeGamerException> { }

    /// <summary>
    /// One game on a server, and what is played of it. All its members belong to the main thread; none of them waits. Its
    /// network runs on threads of its own, which answer the server while the game is paused.
    /// </summary>
    [AddComponentMenu("AnimeGamer/Session")]
    public sealed class AnimeGamerSession : MonoBehaviour
    {
        [Tooltip("As animegamer-rt serve printed it; for WebGL ws://HOST:PORT/ws of serve --web PORT, on another machine wss:// of its proxy. Not used with Server.")]
        public string address = "tcp://127.0.0.1:5570";

        [Tooltip("Optional: a component that starts a server.")]
        public ServerProcess server;

        [Tooltip("Optional: the game to go on with, and where a new one is kept.")]
        public SavedGame savedGame;

        [Tooltip("Seconds without an answer after which a call fails.")]
        public float timeoutSeconds = 30;

        [Tooltip("Connect at Start. Otherwise the first Say connects.")]
        public bool connectOnStart = true;

        public UnityEvent onReady = new UnityEvent();

        [Tooltip("What the instruction was taken to mean; only of bundles that read everyday words.")]
        public UnderstoodEvent onUnderstood = new UnderstoodEvent();
        public StateEvent onState = new StateEvent();

        [Tooltip("0..1, while a turn is computed.")]
        public ProgressEvent onProgress = new ProgressEvent();
        public DoneEvent onDone = new DoneEvent();

        [Tooltip("Suggestions for the next turn, which the server answers at once; none when they are over. Only of servers that play ahead.")]
        public OffersEvent onOffers = new OffersEvent();
        public ErrorEvent onError = new ErrorEvent();

        readonly ClipDisplay _display = new ClipDisplay();
        AnimeGamerClient _client;
        Task<Game> _connecting;
        string[] _offers = new string[0];
        string _token = "";  // the game's: private fields outlive a compilation during Play, Game does not
        Turn _turn;
        int _insteads;
        bool _recalling;

        /// <summary>Of a gateway with --web-password, for wss://. Set it before Start; it is not stored with the component.</summary>
        public string Password { internal get; set; }

        /// <summary>The game, once connected.</summary>
        public Game Game { get; private set; }

        /// <summary>What the server said of itself, once connected.</summary>
        public Welcome Welcome { get; private set; }

        /// <summary>Whether a turn is asked for and not over.</summary>
        public bool Busy { get { return _turn != null; } }

        /// <summary>The picture that is due; TurnView shows it. Set here how clips are played, or pause them.</summary>
        public ClipDisplay Display { get { return _display; } }

        /// <summary>Connect and open the game, or go on with the saved one. A second call returns the same, unless the session's
        /// own server has died since: then it is started again.</summary>
        public Task<Game> ConnectAsync(CancellationToken cancel = default(CancellationToken))
        {
            bool died = _connecting != null && _connecting.IsCompleted && server != null && !server.Running;
            if (_connecting == null || _connecting.IsFaulted || _connecting.IsCanceled || died) _connecting = OpenGame();
            return cancel.CanBeCanceled ? OrCancel(_connecting, cancel) : _connecting;
        }

        /// <summary>Connect now. Errors come by onError.</summary>
        public void Connect() { Report(ConnectAsync()); }

        /// <summary>
        /// Start a new game from a picture, in place of this one: the bytes of a PNG, JPEG or WebP file (of a texture:
        /// EncodeToPNG), and what happens in it ("gently wave"). Only where Welcome.Capabilities has `picture`. Throws
        /// AnimeGamerException; then the game is the one before.
        /// </summary>
        public async Task<Game> StartFromPictureAsync(byte[] file, string motion,
            CancellationToken cancel = default(CancellationToken))
        {
            Game before = await ConnectAsync(cancel);
            RefuseIfRunning();
            GoOnWith(await _client.OpenFromPictureAsync(file, motion, null, cancel));
            if (before.Turns == 0) Report(before.CloseAsync());  // nobody has played it
            return Game;
        }

        /// <summary>Play a finished turn again. Errors come by onError.</summary>
        public void Replay(int turn) { Report(ReplayAsync(turn)); }

        /// <summary>Delete the turns after this one, and show its clip; 0 deletes all.</summary>
        public void Rewind(int turn) { Report(RewindAsync(turn)); }

        /// <summary>Delete the last turn, and show the clip of the one before.</summary>
        public void Undo() { Report(UndoAsync()); }

        /// <summary>Go on with a second game that shares the turns up to this one, and show its clip. The first one stays as it is:
        /// keep its Game.Token.</summary>
        public void Branch(int turn) { Report(BranchAsync(turn)); }

        /// <summary>As Replay; ends when all its pictures have come. Throws AnimeGamerException.</summary>
        public async Task<Done> ReplayAsync(long turn, CancellationToken cancel = default(CancellationToken))
        {
            Game game = await Free(cancel);
            return await Completion(Follow(game.Replay(turn), true), cancel);
        }

        /// <summary>As Rewind; ends when the turns are deleted.</summary>
        public async Task RewindAsync(long turn, CancellationToken cancel = default(CancellationToken))
        {
            Game game = await Free(cancel);
            await game.RewindAsync(turn, cancel);
            CheckAlive();
            Save();
            ShowLast();
        }

        /// <summary>As Undo; ends when the turn is deleted.</summary>
        public async Task UndoAsync(CancellationToken cancel = default(CancellationToken))
        {
            Game game = await Free(cancel);
            if (game.Turns > 0) await RewindAsync(game.Turns - 1, cancel);
        }

        /// <summary>As Branch; ends when the session has the second game.</summary>
        public async Task<Game> BranchAsync(long turn, CancellationToken cancel = default(CancellationToken))
        {
            Game game = await Free(cancel);
            GoOnWith(await game.BranchAsync(turn, null, cancel));
            ShowLast();
            return Game;
        }

        /// <summary>All finished turns, the newest last.</summary>
        public async Task<List<LoggedTurn>> ListAsync(CancellationToken cancel = default(CancellationToken))
        {
            Game game = await ConnectAsync(cancel);
            return await game.ListAsync(cancel);
        }

        /// <summary>Play the next turn. Errors come by onError.</summary>
        public void Say(string instruction) { Report(SayAsync(instruction)); }

        /// <summary>Say this instead of what is played now: cancels the running turn, and plays this one.</summary>
        public void SayInstead(string instruction) { Report(SayInsteadAsync(instruction)); }

        /// <summary>Play the next turn; ends when it is done. Its events come meanwhile. Throws AnimeGamerException. A cancelled
        /// token stops the turn.</summary>
        public Task<Done> SayAsync(string instruction, CancellationToken cancel = default(CancellationToken))
        {
            return Play(instruction, false, cancel);
        }

        /// <summary>As SayInstead; ends when the new turn is done.</summary>
        public Task<Done> SayInsteadAsync(string instruction, CancellationToken cancel = default(CancellationToken))
        {
            return Play(instruction, true, cancel);
        }

        /// <summary>Stop the running turn: it ends with the error `cancelled`.</summary>
        public void Cancel() { _turn?.Cancel(); }

        async Task<Game> OpenGame()
        {
            string at = server != null ? await server.Address : address;
            CheckAlive();
            _client?.Dispose();
            _client = new AnimeGamerClient(new ClientOptions { Address = at, Password = Password, TimeoutSeconds = timeoutSeconds });
            Welcome = await _client.ConnectAsync();
            _display.FramesPerSecond = Welcome.FramesPerSecond;
            string token = _token != "" ? _token : savedGame != null ? savedGame.Token : "";
            try
            {
                Game = token == "" ? await _client.OpenAsync() : await _client.ResumeAsync(token);
            }
            catch (AnimeGamerException error) when (token != "" && IsGone(error.Code))
            {
                Debug.LogWarning("AnimeGamer: the saved game cannot go on, a new one begins: " + error.Text, this);
                Game = await _client.OpenAsync();
            }
            CheckAlive();
            Save();
            if (Game.RunningTurn != 0) Follow(Game.Replay(Game.RunningTurn), false);
            else if (_turn == null && _display.Picture == null) ShowLast();
            onReady.Invoke();
            return Game;
        }

        async Task<Done> Play(string instruction, bool instead, CancellationToken cancel)
        {
            int asked = instead ? ++_insteads : _insteads;
            Game game = await ConnectAsync(cancel);
            if (!instead && _turn != null && _recalling) await End(_turn);
            if (asked != _insteads)
                throw new AnimeGamerException("cancelled", "something else was said before this was sent");
            cancel.ThrowIfCancellationRequested();
            if (!instead) RefuseIfRunning();
            return await Completion(Follow(instead ? game.SayInstead(instruction) : game.Say(instruction), false), cancel);
        }

        Turn Follow(Turn turn, bool recalling)
        {
            _display.EndClip();
            _turn = turn;
            _recalling = recalling;
            return turn;
        }

        // The last turn's clip, as the picture of the game.
        void ShowLast()
        {
            if (Game.Turns > 0) Follow(Game.Replay(Game.Turns), true);
            else _display.Clear();
        }

        void GoOnWith(Game game)
        {
            CheckAlive();
            Game = game;
            _turn = null;
            _connecting = Task.FromResult(game);
            Save();
            onReady.Invoke();
        }

        // The game, when no replay runs; refused while a turn does.
        async Task<Game> Free(CancellationToken cancel)
        {
            Game game = await ConnectAsync(cancel);
            if (_turn != null && _recalling) await End(_turn);
            cancel.ThrowIfCancellationRequested();
            RefuseIfRunning();
            return game;
        }

        void RefuseIfRunning()
        {
            if (_turn != null && !_turn.Ended)
                throw new AnimeGamerException("turn_running", "a turn is running", "wait for its end, or call SayInstead");
            while (_turn != null && _turn.TryRead(out TurnEvent next)) Dispatch(next);
        }

        static async Task<Done> Completion(Turn turn, CancellationToken cancel)
        {
            try
            {
                using (cancel.Register(turn.Cancel)) return await turn.Completion;
            }
            catch (AnimeGamerException error) when (error.Code == "cancelled" && cancel.IsCancellationRequested)
            {
                throw new OperationCanceledException(cancel);
            }
        }

        // What others wait for, too, goes on.
        static async Task<T> OrCancel<T>(Task<T> task, CancellationToken cancel)
        {
            if (!task.IsCompleted)
            {
                var cancelled = new TaskCompletionSource<bool>();
                using (cancel.Register(() => cancelled.TrySetResult(true))) await Task.WhenAny(task, cancelled.Task);
                if (!task.IsCompleted) cancel.ThrowIfCancellationRequested();
            }
            return await task;
        }

        static async Task End(Turn turn)
        {
            try
            {
                await turn.Completion;
            }
            catch (AnimeGamerException)
            {
                // What matters is that it is over.
            }
        }

        void Start()
        {
            if (connectOnStart) Connect();
        }

        void Update()
        {
            _client?.Update();
            Turn turn = _turn;
            while (turn != null && turn == _turn && turn.TryRead(out TurnEvent next)) Dispatch(next);
            ShowOffers();
            _display.Advance(Time.realtimeSinceStartupAsDouble);
        }

        void ShowOffers()
        {
            string[] offers = Game != null ? Game.Offers : _offers;
            if (offers == _offers || offers.Length + _offers.Length == 0) return;
            _offers = offers;
            onOffers.Invoke(offers);
        }

        void Dispatch(TurnEvent next)
        {
            switch (next.Kind)
            {
                case TurnEventKind.Understood: onUnderstood.Invoke(next.Understood); break;
                case TurnEventKind.State: onState.Invoke(next.State); break;
                case TurnEventKind.Progress: onProgress.Invoke((float)next.Step / next.Steps); break;
                case TurnEventKind.Frame: _display.Add(next.Frame); break;
                case TurnEventKind.Done:
                    _turn = null;
                    _display.EndClip();
                    Save();
                    onDone.Invoke(next.Done);
                    break;
                case TurnEventKind.Error:
                    _turn = null;
                    _display.EndClip();
                    break;
            }
        }

        void OnDestroy()
        {
            _display.Clear();
            _turn = null;
            Game = null;
            _connecting = null;
            _token = "";
            _client?.Dispose();
        }

        // After what was awaited, as the component may have been destroyed meanwhile.
        void CheckAlive()
        {
            if (this == null) throw new AnimeGamerException("closed", "the session was destroyed");
        }

        void Save()
        {
            _token = Game.Token;
            if (savedGame != null) savedGame.Set(Game.Token, Game.Turns);
        }

        // Errors of calls that nobody awaits; logged too, as nobody may listen. The component may be destroyed when it ends.
        async void Report(Task task)
        {
            try
            {
                await task;
            }
            catch (AnimeGamerException error)
            {
                if (this == null || error.Code == "closed") return;
                if (error.Code != "cancelled") Debug.LogWarning("AnimeGamer: " + error.Message, this);
                onError.Invoke(error);
            }
        }

        static bool IsGone(string code)
        {
            return code == "unknown_session" || code == "session_closed";
        }
    }
}
