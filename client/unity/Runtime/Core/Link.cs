using System;
using System.Net;
using System.Net.Sockets;
using System.Threading;

namespace AnimeGamer
{
    /// <summary>The thread that keeps one address's connection: it reads, answers pings, reconnects, and ends in time.</summary>
    sealed class Link
    {
        // How long the thread sleeps at most; so long, too, may its end take.
        const int PollMs = 50, IdleMs = 250;

        public readonly ProtocolState State;
        readonly object _gate;
        readonly DnsEndPoint _address;
        readonly AnimeGamerClient _client;
        readonly CurveKeys _keys;
        readonly AutoResetEvent _wake = new AutoResetEvent(false);
        readonly Thread _thread;
        volatile Wire _wire;
        volatile bool _stop;
        int _tries;

        /// <summary>keys: null, none.</summary>
        public Link(AnimeGamerClient client, object gate, DnsEndPoint address, CurveKeys keys, ProtocolState state, string name)
        {
            _keys = keys;
            _client = client;
            _gate = gate;
            _address = address;
            State = state;
            _thread = new Thread(Run) { IsBackground = true, Name = name };
            _thread.Start();
        }

        /// <summary>Add a call and send what it asks for, without waiting. Under the lock.</summary>
        public void Start(Call call)
        {
            State.Start(call);
            Flush();
            _wake.Set();
        }

        /// <summary>Ask the thread to end.</summary>
        public void Stop()
        {
            _stop = true;
            _wake.Set();
        }

        /// <summary>Wait for the thread's end, so long at most; false if it goes on.</summary>
        public bool Join(int milliseconds)
        {
            if (Thread.CurrentThread == _thread) return true;
            if (!_thread.Join(milliseconds)) return false;
            _wake.Close();
            return true;
        }

        void Run()
        {
            try
            {
                while (!_stop) Step();
            }
            finally
            {
                DropWire();
            }
        }

        void Step()
        {
            bool connect;
            lock (_gate)
            {
                if (_stop) return;
                State.Tick();
                _client.StartWaiting();
                if (State.Phase == Phase.Down) DropWire();
                connect = State.WantsConnection;
                Flush();
            }
            if (connect)
            {
                IPEndPoint to = Resolve();  // without the lock: it may take seconds
                lock (_gate)
                {
                    if (_stop) return;
                    OpenWire(to);
                }
            }
            Wire wire = _wire;
            if (wire == null)
            {
                _wake.WaitOne(State.HasCalls ? PollMs : IdleMs);
                return;
            }
            try
            {
                Read(wire);
            }
            catch (SocketException)
            {
                lock (_gate) OnLost(wire);
            }
            catch (AnimeGamerException error)
            {
                Fail(error);
            }
            catch (Exception error) when (!(error is ThreadAbortException))
            {
                // A fault of this client ends its calls, not the game.
                Fail(new AnimeGamerException("internal", "a fault of the client: " + error, "report it"));
            }
        }

        void Fail(AnimeGamerException error)
        {
            lock (_gate)
            {
                DropWire();
                State.Fail(error);
                _client.StartWaiting();
            }
        }

        void Read(Wire wire)
        {
            wire.SealBuffer(_gate);
            bool connected = wire.Connected;
            if (!wire.WaitToRead(wire.HasOutgoing ? 1 : PollMs)) return;
            if (!connected)
            {
                lock (_gate) wire.SendOpening();
                return;
            }
            while (!_stop && wire.TryReceive(_gate))
            {
                lock (_gate)
                {
                    if (_stop) return;
                    Frame frame = wire.Buffer;
                    wire.Buffer = null;
                    try
                    {
                        State.Received(wire.Header, ref frame);
                    }
                    finally
                    {
                        frame?.Release();
                    }
                    _client.StartWaiting();
                    Flush();
                    if (State.Phase == Phase.Down) return;
                }
            }
            lock (_gate) Flush();
        }

        void Flush()
        {
            Wire wire = _wire;
            if (wire == null || _stop) return;
            try
            {
                while (wire.CanSend && State.Outgoing.Count > 0) wire.Send(State.Outgoing.Peek().Key, State.Outgoing.Dequeue().Value);
                if (wire.HasOutgoing) wire.Flush();
            }
            catch (SocketException)
            {
                State.Lost("the connection was lost");  // the thread closes the socket
            }
        }

        // Anew for each connection, as a name may have moved; its addresses in turn. null: none is known.
        IPEndPoint Resolve()
        {
            try
            {
                IPAddress[] known = IPAddress.TryParse(_address.Host, out IPAddress number)
                    ? new[] { number } : Dns.GetHostAddresses(_address.Host);
                return known.Length > 0 ? new IPEndPoint(known[_tries++ % known.Length], _address.Port) : null;
            }
            catch (SocketException)
            {
                return null;
            }
        }

        void OpenWire(IPEndPoint to)
        {
            DropWire();
            State.Connecting();
            if (to == null)
            {
                State.Lost("no address is known of the host " + _address.Host, "check the name, or give its IP address");
                return;
            }
            try
            {
                _wire = new Wire(to, _client.Pool, _keys);
            }
            catch (SocketException)
            {
                State.Lost("nothing listens there");
            }
        }

        void OnLost(Wire wire)
        {
            if (!wire.Connected) State.Lost("nothing listens there");
            else if (wire.Open) State.Lost("the connection was lost");
            else if (_keys == null)
                State.Lost("a program there ends the connection before the ZeroMQ handshake; it may ask for keys, which this "
                    + "client was not given",
                    "if it is a server with keys, set ServerKey and SecretKey; else use the address that animegamer-rt serve printed");
            else if (!wire.KnowsServer)
                State.Lost("the server ends the connection in the handshake: the server's key may be wrong",
                    "set ServerKey to the public key of this server, from its owner (server.key), and check the address");
            else
                State.Lost("the server ends the connection in the handshake: this client's key may be wrong",
                    "ask the server's owner to add your public key to its --authorized-keys folder");
            DropWire();
        }

        void DropWire()
        {
            _wire?.Dispose();
            _wire = null;
        }
    }
}
