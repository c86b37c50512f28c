using System;
using System.Diagnostics;
using System.Text;

namespace AnimeGamer
{
    /// <summary>In place of the package's class of this name: calls the functions of AnimeGamer.jslib in a node process, and waits
    /// for what they return (page.js).</summary>
    public static class BrowserSocket
    {
        static Process _node;

        /// <summary>command: node and its options, page.js, AnimeGamer.jslib.</summary>
        public static void Start(string command, string arguments)
        {
            _node = Process.Start(new ProcessStartInfo(command, arguments)
                { UseShellExecute = false, RedirectStandardInput = true, RedirectStandardOutput = true });
        }

        public static void End()
        {
            _node.StandardInput.Close();
            _node.WaitForExit();
        }

        public static int AnimeGamerOpen(string address, string subprotocol) { return Call("AnimeGamerOpen", null, address, subprotocol); }
        public static int AnimeGamerState(int socket) { return Call("AnimeGamerState", null, socket); }
        public static void AnimeGamerSend(int socket, byte[] message, int length) { Call("AnimeGamerSend", message, socket, message, length); }
        public static int AnimeGamerWaiting(int socket) { return Call("AnimeGamerWaiting", null, socket); }

        public static void AnimeGamerCopy(int socket, int from, byte[] into, int count)
        {
            Call("AnimeGamerCopy", into, socket, from, into, count);
        }

        public static void AnimeGamerDrop(int socket) { Call("AnimeGamerDrop", null, socket); }
        public static void AnimeGamerClose(int socket) { Call("AnimeGamerClose", null, socket); }

        // Arrays are shared with the function: it may write there.
        static int Call(string name, byte[] shared, params object[] arguments)
        {
            foreach (object each in arguments)
                name += each is int ? " " + each : each is byte[] ? " b" + Convert.ToBase64String((byte[])each)
                    : " s" + Convert.ToBase64String(Encoding.UTF8.GetBytes((string)each));
            _node.StandardInput.WriteLine(name);
            string[] answer = _node.StandardOutput.ReadLine().Split(' ');
            if (shared != null) Convert.FromBase64String(answer[1]).CopyTo(shared, 0);
            return int.Parse(answer[0]);
        }
    }
}
