// The part of UnityEditor that the package uses.
#pragma warning disable 67
using System;
using UnityEngine;

namespace UnityEditor
{
    public enum PlayModeStateChange { EnteredEditMode, ExitingEditMode, EnteredPlayMode, ExitingPlayMode }
    public enum MessageType { None, Info, Warning, Error }

    public sealed class InitializeOnLoadAttribute : Attribute { }

    public sealed class MenuItem : Attribute
    {
        public readonly string Name;
        public MenuItem(string itemName) { Name = itemName; }
    }

    public static class AssemblyReloadEvents
    {
        public delegate void AssemblyReloadCallback();
        public static event AssemblyReloadCallback beforeAssemblyReload;
    }

    public static class EditorApplication
    {
        public delegate void CallbackFunction();
        public static CallbackFunction update;
        public static event Action quitting;
        public static event Action<PlayModeStateChange> playModeStateChanged;
        public static bool isPlaying { get; set; }
        public static double timeSinceStartup { get { return Time.realtimeSinceStartupAsDouble; } }
    }

    public static class EditorUtility { public static void SetDirty(UnityEngine.Object target) { } }

    public sealed class CustomEditor : Attribute { public CustomEditor(Type inspectedType) { } }

    public class Editor : ScriptableObject
    {
        public UnityEngine.Object target { get; set; }
        public virtual void OnInspectorGUI() { }
        public virtual bool RequiresConstantRepaint() { return false; }
        public bool DrawDefaultInspector() { return false; }
        public void Repaint() { }
    }

    public class EditorWindow : ScriptableObject
    {
        /// <summary>Of the stub: the window that was opened last.</summary>
        public static EditorWindow Opened;

        public static T GetWindow<T>(string title) where T : EditorWindow
        {
            T window = CreateInstance<T>();
            Opened = window;
            StubLoop.Open(window);
            return window;
        }

        public void Repaint() { }
    }

    public static class EditorGUILayout
    {
        /// <summary>Of the stub: what a person types into the field with a label; the text that was shown last.</summary>
        public static readonly System.Collections.Generic.Dictionary<string, string> Typed = new System.Collections.Generic.Dictionary<string, string>();
        public static string Shown = "";

        public static string TextField(string label, string text, params GUILayoutOption[] options)
        {
            return Typed.TryGetValue(label, out string typed) ? typed : text;
        }

        public static string PasswordField(string label, string password, params GUILayoutOption[] options) { return TextField(label, password); }

        public static string TextArea(string text, params GUILayoutOption[] options) { return Shown = text; }
        public static void HelpBox(string message, MessageType type) { }
        public static Vector2 BeginScrollView(Vector2 scrollPosition, params GUILayoutOption[] options) { return scrollPosition; }
        public static void EndScrollView() { }
    }
}
