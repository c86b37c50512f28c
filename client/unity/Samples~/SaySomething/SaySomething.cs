using UnityEngine;
using UnityEngine.EventSystems;
using UnityEngine.UI;

namespace AnimeGamer.Samples
{
    /// <summary>
    /// A canvas with a picture, a line of text and a field to type in. Add it to an empty object with a session, and press
    /// Play: it makes what it needs. Enter says it; while a turn runs, Enter says the new text instead.
    /// </summary>
    [RequireComponent(typeof(AnimeGamerSession))]
    public sealed class SaySomething : MonoBehaviour
    {
        AnimeGamerSession _session;
        RawImage _picture;
        Text _line;
        InputField _field;

        void Awake()
        {
            _session = GetComponent<AnimeGamerSession>();
            MakeCanvas();
            TurnView view = gameObject.AddComponent<TurnView>();
            view.session = _session;
            view.onTexture.AddListener(texture => _picture.texture = texture);
            _line.text = "Connecting to the server, for " + _session.timeoutSeconds + " s at most ...";
            _field.onSubmit.AddListener(Say);
            _session.onReady.AddListener(() => _line.text = "Say what happens next: Mirel waves gently in the meadow.");
            _session.onUnderstood.AddListener(understood => Debug.Log(understood.Notice ?? understood.Text));
            _session.onState.AddListener(state => _line.text = "stamina " + state.Shown.Stamina + ", social "
                + state.Shown.Social + ", entertainment " + state.Shown.Entertainment);
            _session.onError.AddListener(error => { if (error.Code != "cancelled") _line.text = error.Message; });
        }

        void Say(string text)
        {
            if (text == "") return;
            _session.SayInstead(text);
            _field.text = "";
            _field.ActivateInputField();
        }

        void MakeCanvas()
        {
            var canvas = new GameObject("Canvas");
            canvas.AddComponent<Canvas>().renderMode = RenderMode.ScreenSpaceOverlay;
            canvas.AddComponent<CanvasScaler>();
            canvas.AddComponent<GraphicRaycaster>();
            var resources = new DefaultControls.Resources();
            _picture = Place(DefaultControls.CreateRawImage(resources), canvas, 0.2f, 1).GetComponent<RawImage>();
            _line = Place(DefaultControls.CreateText(resources), canvas, 0.1f, 0.2f).GetComponent<Text>();
            _field = Place(DefaultControls.CreateInputField(resources), canvas, 0, 0.1f).GetComponent<InputField>();
#if ENABLE_LEGACY_INPUT_MANAGER
            if (EventSystem.current == null)
            {
                var events = new GameObject("EventSystem");
                events.AddComponent<EventSystem>();
                events.AddComponent<StandaloneInputModule>();
            }
#else
            if (EventSystem.current == null)
                Debug.LogWarning("Add an EventSystem (GameObject > UI > Event System), so that the field can be typed in.", this);
#endif
        }

        static GameObject Place(GameObject made, GameObject canvas, float bottom, float top)
        {
            made.transform.SetParent(canvas.transform, false);
            RectTransform area = made.GetComponent<RectTransform>();
            area.anchorMin = new Vector2(0, bottom);
            area.anchorMax = new Vector2(1, top);
            area.offsetMin = area.offsetMax = Vector2.zero;
            return made;
        }
    }
}
