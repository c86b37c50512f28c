using System;
using System.Collections.Generic;
using System.Reflection;
using System.Threading;

namespace UnityEngine
{
    /// <summary>Of the stubs: calls the messages of components as a game loop does, and continues what was awaited on the
    /// thread that calls <see cref="Frame"/>, as Unity's main thread does.</summary>
    public static class StubLoop
    {
        sealed class Queue : SynchronizationContext
        {
            readonly Queue<KeyValuePair<SendOrPostCallback, object>> _posted = new Queue<KeyValuePair<SendOrPostCallback, object>>();

            public override void Post(SendOrPostCallback d, object state)
            {
                lock (_posted) _posted.Enqueue(new KeyValuePair<SendOrPostCallback, object>(d, state));
            }

            public void Run()
            {
                while (true)
                {
                    KeyValuePair<SendOrPostCallback, object> next;
                    lock (_posted)
                    {
                        if (_posted.Count == 0) return;
                        next = _posted.Dequeue();
                    }
                    next.Key(next.Value);
                }
            }
        }

        static readonly Queue Main = new Queue();
        static readonly List<MonoBehaviour> Components = new List<MonoBehaviour>();
        static readonly HashSet<MonoBehaviour> Started = new HashSet<MonoBehaviour>();

        public static void Add(MonoBehaviour component)
        {
            Components.Add(component);
            Open(component);
        }

        /// <summary>What the engine does first with a component or an editor window.</summary>
        public static void Open(Object made)
        {
            SynchronizationContext.SetSynchronizationContext(Main);
            Call(made, "Awake");
            Call(made, "OnEnable");
        }

        /// <summary>After a component was enabled or disabled.</summary>
        public static void Switch(MonoBehaviour component) { Call(component, component.enabled ? "OnEnable" : "OnDisable"); }

        public static void Remove(MonoBehaviour component)
        {
            if (component.enabled) Call(component, "OnDisable");
            Call(component, "OnDestroy");
            Components.Remove(component);
        }

        /// <summary>One frame of the game.</summary>
        public static void Frame()
        {
            Main.Run();
            UnityEditor.EditorApplication.update?.Invoke();
            foreach (MonoBehaviour component in Components.ToArray())
                if (component.enabled && Started.Add(component)) Call(component, "Start");
            foreach (string message in new[] { "Update", "LateUpdate" })
                foreach (MonoBehaviour component in Components.ToArray())
                    if (component.enabled) Call(component, message);
        }

        public static void Call(Object receiver, string message)
        {
            MethodInfo method = receiver.GetType().GetMethod(message,
                BindingFlags.Instance | BindingFlags.NonPublic | BindingFlags.Public, null, Type.EmptyTypes, null);
            method?.Invoke(receiver, null);
        }
    }
}
