using System;
using System.Collections.Generic;

namespace AnimeGamer.Driver
{
    /// <summary>Decodes the messages on standard input, one a line: sender, frames in hex. Prints the header that it read,
    /// written again in hex.</summary>
    static class Vectors
    {
        public static int Run()
        {
            for (string line = Console.ReadLine(); line != null; line = Console.ReadLine())
            {
                try
                {
                    Console.WriteLine(Read(line.Split(' ')));
                }
                catch (AnimeGamerException error)
                {
                    Console.WriteLine("refused " + error.Code);
                }
            }
            return 0;
        }

        static string Read(string[] parts)
        {
            Limits limits = parts[0] == "server" ? Limits.FromServer : new Limits { HeaderBytes = 64 * 1024 };
            var frames = new List<byte[]>();
            for (int i = 1; i < parts.Length; i++) frames.Add(FromHex(parts[i]));
            if (frames.Count < 2) throw new AnimeGamerException("protocol", "too few frames");
            Codec.CheckMagic(frames[0], frames[0].Length);
            for (int i = 1; i < frames.Count; i++) Codec.CheckSize(i, (ulong)frames[i].Length, limits);
            Header header = Codec.ReadHeader(frames[1], frames[1].Length);
            if (parts[0] == "server") ReadFields(header, frames);
            MsgView map = MsgView.Check(frames[1], frames[1].Length);
            string written = BitConverter.ToString(parts[0] == "client" && map.Find("fields").Exists
                ? AsRequest(header).Encode(header.Id.Exists ? header.Id.AsText : null) : Again(map));
            return "read " + written.Replace("-", "").ToLowerInvariant();
        }

        // What the client reads of an answer.
        static void ReadFields(Header header, List<byte[]> frames)
        {
            Frame frame = null;
            if (frames.Count > 2)
            {
                frame = new FramePool().Take(frames[2].Length);
                Buffer.BlockCopy(frames[2], 0, frame.Data, 0, frames[2].Length);
            }
            bool ofTurn = header.Turn > 0 && !header.Type.Is("error") && !header.Type.Is("offer") && !header.Type.Is("wished");
            if (ofTurn) Help.Check(TurnEvent.Read(header, frame, out TurnEvent _) != header.Type.Is("clip"), "a known event, or an mp4");
            if (header.Type.Is("welcome")) Welcome.Read(header.Fields);
            if (header.Type.Is("opened")) SessionInfo.Read(header);
            if (header.Type.Is("listed")) LoggedTurn.ReadPage(header.Fields, new List<LoggedTurn>());
        }

        // A client's message, through what this package sends its requests with.
        static Request AsRequest(Header header)
        {
            var request = new Request(header.Type.AsText, header.Session.Exists ? header.Session.AsText : null, header.Turn);
            foreach (KeyValuePair<string, MsgView> pair in Pairs(header.Fields))
            {
                MsgView value = pair.Value;
                if (value.Kind == MsgKind.Text) request.With(pair.Key, value.AsText);
                else if (value.Kind == MsgKind.Bool) request.With(pair.Key, value.AsBool);
                else if (value.Kind == MsgKind.Float) request.With(pair.Key, value.AsNumber);
                else if (value.Kind == MsgKind.Int && value.AsInt(out long number)) request.With(pair.Key, number);
                else if (value.Kind == MsgKind.List)
                {
                    var items = new List<int>();
                    var texts = new List<string>();
                    foreach (MsgView item in Items(value))
                        if (item.Kind == MsgKind.Text) texts.Add(item.AsText);
                        else if (item.AsInt(out long whole)) items.Add((int)whole);
                    request.With(pair.Key, texts.Count > 0 ? (object)texts.ToArray() : items.ToArray());
                }
            }
            return request;
        }

        static byte[] Again(MsgView value)
        {
            var writer = new MsgWriter();
            Write(value, writer);
            return writer.ToArray();
        }

        static void Write(MsgView value, MsgWriter writer)
        {
            switch (value.Kind)
            {
                case MsgKind.Text: writer.Text(value.AsText); break;
                case MsgKind.Bool: writer.Bool(value.AsBool); break;
                case MsgKind.Float: writer.Float(value.AsNumber); break;
                case MsgKind.Int:
                    value.AsInt(out long number);
                    writer.Int(number);
                    break;
                case MsgKind.List:
                    writer.ListHeader(value.Count);
                    foreach (MsgView item in Items(value)) Write(item, writer);
                    break;
                case MsgKind.Map:
                    writer.MapHeader(value.Count);
                    foreach (KeyValuePair<string, MsgView> pair in Pairs(value))
                    {
                        writer.Text(pair.Key);
                        Write(pair.Value, writer);
                    }
                    break;
                default: writer.Nil(); break;
            }
        }

        static IEnumerable<MsgView> Items(MsgView list)
        {
            MsgView item = list;
            for (int i = 0; i < list.Count; i++)
            {
                item = i == 0 ? list.First() : item.Next();
                yield return item;
            }
        }

        static IEnumerable<KeyValuePair<string, MsgView>> Pairs(MsgView map)
        {
            MsgView value = map;
            for (int i = 0; i < map.Count; i++)
            {
                MsgView name = i == 0 ? map.First() : value.Next();
                value = name.Next();
                yield return new KeyValuePair<string, MsgView>(name.AsText, value);
            }
        }

        // Bytes in hex; "c0*3" are those bytes three times.
        static byte[] FromHex(string text)
        {
            string[] parts = text.Split('*');
            string hex = parts[0];
            var once = new byte[hex.Length / 2];
            for (int i = 0; i < once.Length; i++) once[i] = Convert.ToByte(hex.Substring(2 * i, 2), 16);
            var bytes = new byte[once.Length * (parts.Length > 1 ? int.Parse(parts[1]) : 1)];
            Buffer.BlockCopy(once, 0, bytes, 0, Math.Min(once.Length, bytes.Length));
            for (int at = once.Length; at > 0 && at < bytes.Length; at *= 2)
                Buffer.BlockCopy(bytes, 0, bytes, at, Math.Min(at, bytes.Length - at));
            return bytes;
        }
    }
}
