using UnityEditor;
using UnityEngine;

namespace AnimeGamer.EditorTools
{
    /// <summary>A session in the Inspector: its state, Connect while the game runs, and Doctor.</summary>
    [CustomEditor(typeof(AnimeGamerSession))]
    public sealed class SessionEditor : Editor
    {
        string _report = "";

        public override bool RequiresConstantRepaint() { return EditorApplication.isPlaying; }

        public override void OnInspectorGUI()
        {
            DrawDefaultInspector();
            var session = (AnimeGamerSession)target;
            EditorGUILayout.HelpBox(State(session), MessageType.Info);
            session.Password = EditorGUILayout.PasswordField("Password (not stored)", session.Password ?? "");
            if (EditorApplication.isPlaying && session.Game == null && GUILayout.Button("Connect")) session.Connect();
            if (GUILayout.Button("Doctor")) Diagnose(session);
            if (_report != "") EditorGUILayout.TextArea(_report);
        }

        /// <summary>What the session does now, in a line.</summary>
        public static string State(AnimeGamerSession session)
        {
            if (!EditorApplication.isPlaying) return "press Play to connect";
            if (session.Game == null) return "not connected";
            ClipDisplay shown = session.Display;
            return session.Welcome.Bundle + ", " + session.Game.Turns + " turns" + (session.Busy ? ", a turn is running" : "")
                + (shown.Picture != null ? ", shows turn " + shown.Turn + ", picture " + shown.Index : "");
        }

        async void Diagnose(AnimeGamerSession session)
        {
            _report = "looking ...";
            _report = await Doctor.RunAsync(session.address, session.Password, "animegamer-rt");
            if (this != null) Repaint();
        }
    }
}
