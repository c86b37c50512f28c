using System;
using System.IO;
using UnityEngine;

namespace AnimeGamer
{
    /// <summary>Where a player's secret key is: in a file of its own, so that no scene, asset or build holds it.</summary>
    public static class SecretKeyFile
    {
        /// <summary>The whole path of NAME.key_secret; a relative one begins in Application.persistentDataPath. Empty stays
        /// empty. Throws `bad_argument` if there is no such file; the text does not repeat what was given.</summary>
        public static string Find(string file)
        {
            if (string.IsNullOrEmpty(file)) return "";
            try
            {
                string path = Path.Combine(Application.persistentDataPath, file);
                if (File.Exists(path)) return path;
            }
            catch (ArgumentException)
            {
                // No path at all, as where somebody has put the key itself.
            }
            throw new AnimeGamerException("bad_argument", "there is no file with the path in secretKeyFile",
                "put NAME.key_secret of animegamer-rt keys new into " + Application.persistentDataPath
                    + ", and its name into secretKeyFile; never put the key itself there");
        }
    }
}
