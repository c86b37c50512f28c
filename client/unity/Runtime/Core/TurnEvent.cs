namespace AnimeGamer
{
    public enum TurnEventKind { Accepted, Understood, State, Progress, Frame, Restarting, Done, Error }

    /// <summary>The server has accepted the turn. Place: turns before it; EstimateSeconds: until it is done.</summary>
    public sealed class Accepted
    {
        public string TurnId, Instruction;
        public long Place;
        public double EstimateSeconds;

        /// <summary>True: the turn was finished before, and comes again.</summary>
        public bool Replayed;
    }

    /// <summary>One thing to tell the player: a code of PROTOCOL.md's section Answers and its fields. Value may be null.</summary>
    public sealed class Answer
    {
        public string Code, Value;
        public string[] People, Words;

        internal static Answer[] ReadAll(MsgView list)
        {
            var answers = new Answer[list.Kind == MsgKind.List ? list.Count : 0];
            MsgView each = answers.Length > 0 ? list.First() : list;
            for (int i = 0; i < answers.Length; i++)
            {
                answers[i] = new Answer
                {
                    Code = each.Text("code"),
                    Value = each.TextOr("value", null),
                    People = each.TextsOrNone("people"),
                    Words = each.TextsOrNone("words"),
                };
                if (i + 1 < answers.Length) each = each.Next();
            }
            return answers;
        }
    }

    /// <summary>What the instruction was taken to mean, of a bundle that reads everyday words; or what was seen in the picture
    /// that a game starts from.</summary>
    public sealed class Understood
    {
        /// <summary>A line for the player: what changes.</summary>
        public string Text;

        /// <summary>What was not understood, for the player; null if all was.</summary>
        public string Notice;

        /// <summary>Both in codes, to say them in the player's language.</summary>
        public Answer[] Answers;

        public string Motion, Place, Hour;

        /// <summary>Words that ask for what the bundle cannot draw, in lower case.</summary>
        public string[] Unknown;

        internal static Understood Read(MsgView fields)
        {
            return new Understood
            {
                Text = fields.Text("text"),
                Notice = fields.TextOr("notice", null),
                Answers = Answer.ReadAll(fields.Find("answer")),
                Motion = fields.Text("motion"),
                Place = fields.Text("place"),
                Hour = fields.Text("hour"),
                Unknown = fields.TextsOrNone("unknown"),
            };
        }
    }

    /// <summary>What the turn does to the game; it comes before the first picture. Strengths are -5..5.</summary>
    public sealed class GameState
    {
        public int MotionLevel, Social, Entertainment, Stamina;

        /// <summary>The values after this turn, and the values to display.</summary>
        public Character Character, Shown;

        /// <summary>Mean optical flow, pixels a frame.</summary>
        public double MotionScope;
    }

    /// <summary>The turn is finished and saved; the game now has Turns turns. Times are in seconds.</summary>
    public sealed class Done
    {
        public long Turns;
        public double QueueSeconds, PredictorSeconds, DenoiserSeconds, VaeSeconds, TotalSeconds;
    }

    /// <summary>
    /// One event of a turn. Done or Error is the last. Accepted, State and Done are objects of their own, a few each
    /// turn; Progress and Frame allocate nothing.
    /// </summary>
    public struct TurnEvent
    {
        public TurnEventKind Kind;

        /// <summary>The turn's number, from 1 (0 in the Error of a turn that was never accepted); the event's, from 0.</summary>
        public long Turn, Seq;

        /// <summary>Progress: denoise step Step of Steps is done. Restarting: Step is the attempt.</summary>
        public int Step, Steps;

        /// <summary>Progress: estimate until the last step. Restarting: until the worker starts.</summary>
        public double SecondsLeft;

        internal object Data;

        public Accepted Accepted { get { return Data as Accepted; } }
        public Understood Understood { get { return Data as Understood; } }
        public GameState State { get { return Data as GameState; } }

        /// <summary>Of Frame: call its Release when it was shown.</summary>
        public Frame Frame { get { return Data as Frame; } }
        public Done Done { get { return Data as Done; } }
        public AnimeGamerException Error { get { return Data as AnimeGamerException; } }

        // The event in a message; false if its type is unknown. `frame` holds the message's buffer, or is null.
        internal static bool Read(Header header, Frame frame, out TurnEvent result)
        {
            MsgView type = header.Type, fields = header.Fields;
            result = new TurnEvent { Turn = header.Turn, Seq = header.Seq };
            if (type.Is("frame"))
            {
                if (frame == null) throw new AnimeGamerException("bad_field", "received a frame without its buffer");
                frame.ReadPicture(fields);
                result.Kind = TurnEventKind.Frame;
                frame.Turn = header.Turn;
                result.Data = frame;
            }
            else if (type.Is("progress"))
            {
                result.Kind = TurnEventKind.Progress;
                result.Step = (int)fields.Int("step", 0, int.MaxValue);
                result.Steps = (int)fields.Int("steps", 1, int.MaxValue);
                result.SecondsLeft = fields.Number("seconds_left");
            }
            else if (type.Is("restarting"))
            {
                result.Kind = TurnEventKind.Restarting;
                result.Step = (int)fields.Int("attempt", 1, int.MaxValue);
                result.SecondsLeft = fields.Number("retry_in_s");
            }
            else if (type.Is("accepted"))
            {
                result.Kind = TurnEventKind.Accepted;
                result.Data = new Accepted
                {
                    TurnId = fields.Text("turn_id"),
                    Instruction = fields.Text("instruction"),
                    Place = fields.Int("place", 0),
                    EstimateSeconds = fields.Number("estimate_s"),
                    Replayed = fields.Flag("replayed"),
                };
            }
            else if (type.Is("understood"))
            {
                result.Kind = TurnEventKind.Understood;
                result.Data = Understood.Read(fields);
            }
            else if (type.Is("state"))
            {
                result.Kind = TurnEventKind.State;
                result.Data = new GameState
                {
                    MotionLevel = (int)fields.Int("motion_level", -5, 5),
                    Social = (int)fields.Int("social", -5, 5),
                    Entertainment = (int)fields.Int("entertainment", -5, 5),
                    Stamina = (int)fields.Int("stamina", -5, 5),
                    Character = Character.Read(fields.Map("character")),
                    Shown = Character.Read(fields.Map("shown")),
                    MotionScope = fields.Number("motion_scope"),
                };
            }
            else if (type.Is("done"))
            {
                MsgView seconds = fields.Map("seconds");
                result.Kind = TurnEventKind.Done;
                result.Data = new Done
                {
                    Turns = fields.Int("turns", 0),
                    QueueSeconds = seconds.Number("queue"),
                    PredictorSeconds = seconds.Number("predictor"),
                    DenoiserSeconds = seconds.Number("denoiser"),
                    VaeSeconds = seconds.Number("vae"),
                    TotalSeconds = seconds.Number("total"),
                };
            }
            else return false;
            return true;
        }
    }
}
