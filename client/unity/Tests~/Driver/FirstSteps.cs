using System;
using System.Linq;
using System.Reflection;
using AnimeGamer.EditorTools;
using UnityEditor;
using UnityEngine;
using UnityEngine.UI;

namespace AnimeGamer.Driver
{
    /// <summary>Does what the README says: the window's buttons, then the sample's scene.</summary>
    static class FirstSteps
    {
        /// <summary>arguments: "first-steps", the server's address and password, the window's menu item, what is typed in the
        /// scene, and its scripts.</summary>
        public static void Take(string[] arguments)
        {
            EditorGUILayout.Typed["Address"] = arguments[1];
            EditorGUILayout.Typed["Password (not stored)"] = arguments[2];
            EditorGUILayout.Typed["animegamer-rt"] = "echo";
            const BindingFlags any = BindingFlags.Static | BindingFlags.NonPublic;
            MethodInfo open = typeof(AnimeGamerWindow).GetMethods(any).First(method => method.GetCustomAttribute<MenuItem>() != null);
            Help.Check(open.GetCustomAttribute<MenuItem>().Name == arguments[3], "the window is in the menu");
            open.Invoke(null, null);
            EditorWindow window = EditorWindow.Opened;
            Press(window, "Connect");
            Press(window, "Say");
            Until(window, () => GUI.Drawn != null, "the window shows a picture");
            Press(window, "Doctor");
            Until(window, () => EditorGUILayout.Shown.Contains("$ echo doctor"), "and what the doctor says");
            Help.Check(EditorGUILayout.Shown.StartsWith("server: animegamer-rt "), "of the server, too");
            StubLoop.Call(window, "OnDisable");

            var host = new GameObject("AnimeGamer");
            MethodInfo add = typeof(GameObject).GetMethod("AddComponent");
            foreach (string name in arguments.Skip(5))
            {
                Type script = new[] { typeof(AnimeGamerSession), typeof(Samples.SaySomething) }.First(each => each.Name == name);
                add.MakeGenericMethod(script).Invoke(host, null);
            }
            AnimeGamerSession session = host.GetComponent<AnimeGamerSession>();
            session.address = arguments[1];
            session.Password = arguments[2];
            Samples.SaySomething sample = host.GetComponent<Samples.SaySomething>();
            ((InputField)Engine.Field(sample, "_field")).onSubmit.Invoke(arguments[4]);
            var picture = (RawImage)Engine.Field(sample, "_picture");
            Engine.Until(() => picture.texture != null && !session.Busy, "the scene shows a picture");
            Help.Check(session.Game.Turns == 1, "of the sentence's turn");
            UnityEngine.Object.Destroy(host.GetComponent<TurnView>());
            UnityEngine.Object.Destroy(session);
            Help.Check(LiveClients.Count == 0, "all clients are closed");
            Console.WriteLine("a picture in the window, and one in the scene");
        }

        static void Press(EditorWindow window, string button)
        {
            GUILayout.Pressed = button;
            StubLoop.Call(window, "OnGUI");
            GUILayout.Pressed = null;
        }

        static void Until(EditorWindow window, Func<bool> condition, string claim)
        {
            Engine.Until(() =>
            {
                StubLoop.Call(window, "OnGUI");
                return condition();
            }, claim);
        }
    }
}
