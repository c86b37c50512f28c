using System.Threading.Tasks;
using UnityEditor;
using UnityEngine;

namespace AnimeGamer.EditorTools
{
    /// <summary>Window > AnimeGamer: connect to a server, say something, see the clip, and find out what is wrong.</summary>
    public sealed class AnimeGamerWindow : EditorWindow
    {
        [SerializeField] string address = "tcp://127.0.0.1:5570";
        [SerializeField] string instruction = "Mirel waves gently in the meadow.";
        [SerializeField] string token = "";
        [SerializeField] string command = "animegamer-rt";

        string _password = "";  // not serialized: the editor would store it in its layout
        readonly ClipDisplay _display = new ClipDisplay();
        AnimeGamerClient _client;
        Game _game;
        Turn _turn;
        Texture2D _texture;
        int _version;
        string _said = "not connected";
        string _report = "";
        Vector2 _scroll;

        [MenuItem("Window/AnimeGamer")]
        static void Open() { GetWindow<AnimeGamerWindow>("AnimeGamer"); }

        void OnEnable() { EditorApplication.update += Poll; }

        void OnDisable()
        {
            EditorApplication.update -= Poll;
            Disconnect();
            if (_texture != null) DestroyImmediate(_texture);
        }

        void OnGUI()
        {
            address = EditorGUILayout.TextField("Address", address);
            _password = EditorGUILayout.PasswordField("Password (not stored)", _password);
            if (GUILayout.Button("Connect")) Run(Connect());
            instruction = EditorGUILayout.TextField("Instruction", instruction);
            if (GUILayout.Button(_turn == null ? "Say" : "Say this instead")) Run(Say());
            EditorGUILayout.HelpBox(_said, MessageType.Info);
            if (_texture != null)
                GUI.DrawTexture(GUILayoutUtility.GetAspectRect((float)_texture.width / _texture.height), _texture);
            command = EditorGUILayout.TextField("animegamer-rt", command);
            if (GUILayout.Button("Doctor")) Run(Diagnose());
            if (_report == "") return;
            _scroll = EditorGUILayout.BeginScrollView(_scroll);
            EditorGUILayout.TextArea(_report);
            EditorGUILayout.EndScrollView();
        }

        async Task Connect()
        {
            Disconnect();
            _said = "connecting to " + address;
            _client = new AnimeGamerClient(new ClientOptions { Address = address, Password = _password, TimeoutSeconds = 10 });
            Welcome welcome = await _client.ConnectAsync();
            _display.FramesPerSecond = welcome.FramesPerSecond;
            try
            {
                _game = token == "" ? await _client.OpenAsync() : await _client.ResumeAsync(token);
            }
            catch (AnimeGamerException error) when (CannotGoOn(error.Code))
            {
                _game = await _client.OpenAsync();
            }
            token = _game.Token;
            _said = welcome.Server + " plays " + welcome.Bundle + ", " + welcome.Width + " x " + welcome.Height + ", "
                + _game.Turns + " turns so far";
        }

        // The window's games are for trying out: where one cannot go on, another begins.
        static bool CannotGoOn(string code)
        {
            return code == "unknown_session" || code == "session_closed" || code == "bundle_mismatch" || code == "engines_mismatch";
        }

        async Task Say()
        {
            if (_game == null || _client.Closed) await Connect();
            _display.EndClip();
            _turn = _game.SayInstead(instruction);
        }

        async Task Diagnose()
        {
            _report = "looking ...";
            _report = await Doctor.RunAsync(address, _password, command);
        }

        // Called by the editor some hundred times a second; does little unless something has arrived.
        void Poll()
        {
            Turn turn = _turn;
            while (turn != null && turn == _turn && turn.TryRead(out TurnEvent next))
            {
                if (next.Kind == TurnEventKind.Frame) _display.Add(next.Frame);
                else if (next.Kind == TurnEventKind.Understood) _said = next.Understood.Notice ?? next.Understood.Text;
                else if (next.Kind == TurnEventKind.State) _said = "motion level " + next.State.MotionLevel;
                else if (next.Kind == TurnEventKind.Progress) _said = "step " + next.Step + " of " + next.Steps;
                else if (next.Kind == TurnEventKind.Done) _said = "turn " + next.Turn + ", " + next.Done.TotalSeconds.ToString("0.00") + " s";
                else if (next.Kind == TurnEventKind.Error) _said = next.Error.Message;
                if (next.Kind == TurnEventKind.Done || next.Kind == TurnEventKind.Error)
                {
                    _display.EndClip();
                    _turn = null;
                }
                Repaint();
            }
            _display.Advance(EditorApplication.timeSinceStartup);
            if (_version == _display.Version || _display.Picture == null) return;
            _version = _display.Version;
            Show(_display.Picture);
            Repaint();
        }

        void Show(Frame frame)
        {
            if (_texture == null || _texture.width != frame.Width || _texture.height != frame.Height)
            {
                if (_texture != null) DestroyImmediate(_texture);
                _texture = new Texture2D(frame.Width, frame.Height, TextureFormat.RGBA32, false) { hideFlags = HideFlags.HideAndDontSave };
            }
            _texture.LoadRawTextureData(frame.Data);
            _texture.Apply(false);
        }

        void Disconnect()
        {
            _display.Clear();
            _client?.Dispose();
            _client = null;
            _game = null;
            _turn = null;
        }

        async void Run(Task task)
        {
            try
            {
                await task;
            }
            catch (AnimeGamerException error)
            {
                if (error.Code != "closed") _said = error.Message;
                else if (_client == null || _client.Closed) _said = "not connected";  // by Play; else Connect was pressed again
            }
            if (this != null) Repaint();
        }
    }
}
