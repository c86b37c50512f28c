using UnityEditor;

namespace AnimeGamer.EditorTools
{
    /// <summary>Ends threads, sockets and servers before the editor unloads code, and at both ends of a play mode.</summary>
    [InitializeOnLoad]
    static class EditorTeardown
    {
        static EditorTeardown()
        {
            AssemblyReloadEvents.beforeAssemblyReload += Lifetime.CloseAll;
            EditorApplication.quitting += Lifetime.CloseAll;
            EditorApplication.playModeStateChanged += OnPlayMode;
        }

        static void OnPlayMode(PlayModeStateChange change)
        {
            // What a script left open in OnDestroy's absence; sessions close themselves when they are destroyed.
            if (change == PlayModeStateChange.ExitingEditMode || change == PlayModeStateChange.EnteredEditMode)
                Lifetime.CloseAll();
        }
    }
}
