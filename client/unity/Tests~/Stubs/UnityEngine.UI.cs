// The part of UnityEngine.UI (com.unity.ugui) that the samples use.
using UnityEngine.Events;

namespace UnityEngine.EventSystems
{
    public class UIBehaviour : MonoBehaviour { }
    public class EventSystem : UIBehaviour { public static EventSystem current { get; set; } }
    public class StandaloneInputModule : UIBehaviour { }
}

namespace UnityEngine.UI
{
    using UnityEngine.EventSystems;

    public class CanvasScaler : UIBehaviour { }
    public class GraphicRaycaster : UIBehaviour { }
    public class RawImage : UIBehaviour { public Texture texture { get; set; } }
    public class Text : UIBehaviour { public string text { get; set; } }

    public class InputField : UIBehaviour
    {
        public class SubmitEvent : UnityEvent<string> { }
        public InputField() { onSubmit = new SubmitEvent(); }
        public string text { get; set; }
        public SubmitEvent onSubmit { get; set; }
        public void ActivateInputField() { }
    }

    public static class DefaultControls
    {
        public struct Resources { }
        public static GameObject CreateInputField(Resources resources) { return Make<InputField>(); }
        public static GameObject CreateText(Resources resources) { return Make<Text>(); }
        public static GameObject CreateRawImage(Resources resources) { return Make<RawImage>(); }

        static GameObject Make<T>() where T : Component
        {
            var made = new GameObject(typeof(T).Name);
            made.AddComponent<T>();
            made.AddComponent<RectTransform>();
            return made;
        }
    }
}
