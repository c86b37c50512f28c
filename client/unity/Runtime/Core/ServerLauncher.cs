#if !UNITY_WEBGL || UNITY_EDITOR
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Threading;
using System.Threading.Tasks;

namespace AnimeGamer
{
    /// <summary>
    /// A server that belongs to this program: `animegamer-rt serve --port 0 --parent PID`. It ends with
    /// <see cref="Dispose"/>, and by itself when this program has ended, however it ended.
    /// </summary>
    public sealed class ServerLauncher : IDisposable
    {
        const int LastLines = 20;

        readonly Process _process;
        readonly Promise<string> _address = new Promise<string>();
        readonly Queue<string> _said = new Queue<string>();
        readonly Thread[] _readers;
        bool _disposed;

        /// <summary>
        /// Start it. command: the program, animegamer-rt or a path to it; arguments: before `serve` (as `-m animegamer_rt`
        /// for python); options: after it, as `--device cuda`. Throws `server_process` if there is no such program.
        /// </summary>
        public ServerLauncher(string command, string arguments = "", string options = "", string workingFolder = null)
        {
            try
            {
                int parent;
                using (Process self = Process.GetCurrentProcess()) parent = self.Id;  // NotSupportedException with IL2CPP
                var start = new ProcessStartInfo(command, (arguments + " serve --port 0 --parent " + parent + " " + options).Trim())
                {
                    UseShellExecute = false,
                    CreateNoWindow = true,
                    RedirectStandardOutput = true,
                    RedirectStandardError = true,
                    WorkingDirectory = workingFolder ?? "",
                };
                if (!string.IsNullOrEmpty(workingFolder)) Directory.CreateDirectory(workingFolder);
                _process = Process.Start(start);
            }
            catch (NotSupportedException error)
            {
                throw new AnimeGamerException("server_process", "cannot start " + command + ": " + error.Message,
                    "programs cannot be started with IL2CPP: build with Mono, or start animegamer-rt serve beside the game");
            }
            catch (Exception error) when (error is System.ComponentModel.Win32Exception || error is IOException)
            {
                throw new AnimeGamerException("server_process", "cannot start " + command + ": " + error.Message,
                    "install it (pip install animegamer-rt), or give the path to the program");
            }
            _readers = new[] { Reader(_process.StandardOutput), Reader(_process.StandardError) };
        }

        /// <summary>The server's address, when it listens; a `server_process` error with its last words if it ends.
        /// The engines may still load then: turns wait for them.</summary>
        public Task<string> Address { get { return _address.Task; } }

        /// <summary>Whether it runs.</summary>
        public bool Running { get { return !_disposed && !_process.HasExited; } }

        /// <summary>What it said last, at most 20 lines.</summary>
        public string LastWords
        {
            get { lock (_said) return string.Join("\n", _said.ToArray()); }
        }

        /// <summary>End it. A turn that runs is lost; what was finished is kept in its state folder.</summary>
        public void Dispose()
        {
            if (_disposed) return;
            _disposed = true;
            try
            {
                if (!_process.HasExited) _process.Kill();
                _process.WaitForExit(1000);
            }
            catch (InvalidOperationException)
            {
                // It has ended meanwhile.
            }
            foreach (Thread reader in _readers) reader.Join(500);
            _process.Close();
        }

        Thread Reader(StreamReader stream)
        {
            var thread = new Thread(() => Read(stream)) { IsBackground = true, Name = "AnimeGamer server" };
            thread.Start();
            return thread;
        }

        void Read(StreamReader stream)
        {
            try
            {
                for (string line = stream.ReadLine(); line != null; line = stream.ReadLine())
                {
                    lock (_said)
                    {
                        _said.Enqueue(line);
                        while (_said.Count > LastLines) _said.Dequeue();
                    }
                    string address = ReadAddress(line);
                    if (address != null) _address.Set(address);
                }
            }
            catch (Exception error) when (error is IOException || error is ObjectDisposedException)
            {
                // Disposed while it was read.
            }
            _address.Fail(new AnimeGamerException("server_process",
                "the server ended before it listened; it said:\n" + LastWords, "run the same command in a terminal"));
        }

        // The line that `--port 0` makes it print first, as {"address": "tcp://127.0.0.1:5570", "port": 5570, ...}.
        internal static string ReadAddress(string line)
        {
            if (!line.StartsWith("{", StringComparison.Ordinal)) return null;
            int at = line.IndexOf("\"address\"", StringComparison.Ordinal);
            int start = at < 0 ? -1 : line.IndexOf("tcp://", at, StringComparison.Ordinal);
            int end = start < 0 ? -1 : line.IndexOf('"', start);
            return end < 0 ? null : line.Substring(start, end - start);
        }
    }
}
#else
using System;
using System.Threading.Tasks;

namespace AnimeGamer
{
    /// <summary>A browser starts no programs.</summary>
    public sealed class ServerLauncher : IDisposable
    {
        /// <summary>Throws `server_process`.</summary>
        public ServerLauncher(string command, string arguments = "", string options = "", string workingFolder = null)
        {
            throw new AnimeGamerException("server_process", "a browser cannot start " + command,
                "start animegamer-rt serve --web PORT, and give the session its Address in place of a Server");
        }

        public Task<string> Address { get { return null; } }
        public bool Running { get { return false; } }
        public string LastWords { get { return ""; } }
        public void Dispose() { }
    }
}
#endif
