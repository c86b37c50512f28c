// The part of UnityEngine that the package uses, with its signatures as in Unity 2021.3, and just enough behaviour for
// the driver to run components. No part of Unity; where Unity would draw, nothing is drawn.
#pragma warning disable 67, 414, 649
using System;
using System.Collections.Generic;

namespace Unity.Collections
{
    public struct NativeArray<T> where T : struct
    {
        internal T[] Items;
        public int Length { get { return Items.Length; } }

        public static void Copy(T[] src, int srcIndex, NativeArray<T> dst, int dstIndex, int length)
        {
            Array.Copy(src, srcIndex, dst.Items, dstIndex, length);
        }
    }
}

namespace UnityEngine.Scripting
{
    public sealed class PreserveAttribute : Attribute { }
}

namespace UnityEngine.Events
{
    public class UnityEventBase { }

    public delegate void UnityAction();
    public delegate void UnityAction<T0>(T0 arg0);

    public class UnityEvent : UnityEventBase
    {
        UnityAction _listeners;
        public void AddListener(UnityAction call) { _listeners += call; }
        public void Invoke() { _listeners?.Invoke(); }
    }

    public class UnityEvent<T0> : UnityEventBase
    {
        UnityAction<T0> _listeners;
        public void AddListener(UnityAction<T0> call) { _listeners += call; }
        public void Invoke(T0 arg0) { _listeners?.Invoke(arg0); }
    }
}

namespace UnityEngine
{
    [Flags] public enum HideFlags { None = 0, DontSave = 52, HideAndDontSave = 61 }
    public enum TextureFormat { RGBA32 = 4 }
    public enum TextureWrapMode { Repeat, Clamp }
    public enum RuntimeInitializeLoadType { SubsystemRegistration = 4 }
    public enum RenderMode { ScreenSpaceOverlay }

    public sealed class TooltipAttribute : Attribute { public TooltipAttribute(string tooltip) { } }
    public sealed class SerializeField : Attribute { }
    public sealed class AddComponentMenu : Attribute { public AddComponentMenu(string menuName) { } }
    public sealed class DefaultExecutionOrder : Attribute { public DefaultExecutionOrder(int order) { } }
    public sealed class RequireComponent : Attribute { public RequireComponent(Type requiredComponent) { } }

    public sealed class CreateAssetMenuAttribute : Attribute
    {
        public string fileName { get; set; }
        public string menuName { get; set; }
    }

    public sealed class RuntimeInitializeOnLoadMethodAttribute : Attribute
    {
        public RuntimeInitializeOnLoadMethodAttribute(RuntimeInitializeLoadType loadType) { }
    }

    public class Object
    {
        internal bool Gone;
        public string name { get; set; }
        public HideFlags hideFlags { get; set; }

        public static void Destroy(Object obj) { DestroyImmediate(obj); }

        public static void DestroyImmediate(Object obj)
        {
            if (obj.Gone) return;
            if (obj is MonoBehaviour) StubLoop.Remove((MonoBehaviour)obj);
            if (obj is Texture2D) Texture2D.Alive--;
            obj.Gone = true;
        }

        public static bool operator ==(Object x, Object y) { return ReferenceEquals(Real(x), Real(y)); }
        public static bool operator !=(Object x, Object y) { return !(x == y); }
        public static implicit operator bool(Object exists) { return exists != null; }
        public override bool Equals(object other) { return ReferenceEquals(this, other); }
        public override int GetHashCode() { return System.Runtime.CompilerServices.RuntimeHelpers.GetHashCode(this); }
        static Object Real(Object each) { return ReferenceEquals(each, null) || each.Gone ? null : each; }
    }

    public class Component : Object
    {
        public GameObject gameObject { get; internal set; }
        public Transform transform { get { return gameObject.transform; } }
        public T GetComponent<T>() { return gameObject.GetComponent<T>(); }
    }

    public class Behaviour : Component
    {
        bool _enabled = true;

        public bool enabled
        {
            get { return _enabled; }
            set
            {
                if (_enabled == value) return;
                _enabled = value;
                if (this is MonoBehaviour) StubLoop.Switch((MonoBehaviour)this);
            }
        }
    }

    public class MonoBehaviour : Behaviour { }

    public class ScriptableObject : Object
    {
        public static T CreateInstance<T>() where T : ScriptableObject { return Activator.CreateInstance<T>(); }
    }

    public class Transform : Component
    {
        public void SetParent(Transform parent, bool worldPositionStays) { }
    }

    public sealed class RectTransform : Transform
    {
        public Vector2 anchorMin { get; set; }
        public Vector2 anchorMax { get; set; }
        public Vector2 offsetMin { get; set; }
        public Vector2 offsetMax { get; set; }
    }

    public struct Vector2
    {
        public float x, y;
        public Vector2(float x, float y) { this.x = x; this.y = y; }
        public static Vector2 zero { get { return new Vector2(0, 0); } }
    }

    public struct Rect { }

    public sealed class GameObject : Object
    {
        readonly List<Component> _components = new List<Component>();
        public GameObject(string name) { this.name = name; transform = new Transform { gameObject = this }; }
        public Transform transform { get; private set; }

        public T AddComponent<T>() where T : Component
        {
            T component = Activator.CreateInstance<T>();
            component.gameObject = this;
            _components.Add(component);
            if (component is MonoBehaviour) StubLoop.Add((MonoBehaviour)(object)component);
            return component;
        }

        public T GetComponent<T>()
        {
            foreach (Component each in _components)
                if (each is T) return (T)(object)each;
            return default(T);
        }
    }

    public class Texture : Object
    {
        public int width { get; protected set; }
        public int height { get; protected set; }
        public TextureWrapMode wrapMode { get; set; }
    }

    public sealed class Texture2D : Texture
    {
        readonly byte[] _pixels;

        /// <summary>Of the stub: textures that were made and not destroyed; the pixels that were applied.</summary>
        public static int Alive;
        public byte[] Applied;

        public Texture2D(int width, int height, TextureFormat textureFormat, bool mipChain)
        {
            this.width = width;
            this.height = height;
            _pixels = new byte[4 * width * height];
            Alive++;
        }

        public Unity.Collections.NativeArray<T> GetRawTextureData<T>() where T : struct
        {
            return new Unity.Collections.NativeArray<T> { Items = (T[])(object)_pixels };
        }

        public void LoadRawTextureData(byte[] data) { Array.Copy(data, _pixels, _pixels.Length); }
        public void Apply(bool updateMipmaps) { Applied = (byte[])_pixels.Clone(); }
    }

    public sealed class MaterialPropertyBlock { public void SetTexture(string name, Texture value) { } }

    public class Renderer : Component
    {
        public void GetPropertyBlock(MaterialPropertyBlock properties) { }
        public void SetPropertyBlock(MaterialPropertyBlock properties) { }
    }

    public static class Time
    {
        static readonly System.Diagnostics.Stopwatch Clock = System.Diagnostics.Stopwatch.StartNew();
        public static double realtimeSinceStartupAsDouble { get { return Clock.Elapsed.TotalSeconds; } }
    }

    public static class Random { public static int Range(int minInclusive, int maxExclusive) { return minInclusive; } }

    public static class Application
    {
        public static event Action quitting;
        public static string persistentDataPath { get { return System.IO.Path.GetTempPath(); } }
    }

    public static class Debug
    {
        public static void Log(object message) { Console.WriteLine("log: " + message); }
        public static void LogError(object message) { Console.WriteLine("error: " + message); }
        public static void LogError(object message, Object context) { Console.WriteLine("error: " + message); }
        public static void LogWarning(object message, Object context) { Console.WriteLine("warning: " + message); }
    }

    public class Canvas : Behaviour { public RenderMode renderMode { get; set; } }

    public static class GUI
    {
        /// <summary>Of the stub: what was drawn last.</summary>
        public static Texture Drawn;
        public static void DrawTexture(Rect position, Texture image) { Drawn = image; }
    }

    public static class GUILayoutUtility { public static Rect GetAspectRect(float aspect) { return new Rect(); } }

    public class GUILayoutOption { }

    public static class GUILayout
    {
        /// <summary>Of the stub: the button that a person presses.</summary>
        public static string Pressed;
        public static bool Button(string text, params GUILayoutOption[] options) { return text == Pressed; }
    }
}
