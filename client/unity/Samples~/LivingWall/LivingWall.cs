using UnityEngine;

namespace AnimeGamer.Samples
{
    /// <summary>
    /// A wall that lives: a material in a scene shows turn after turn. Add it to an object with a Renderer and a session,
    /// as a quad, and press Play. Without a server the wall keeps its last picture, and tries again.
    /// </summary>
    [RequireComponent(typeof(AnimeGamerSession))]
    public sealed class LivingWall : MonoBehaviour
    {
        [Tooltip("One of these is played at a time.")]
        public string[] instructions =
        {
            "Mirel walks gently in the meadow.", "Bixo jumps quickly in the city at night.", "Tofi flies smoothly in cloudland.",
        };

        [Tooltip("Seconds before the next turn, and before another try after an error.")]
        public float pauseSeconds = 2;

        [Tooltip("Seconds in which a clip is faded into the next.")]
        public float fadeSeconds = 0.5f;

        [Tooltip("_MainTex, or _BaseMap in URP and HDRP.")]
        public string property = "_MainTex";

        AnimeGamerSession _session;
        double _next;

        void Awake()
        {
            _session = GetComponent<AnimeGamerSession>();
            _session.Display.FadeSeconds = fadeSeconds;
            TurnView view = gameObject.AddComponent<TurnView>();
            view.session = _session;
            view.property = property;
            view.target = GetComponent<Renderer>();
            _session.onDone.AddListener(_ => Wait());
            _session.onError.AddListener(_ => Wait());
            _session.onReady.AddListener(() => _next = 0);
            _next = double.MaxValue;
        }

        void Update()
        {
            double now = Time.realtimeSinceStartupAsDouble;
            if (now < _next || _session.Busy) return;
            _next = double.MaxValue;
            _session.Say(instructions[Random.Range(0, instructions.Length)]);
        }

        void Wait() { _next = Time.realtimeSinceStartupAsDouble + pauseSeconds; }
    }
}
