using System.Collections.Generic;
using System.Threading.Tasks;
using UnityEngine;

namespace AnimeGamer
{
    /// <summary>
    /// Starts `animegamer-rt serve` on a free port while it is enabled; the first time in Start, so that fields set after
    /// AddComponent count. The server ends with this component, with the play mode, and, as it was given this process's id,
    /// also if the game crashes. Set it as a session's Server.
    /// </summary>
    [AddComponentMenu("AnimeGamer/Server Process")]
    [DefaultExecutionOrder(-100)]
    public sealed class ServerProcess : MonoBehaviour
    {
        static readonly List<ServerLauncher> Started = new List<ServerLauncher>();

        [Tooltip("The program: animegamer-rt if it is on the path, else its whole path.")]
        public string command = "animegamer-rt";

        [Tooltip("Before `serve`; with python as the command: -m animegamer_rt")]
        public string arguments = "";

        [Tooltip("After `serve`, as: --device simulated:0.5")]
        public string options = "";

        [Tooltip("Folder for sessions (server-state). Empty: Application.persistentDataPath.")]
        public string folder = "";

        ServerLauncher _launcher;
        bool _started;

        /// <summary>Whether it runs.</summary>
        public bool Running { get { return _launcher != null && _launcher.Running; } }

        /// <summary>Its address, when it listens; fails with `server_process` if it cannot be started. Starts it again if it has
        /// died.</summary>
        public Task<string> Address
        {
            get
            {
                if (!Running) Launch();
                return _launcher.Address;
            }
        }

        /// <summary>What it said last.</summary>
        public string LastWords { get { return _launcher == null ? "" : _launcher.LastWords; } }

        /// <summary>End the servers of all components: before code is unloaded, and when the program ends.</summary>
        public static void StopAll()
        {
            foreach (ServerLauncher launcher in Started) launcher.Dispose();
            Started.Clear();
        }

        void Start()
        {
            _started = true;
            OnEnable();
        }

        void OnEnable()
        {
            if (!_started) return;  // AddComponent calls this before its caller can set a field
            try
            {
                if (_launcher == null) Launch();
            }
            catch (AnimeGamerException error)
            {
                Debug.LogError("AnimeGamer: " + error.Message, this);
            }
        }

        void OnDisable() { Stop(); }

        void Stop()
        {
            if (_launcher == null) return;
            Started.Remove(_launcher);
            _launcher.Dispose();
            _launcher = null;
        }

        void Launch()
        {
            Stop();
            _launcher = new ServerLauncher(command, arguments, options, folder == "" ? Application.persistentDataPath : folder);
            Started.Add(_launcher);
        }
    }
}
