using UnityEngine;

namespace AnimeGamer
{
    /// <summary>
    /// The game that a session goes on with: what belongs into a save-game. In the editor the asset keeps it from one Play
    /// to the next. In a build assets are not written: put <see cref="Token"/> into your own save, and set it after loading.
    /// </summary>
    [CreateAssetMenu(fileName = "Saved Game", menuName = "AnimeGamer/Saved Game")]
    public sealed class SavedGame : ScriptableObject
    {
        [SerializeField, Tooltip("The game's secret on its server. Empty: a new game begins.")]
        string token = "";

        [SerializeField, Tooltip("Finished turns when it was last saved.")]
        long turns;

        /// <summary>The game's secret on its server; empty: a new game begins. It is a secret: do not log it.</summary>
        public string Token
        {
            get { return token; }
            set { Set(value, 0); }
        }

        /// <summary>Finished turns when it was last saved.</summary>
        public long Turns { get { return turns; } }

        /// <summary>Forget the game, so that the next Play begins a new one.</summary>
        public void Clear() { Set("", 0); }

        internal void Set(string newToken, long newTurns)
        {
            token = newToken ?? "";
            turns = newTurns;
#if UNITY_EDITOR
            UnityEditor.EditorUtility.SetDirty(this);
#endif
        }
    }
}
