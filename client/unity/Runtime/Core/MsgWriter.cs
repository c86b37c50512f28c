using System;
using System.Text;

namespace AnimeGamer
{
    /// <summary>Writes msgpack: the shortest integers and text headers, 64-bit floats.</summary>
    public sealed class MsgWriter
    {
        static readonly UTF8Encoding Utf8 = new UTF8Encoding(false, true);

        byte[] _data = new byte[256];

        /// <summary>Bytes written.</summary>
        public int Length { get; private set; }

        /// <summary>A copy of what was written.</summary>
        public byte[] ToArray()
        {
            var copy = new byte[Length];
            Buffer.BlockCopy(_data, 0, copy, 0, Length);
            return copy;
        }

        /// <summary>nil, which requests do not have.</summary>
        public void Nil() { Byte(0xc0); }

        public void Bool(bool value) { Byte(value ? 0xc3 : 0xc2); }

        public void Float(double value) { Tagged(0xcb, (ulong)BitConverter.DoubleToInt64Bits(value), 8); }

        public void Int(long value)
        {
            if (value >= 0)
            {
                if (value <= 0x7f) Byte((int)value);
                else if (value <= 0xff) Tagged(0xcc, (ulong)value, 1);
                else if (value <= 0xffff) Tagged(0xcd, (ulong)value, 2);
                else if (value <= 0xffffffff) Tagged(0xce, (ulong)value, 4);
                else Tagged(0xcf, (ulong)value, 8);
            }
            else if (value >= -32) Byte((int)(value & 0xff));
            else if (value >= sbyte.MinValue) Tagged(0xd0, (ulong)value, 1);
            else if (value >= short.MinValue) Tagged(0xd1, (ulong)value, 2);
            else if (value >= int.MinValue) Tagged(0xd2, (ulong)value, 4);
            else Tagged(0xd3, (ulong)value, 8);
        }

        /// <summary>Throws `bad_field` for text that is not Unicode (half of a surrogate pair).</summary>
        public void Text(string value)
        {
            byte[] bytes;
            try
            {
                bytes = Utf8.GetBytes(value);
            }
            catch (EncoderFallbackException)
            {
                throw new AnimeGamerException(
                    "bad_field", "a text holds half of a surrogate pair", "send whole Unicode characters");
            }
            if (bytes.Length <= 31) Byte(0xa0 | bytes.Length);
            else if (bytes.Length <= 0xff) Tagged(0xd9, (ulong)bytes.Length, 1);
            else if (bytes.Length <= 0xffff) Tagged(0xda, (ulong)bytes.Length, 2);
            else Tagged(0xdb, (ulong)bytes.Length, 4);
            Raw(bytes, bytes.Length);
        }

        public void ListHeader(int items)
        {
            if (items <= 15) Byte(0x90 | items);
            else Tagged(0xdc, (ulong)items, 2);
        }

        public void MapHeader(int pairs)
        {
            if (pairs <= 15) Byte(0x80 | pairs);
            else Tagged(0xde, (ulong)pairs, 2);
        }

        internal void Byte(int value)
        {
            Reserve(1);
            _data[Length++] = (byte)value;
        }

        internal void Tagged(int tag, ulong value, int bytes)
        {
            Byte(tag);
            for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) Byte((int)(value >> shift) & 0xff);
        }

        internal void Raw(byte[] bytes, int count)
        {
            Reserve(count);
            Buffer.BlockCopy(bytes, 0, _data, Length, count);
            Length += count;
        }

        void Reserve(int bytes)
        {
            if (Length + bytes > _data.Length) Array.Resize(ref _data, Math.Max(Length + bytes, 2 * _data.Length));
        }
    }
}
