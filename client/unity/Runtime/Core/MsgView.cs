using System;
using System.Text;

namespace AnimeGamer
{
    /// <summary>What a msgpack value is.</summary>
    public enum MsgKind { None, Nil, Bool, Int, Float, Text, Bytes, List, Map }

    /// <summary>
    /// One msgpack value, read in place: nothing is copied or allocated until a text is asked for.
    /// It is valid as long as the bytes below it are. <see cref="Check"/> reads untrusted bytes; all else trusts it.
    /// </summary>
    public struct MsgView
    {
        const int MaxDepth = 32;
        const int MaxItems = 1024;
        static readonly UTF8Encoding Utf8 = new UTF8Encoding(false, true);

        readonly byte[] _data;
        readonly int _at;

        MsgView(byte[] data, int at)
        {
            _data = data;
            _at = at;
        }

        /// <summary>The value in the first `length` bytes. Throws `protocol` unless they are exactly one value.</summary>
        public static MsgView Check(byte[] data, int length)
        {
            if (Skip(data, 0, length, 0) != length) throw Bad("there are bytes after its end");
            return new MsgView(data, 0);
        }

        /// <summary>What the value is; None if there is none.</summary>
        public MsgKind Kind
        {
            get
            {
                if (_data == null) return MsgKind.None;
                byte tag = _data[_at];
                if (tag <= 0x7f || tag >= 0xe0 || (tag >= 0xcc && tag <= 0xd3)) return MsgKind.Int;
                if (tag <= 0x8f || tag == 0xde || tag == 0xdf) return MsgKind.Map;
                if (tag <= 0x9f || tag == 0xdc || tag == 0xdd) return MsgKind.List;
                if (tag <= 0xbf || (tag >= 0xd9 && tag <= 0xdb)) return MsgKind.Text;
                if (tag == 0xc0) return MsgKind.Nil;
                if (tag == 0xc2 || tag == 0xc3) return MsgKind.Bool;
                return tag == 0xca || tag == 0xcb ? MsgKind.Float : MsgKind.Bytes;
            }
        }

        /// <summary>Whether there is a value.</summary>
        public bool Exists { get { return _data != null; } }

        /// <summary>Items of a list or pairs of a map; bytes of a text.</summary>
        public int Count { get { return Size(_data, _at, out int _); } }

        /// <summary>A Bool's value.</summary>
        public bool AsBool { get { return _data[_at] == 0xc3; } }

        /// <summary>A Text's value, copied.</summary>
        public string AsText
        {
            get
            {
                int size = Size(_data, _at, out int start);
                return Utf8.GetString(_data, start, size);
            }
        }

        /// <summary>A Float's or Int's value.</summary>
        public double AsNumber
        {
            get
            {
                byte tag = _data[_at];
                if (tag == 0xcb) return BitConverter.Int64BitsToDouble((long)BigEndian(_data, _at + 1, 8));
                if (tag == 0xca) return Float32((uint)BigEndian(_data, _at + 1, 4));
                return AsInt(out long value) ? value : (double)ulong.MaxValue;
            }
        }

        /// <summary>An Int's value; false if it does not fit into 64 signed bits.</summary>
        public bool AsInt(out long value)
        {
            byte tag = _data[_at];
            if (tag <= 0x7f) value = tag;
            else if (tag >= 0xe0) value = (sbyte)tag;
            else
            {
                int bytes = 1 << (tag & 3);
                ulong raw = BigEndian(_data, _at + 1, bytes);
                if (tag >= 0xd0) value = (long)(raw << (64 - 8 * bytes)) >> (64 - 8 * bytes);
                else
                {
                    value = (long)raw;
                    return value >= 0;
                }
            }
            return true;
        }

        /// <summary>Whether this is that text. Letters of ASCII only.</summary>
        public bool Is(string ascii)
        {
            if (Kind != MsgKind.Text) return false;
            int size = Size(_data, _at, out int start);
            if (size != ascii.Length) return false;
            for (int i = 0; i < size; i++)
                if (_data[start + i] != ascii[i]) return false;
            return true;
        }

        /// <summary>A text of decimal digits as a number; -1 if it is not one of at most 18 digits.</summary>
        public long Digits()
        {
            int size = Size(_data, _at, out int start);
            if (size == 0 || size > 18) return -1;
            long value = 0;
            for (int i = 0; i < size; i++)
            {
                int digit = _data[start + i] - '0';
                if (digit < 0 || digit > 9) return -1;
                value = 10 * value + digit;
            }
            return value;
        }

        /// <summary>Unicode characters of a text.</summary>
        public int Characters()
        {
            int size = Size(_data, _at, out int start), characters = 0;
            for (int i = 0; i < size; i++)
                if ((_data[start + i] & 0xc0) != 0x80) characters++;
            return characters;
        }

        /// <summary>The first value of a list, or the first key of a map.</summary>
        public MsgView First()
        {
            Size(_data, _at, out int start);
            return new MsgView(_data, start);
        }

        /// <summary>What follows this value in its list or map; only if something does.</summary>
        public MsgView Next() { return new MsgView(_data, Skip(_data, _at, _data.Length, 0)); }

        /// <summary>A map's value by its key; one that does not exist if there is none.</summary>
        public MsgView Find(string key)
        {
            MsgView name = First();
            for (int left = Count; left > 0; left--)
            {
                MsgView value = name.Next();
                if (name.Is(key)) return value;
                if (left > 1) name = value.Next();
            }
            return new MsgView();
        }

        // The end of the value that begins at `at`; throws unless it is whole and of the kinds that the protocol has.
        static int Skip(byte[] data, int at, int end, int depth)
        {
            if (depth > MaxDepth) throw Bad("it is nested more than " + MaxDepth + " deep");
            if (at >= end) throw Bad("it is cut short");
            byte tag = data[at];
            if (tag == 0xc1 || (tag >= 0xc7 && tag <= 0xc9) || (tag >= 0xd4 && tag <= 0xd8))
                throw Bad("it holds a value of a kind that is not used here");
            int prefix = PrefixBytes(tag);
            if (end - at < prefix) throw Bad("it is cut short");
            MsgKind kind = new MsgView(data, at).Kind;
            if (kind == MsgKind.Nil || kind == MsgKind.Bool || kind == MsgKind.Int || kind == MsgKind.Float)
                return at + prefix;
            long size = LongSize(data, at, prefix);
            at += prefix;
            if (kind == MsgKind.Text || kind == MsgKind.Bytes)
            {
                if (size > end - at) throw Bad("it is cut short");
                if (kind == MsgKind.Text) CheckText(data, at, (int)size);
                return at + (int)size;
            }
            if (size > MaxItems) throw Bad("it has a list or map of more than " + MaxItems);
            for (long i = 0; i < size; i++)
            {
                if (kind == MsgKind.Map)
                {
                    if (at < end && new MsgView(data, at).Kind != MsgKind.Text) throw Bad("a key is not text");
                    at = Skip(data, at, end, depth + 1);
                }
                at = Skip(data, at, end, depth + 1);
            }
            return at;
        }

        static void CheckText(byte[] data, int at, int size)
        {
            try
            {
                Utf8.GetCharCount(data, at, size);
            }
            catch (ArgumentException)
            {
                throw Bad("a text is not UTF-8");
            }
        }

        // Bytes before the content of a text, list or map; all bytes of a number.
        static int PrefixBytes(byte tag)
        {
            if (tag < 0xc0 || tag >= 0xe0) return 1;
            switch (tag)
            {
                case 0xcc: case 0xd0: case 0xd9: case 0xc4: return 2;
                case 0xcd: case 0xd1: case 0xda: case 0xc5: case 0xdc: case 0xde: return 3;
                case 0xca: case 0xce: case 0xd2: case 0xdb: case 0xc6: case 0xdd: case 0xdf: return 5;
                case 0xcb: case 0xcf: case 0xd3: return 9;
                default: return 1;
            }
        }

        static long LongSize(byte[] data, int at, int prefix)
        {
            byte tag = data[at];
            if (prefix > 1) return (long)BigEndian(data, at + 1, prefix - 1);
            return tag >= 0xa0 ? tag & 0x1f : tag & 0x0f;
        }

        static int Size(byte[] data, int at, out int start)
        {
            int prefix = PrefixBytes(data[at]);
            start = at + prefix;
            return (int)LongSize(data, at, prefix);
        }

        static float Float32(uint bits) { return BitConverter.ToSingle(BitConverter.GetBytes(bits), 0); }

        internal static ulong BigEndian(byte[] data, int at, int bytes)
        {
            ulong value = 0;
            for (int i = 0; i < bytes; i++) value = (value << 8) | data[at + i];
            return value;
        }

        static AnimeGamerException Bad(string what)
        {
            return new AnimeGamerException("protocol", "the header is not msgpack of this protocol: " + what);
        }
    }
}
