using System.Runtime.CompilerServices;
using UnityEngine.Scripting;

// Events in the inspector call these components by name. Unity reads no link.xml in a package, so this keeps them.
[assembly: Preserve]
[assembly: InternalsVisibleTo("AnimeGamer.Editor")]
