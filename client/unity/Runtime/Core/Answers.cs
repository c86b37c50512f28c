using System.Collections.Generic;

namespace AnimeGamer
{
    /// <summary>The character's three values, 0..100; all are 50 when a game starts.</summary>
    public struct Character
    {
        public int Stamina, Social, Entertainment;

        internal static Character Read(MsgView fields)
        {
            return new Character
            {
                Stamina = (int)fields.Int("stamina", 0, 100),
                Social = (int)fields.Int("social", 0, 100),
                Entertainment = (int)fields.Int("entertainment", 0, 100),
            };
        }
    }

    /// <summary>What the server says of itself. State: starting, ready, degraded, draining, or one of a newer server.</summary>
    public sealed class Welcome
    {
        public string Server, Protocol, State, Bundle, Plan;

        /// <summary>Of a frame, in pixels.</summary>
        public int Width, Height;

        /// <summary>Frames of a turn, and how many are shown in a second.</summary>
        public int Frames;
        public double FramesPerSecond;

        /// <summary>True: a model for timing only; its pictures are noise.</summary>
        public bool RandomWeights;
        public string[] Capabilities;

        /// <summary>What can be shown, of a bundle that reads everyday words; else empty. To offer them to a player.</summary>
        public string[] People, Motions, Places, Hours, Clothes, Manners;

        /// <summary>Longest instruction, in Unicode characters; longest header of a request, in bytes.</summary>
        public int TextCharacters, HeaderBytes;

        internal static Welcome Read(MsgView fields)
        {
            MsgView bundle = fields.Map("bundle"), limits = fields.Map("limits");
            return new Welcome
            {
                Server = fields.Text("server"),
                Protocol = fields.Text("protocol"),
                State = fields.Text("state"),
                Bundle = bundle.Text("name"),
                Plan = bundle.Text("plan"),
                Width = (int)bundle.Int("width", 1, 65535),
                Height = (int)bundle.Int("height", 1, 65535),
                Frames = (int)bundle.Int("frames", 1, int.MaxValue),
                FramesPerSecond = bundle.Number("fps"),
                RandomWeights = bundle.Flag("random_weights"),
                Capabilities = fields.Texts("capabilities"),
                People = bundle.TextsOrNone("people"),
                Motions = bundle.TextsOrNone("motions"),
                Places = bundle.TextsOrNone("places"),
                Hours = bundle.TextsOrNone("hours"),
                Clothes = bundle.TextsOrNone("clothes"),
                Manners = bundle.TextsOrNone("manners"),
                TextCharacters = (int)limits.Int("text_characters", 0, int.MaxValue),
                HeaderBytes = (int)limits.Int("header_bytes", 0, int.MaxValue),
            };
        }
    }

    /// <summary>A session as the client knows it.</summary>
    sealed class SessionInfo
    {
        public string Id, Token, RunningTurnId;
        public long Seed, Turns, RunningTurn;
        public int HistoryTurns;
        public Character Character;
        public Understood Seen;

        public static SessionInfo Read(Header header)
        {
            MsgView fields = header.Fields, running = fields.Find("running"), seen = fields.Find("understood");
            if (!header.Session.Exists) throw new AnimeGamerException("missing_field", "`opened` has no session");
            bool runs = running.Kind == MsgKind.Map;
            return new SessionInfo
            {
                Id = header.Session.AsText,
                Token = fields.Text("token"),
                Seed = fields.Int("seed", 0),
                HistoryTurns = (int)fields.Int("history_turns", 0, 16),
                Turns = fields.Int("turns", 0),
                Character = Character.Read(fields.Map("character")),
                RunningTurn = runs ? running.Int("turn", 1) : 0,
                RunningTurnId = runs ? running.Text("turn_id") : null,
                Seen = seen.Kind == MsgKind.Map ? Understood.Read(seen) : null,
            };
        }

        public Request Request(string type, long turn = 0)
        {
            return new Request(type, Id, turn).With("token", Token);
        }
    }

    /// <summary>Instructions that a server which plays ahead answers at once, and the number that their turn would have.</summary>
    sealed class Offer
    {
        public static readonly Offer None = new Offer { Instructions = new string[0] };
        public long Turn;
        public string[] Instructions;

        public static Offer Read(Header header)
        {
            return new Offer { Turn = header.Turn, Instructions = header.Fields.Texts("instructions") };
        }
    }

    /// <summary>A finished turn in a game's log. The strengths are -5..5.</summary>
    public sealed class LoggedTurn
    {
        public long Turn;
        public string TurnId, Instruction;
        public int MotionLevel, Social, Entertainment, Stamina;

        internal static void ReadPage(MsgView fields, List<LoggedTurn> into)
        {
            MsgView list = fields.List("turns");
            MsgView entry = list.Count > 0 ? list.First() : list;
            for (int left = list.Count; left > 0; left--)
            {
                if (entry.Kind != MsgKind.Map) throw MsgFields.Bad("turns", "a list of maps");
                into.Add(new LoggedTurn
                {
                    Turn = entry.Int("turn", 1),
                    TurnId = entry.Text("turn_id"),
                    Instruction = entry.Text("instruction"),
                    MotionLevel = (int)entry.Int("motion_level", -5, 5),
                    Social = (int)entry.Int("social", -5, 5),
                    Entertainment = (int)entry.Int("entertainment", -5, 5),
                    Stamina = (int)entry.Int("stamina", -5, 5),
                });
                if (left > 1) entry = entry.Next();
            }
        }
    }
}
