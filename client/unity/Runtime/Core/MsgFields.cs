namespace AnimeGamer
{
    /// <summary>Reads a message's fields by name. Throws `missing_field` and `bad_field`, which say what was expected.</summary>
    static class MsgFields
    {
        public static long Int(this MsgView map, string name, long least = long.MinValue, long most = long.MaxValue)
        {
            MsgView value = Require(map, name);
            if (value.Kind == MsgKind.Int && value.AsInt(out long number) && number >= least && number <= most)
                return number;
            throw Bad(name, least == long.MinValue ? "a whole number" : "a whole number, " + least + ".." + most);
        }

        public static double Number(this MsgView map, string name)
        {
            MsgView value = Require(map, name);
            if (value.Kind == MsgKind.Int || value.Kind == MsgKind.Float)
            {
                double number = value.AsNumber;
                if (!double.IsNaN(number) && !double.IsInfinity(number)) return number;
            }
            throw Bad(name, "a number");
        }

        public static bool Flag(this MsgView map, string name)
        {
            MsgView value = Require(map, name);
            return value.Kind == MsgKind.Bool ? value.AsBool : throw Bad(name, "true or false");
        }

        public static string Text(this MsgView map, string name)
        {
            MsgView value = Require(map, name);
            return value.Kind == MsgKind.Text ? value.AsText : throw Bad(name, "text");
        }

        public static string TextOr(this MsgView map, string name, string absent)
        {
            return map.Find(name).Exists ? map.Text(name) : absent;
        }

        public static MsgView Map(this MsgView map, string name)
        {
            MsgView value = Require(map, name);
            return value.Kind == MsgKind.Map ? value : throw Bad(name, "a map");
        }

        public static MsgView List(this MsgView map, string name)
        {
            MsgView value = Require(map, name);
            return value.Kind == MsgKind.List ? value : throw Bad(name, "a list");
        }

        public static string[] Texts(this MsgView map, string name)
        {
            MsgView list = map.List(name);
            var texts = new string[list.Count];
            MsgView item = texts.Length > 0 ? list.First() : new MsgView();
            for (int i = 0; i < texts.Length; i++)
            {
                if (item.Kind != MsgKind.Text) throw Bad(name, "a list of texts");
                texts[i] = item.AsText;
                if (i + 1 < texts.Length) item = item.Next();
            }
            return texts;
        }

        public static string[] TextsOrNone(this MsgView map, string name)
        {
            return map.Find(name).Exists ? map.Texts(name) : new string[0];
        }

        static MsgView Require(MsgView map, string name)
        {
            MsgView value = map.Find(name);
            if (!value.Exists)
                throw new AnimeGamerException("missing_field", "the server's message has no " + name);
            return value;
        }

        internal static AnimeGamerException Bad(string name, string expected)
        {
            return new AnimeGamerException("bad_field", name + " in the server's message is not " + expected);
        }
    }
}
