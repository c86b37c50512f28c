using System.Collections.Generic;

namespace AnimeGamer
{
    /// <summary>The largest message that a receiver takes, as in PROTOCOL.md.</summary>
    public struct Limits
    {
        public int HeaderBytes, BufferBytes, Buffers;

        public static readonly Limits FromServer =
            new Limits { HeaderBytes = 256 * 1024, BufferBytes = 64 * 1024 * 1024, Buffers = 1 };
    }

    /// <summary>A message's header, read in place: valid as long as the bytes it was read from.</summary>
    public struct Header
    {
        public MsgView Type, Id, Parent, Session, Fields;

        /// <summary>The turn's number; 0 if there is none.</summary>
        public long Turn;

        /// <summary>Number in its turn; -1 if there is none.</summary>
        public long Seq;
    }

    /// <summary>A request: its fields are written in this order. Values: string, long, int, double, bool, int[], string[].</summary>
    public sealed class Request
    {
        public readonly string Type, Session;
        public readonly long Turn;

        /// <summary>Frame 2, sent as it is: the file of a picture. Null: none.</summary>
        public byte[] Buffer;
        readonly List<KeyValuePair<string, object>> _fields = new List<KeyValuePair<string, object>>();

        public Request(string type, string session = null, long turn = 0)
        {
            Type = type;
            Session = session;
            Turn = turn;
        }

        /// <summary>Add a field; null is left out.</summary>
        public Request With(string name, object value)
        {
            if (value != null) _fields.Add(new KeyValuePair<string, object>(name, value));
            return this;
        }

        /// <summary>Frame 1: the header in msgpack. Throws `bad_field` for text that is not Unicode.</summary>
        public byte[] Encode(string id)
        {
            var writer = new MsgWriter();
            writer.MapHeader(2 + (id == null ? 0 : 1) + (Session == null ? 0 : 1) + (Turn == 0 ? 0 : 1));
            Pair(writer, "type", Type);
            if (id != null) Pair(writer, "id", id);
            if (Session != null) Pair(writer, "session", Session);
            if (Turn != 0) Pair(writer, "turn", Turn);
            writer.Text("fields");
            writer.MapHeader(_fields.Count);
            foreach (KeyValuePair<string, object> field in _fields) Pair(writer, field.Key, field.Value);
            return writer.ToArray();
        }

        static void Pair(MsgWriter writer, string name, object value)
        {
            writer.Text(name);
            if (value is string text) writer.Text(text);
            else if (value is long whole) writer.Int(whole);
            else if (value is int small) writer.Int(small);
            else if (value is double number) writer.Float(number);
            else if (value is bool flag) writer.Bool(flag);
            else if (value is string[] texts)
            {
                writer.ListHeader(texts.Length);
                foreach (string each in texts) writer.Text(each);
            }
            else
            {
                var items = (int[])value;
                writer.ListHeader(items.Length);
                foreach (int item in items) writer.Int(item);
            }
        }
    }

    /// <summary>Frames of version 1 of PROTOCOL.md. Checks frames and header keys; who reads the fields checks those.</summary>
    public static class Codec
    {
        public const int Major = 1, Minor = 3;

        /// <summary>The largest file of a picture that a game may start from.</summary>
        public const int MaxPictureBytes = 8 * 1024 * 1024;
        public static readonly byte[] Magic = { (byte)'A', (byte)'G', (byte)'R', (byte)'T', Major };

        /// <summary>Throws `protocol` or `version` unless these bytes are frame 0 of a message.</summary>
        public static void CheckMagic(byte[] frame, int length)
        {
            bool known = length == Magic.Length;
            for (int i = 0; known && i < Magic.Length - 1; i++) known = frame[i] == Magic[i];
            if (!known)
                throw new AnimeGamerException("protocol", "the reply is not a message of this protocol",
                    "check that the address is a game server's");
            if (frame[4] != Major)
                throw new AnimeGamerException("version",
                    "the server speaks version " + frame[4] + ", this client speaks " + Major, "update the older one");
        }

        /// <summary>Throws `too_large` for the size of one frame; index: 1 for the header, 2 and up for buffers.</summary>
        public static void CheckSize(int index, ulong bytes, Limits limits)
        {
            if (index < 2 && bytes > (ulong)limits.HeaderBytes)
                throw new AnimeGamerException("too_large",
                    "a header has " + bytes + " bytes; expected at most " + limits.HeaderBytes);
            if (index - 1 > limits.Buffers)
                throw new AnimeGamerException("too_large", "a message has too many buffers; expected " + limits.Buffers);
            if (index >= 2 && bytes > (ulong)limits.BufferBytes)
                throw new AnimeGamerException("too_large",
                    "a buffer has " + bytes + " bytes; expected at most " + limits.BufferBytes);
        }

        /// <summary>Read frame 1. Throws `protocol`, `missing_field` or `bad_field`, whatever the bytes are.</summary>
        public static Header ReadHeader(byte[] frame, int length)
        {
            MsgView map = MsgView.Check(frame, length);
            if (map.Kind != MsgKind.Map) throw new AnimeGamerException("protocol", "the header is not a map");
            Header header;
            header.Type = Name(map, "type");
            if (!header.Type.Exists) throw new AnimeGamerException("missing_field", "the header has no type");
            header.Id = Name(map, "id");
            header.Parent = Name(map, "parent");
            header.Session = Name(map, "session");
            header.Turn = map.Find("turn").Exists ? map.Int("turn", 1) : 0;
            header.Seq = map.Find("seq").Exists ? map.Int("seq", 0) : -1;
            header.Fields = map.Find("fields");
            if (!header.Fields.Exists) header.Fields = NoFields;
            else if (header.Fields.Kind != MsgKind.Map) throw MsgFields.Bad("fields", "a map");
            return header;
        }

        static readonly MsgView NoFields = MsgView.Check(new byte[] { 0x80 }, 1);

        static MsgView Name(MsgView map, string key)
        {
            MsgView value = map.Find(key);
            if (!value.Exists) return value;
            int characters = value.Kind == MsgKind.Text ? value.Characters() : 0;
            if (characters < 1 || characters > 64) throw MsgFields.Bad(key, "text of 1 to 64 characters");
            return value;
        }
    }
}
