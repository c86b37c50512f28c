using System.Runtime.CompilerServices;

[assembly: InternalsVisibleTo("AnimeGamer.Driver")]
