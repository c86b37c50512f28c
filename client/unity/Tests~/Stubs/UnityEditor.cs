// The part of UnityEditor that the package uses.
#pragma warning disable 67
using System;
using UnityEngine;

namespace UnityEditor
{
    public enum PlayModeStateChange { EnteredEditMode, ExitingEditMode, EnteredPlayMode, ExitingPlayMode }
    public enum MessageType { None, Info, Warning, Error }

    public sealed class InitializeOnLoadAttribute : Attribute { }
    public sealed class MenuItem : Attribute { public MenuItem(string itemName) { } }

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
        public static T GetWindow<T>(string title) where T : EditorWindow { return CreateInstance<T>(); }
        public void Repaint() { }
    }

    public static class EditorGUILayout
    {
        public static string TextField(string label, string text, params GUILayoutOption[] options) { return text; }
        public static string TextArea(string text, params GUILayoutOption[] options) { return text; }
        public static void HelpBox(string message, MessageType type) { }
        public static Vector2 BeginScrollView(Vector2 scrollPosition, params GUILayoutOption[] options) { return scrollPosition; }
        public static void EndScrollView() { }
    }
}
