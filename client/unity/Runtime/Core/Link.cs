using System;
using System.Threading;

namespace AnimeGamer
{
    /// <summary>Keeps one address's connection: it reads, reconnects, and gives what comes to the protocol. Its
    /// <see cref="Pump"/> calls Step.</summary>
    sealed class Link
    {
        public readonly ProtocolState State;
        readonly object _gate;
        readonly AnimeGamerClient _client;
        readonly Func<int, IWire> _open;
        readonly Pump _pump;
        volatile IWire _wire;
        volatile bool _stopped;
        int _tries;

        /// <summary>open: begins a connection; its argument counts the tries. It may take seconds.</summary>
        public Link(AnimeGamerClient client, object gate, Func<int, IWire> open, ProtocolState state, string name)
        {
            _client = client;
            _gate = gate;
            _open = open;
            State = state;
            _pump = new Pump(this, name);
        }

        public bool Stopped { get { return _stopped; } }

        /// <summary>Add a call and send what it asks for, without waiting. Under the lock.</summary>
        public void Start(Call call)
        {
            State.Start(call);
            Flush();
            _pump.Wake();
        }

        /// <summary>Ask for the end.</summary>
        public void Stop()
        {
            _stopped = true;
            _pump.Wake();
        }

        /// <summary>Wait for the end, so long at most; false if it goes on.</summary>
        public bool Join(int milliseconds) { return _pump.Join(milliseconds); }

        /// <summary>Where there are no threads: take a step.</summary>
        public void Update() { _pump.Update(); }

        /// <summary>Connect if that is asked for, then read and send what there is. Waits for something to read, so long at most;
        /// returns whether there is a connection, without which it does not wait.</summary>
        public bool Step(int milliseconds)
        {
            bool connect;
            lock (_gate)
            {
                if (_stopped) return false;
                State.Tick();
                _client.StartWaiting();
                if (State.Phase == Phase.Down) DropWire();
                connect = State.WantsConnection;
                Flush();
            }
            if (connect) Connect();
            IWire wire = _wire;
            if (wire == null) return false;
            try
            {
                Read(wire, milliseconds);
            }
            catch (LostException lost)
            {
                lock (_gate)
                {
                    State.Lost(lost.Message, lost.WhatToDo);
                    DropWire();
                }
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
            return true;
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

        void Read(IWire wire, int milliseconds)
        {
            if (!wire.WaitToRead(_gate, milliseconds)) return;
            while (!_stopped && wire.TryReceive(_gate))
            {
                lock (_gate)
                {
                    if (_stopped) return;
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
            IWire wire = _wire;
            if (wire == null || _stopped) return;
            try
            {
                while (wire.CanSend && State.Outgoing.Count > 0) wire.Send(State.Outgoing.Peek().Key, State.Outgoing.Dequeue().Value);
                wire.Flush();
            }
            catch (LostException lost)
            {
                State.Lost(lost.Message, lost.WhatToDo);  // the next step closes the connection
            }
        }

        void Connect()
        {
            IWire wire = null;
            LostException lost = null;
            try
            {
                wire = _open(_tries++);  // without the lock: it may take seconds
            }
            catch (LostException error)
            {
                lost = error;
            }
            lock (_gate)
            {
                DropWire();
                if (_stopped) wire?.Dispose();
                else
                {
                    _wire = wire;
                    State.Connecting();
                    if (lost != null) State.Lost(lost.Message, lost.WhatToDo);
                }
            }
        }

        /// <summary>Close the connection.</summary>
        public void DropWire()
        {
            _wire?.Dispose();
            _wire = null;
        }
    }
}
