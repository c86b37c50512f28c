using System.Threading.Tasks;
using UnityEngine;
using UnityEngine.Events;

namespace AnimeGamer.Samples
{
    /// <summary>
    /// Plays a story, a text file with an instruction on each line (empty lines and lines with # are left out). The next
    /// turn is asked for while the clip of the one before still plays.
    /// </summary>
    [RequireComponent(typeof(AnimeGamerSession))]
    public sealed class Cutscene : MonoBehaviour
    {
        [Tooltip("A text asset; story.txt lies beside this script.")]
        public TextAsset story;

        public UnityEvent onFinished = new UnityEvent();

        AnimeGamerSession _session;
        bool _told;

        void Start()
        {
            _session = GetComponent<AnimeGamerSession>();
            Run();
        }

        void Update()
        {
            if (!_told || _session.Busy || _session.Display.Playing) return;
            _told = false;
            onFinished.Invoke();
        }

        async void Run()
        {
            try
            {
                await Tell();
                _told = true;
            }
            catch (AnimeGamerException error)
            {
                if (this != null && error.Code != "closed") Debug.LogError(error.Message, this);
            }
        }

        async Task Tell()
        {
            foreach (string line in story.text.Split('\n'))
            {
                string instruction = line.Trim();
                if (instruction == "" || instruction[0] == '#') continue;
                await _session.SayAsync(instruction);
            }
        }
    }
}
