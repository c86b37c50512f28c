using System;
using System.Collections.Generic;

namespace AnimeGamer
{
    /// <summary>What a frame's bytes are.</summary>
    public enum Codecs { Raw, Jpeg }

    /// <summary>Order of a raw picture's bytes.</summary>
    public enum PixelFormats { Rgb24, Rgba32, Bgra32 }

    /// <summary>
    /// One picture. It belongs to whoever read the event, until <see cref="Release"/>: then its memory is used for another one.
    /// </summary>
    public sealed class Frame
    {
        readonly FramePool _pool;
        bool _released;

        /// <summary>Raw: rows of Stride bytes, the lowest first with the option Flip. Jpeg: the file's bytes.</summary>
        public byte[] Data { get; }

        /// <summary>The turn that it is of, from 1.</summary>
        public long Turn { get; internal set; }

        /// <summary>Number in its turn, from 0, of Count pictures.</summary>
        public int Index { get; internal set; }
        public int Count { get; internal set; }

        /// <summary>In pixels.</summary>
        public int Width { get; private set; }
        public int Height { get; private set; }

        /// <summary>Bytes from one row to the next; 0 unless raw.</summary>
        public int Stride { get; private set; }
        public PixelFormats PixelFormat { get; private set; }
        public Codecs Codec { get; private set; }

        internal Frame(FramePool pool, int length)
        {
            _pool = pool;
            Data = new byte[length];
        }

        /// <summary>Bytes of one pixel.</summary>
        public int PixelBytes { get { return PixelFormat == PixelFormats.Rgb24 ? 3 : 4; } }

        /// <summary>Bytes of the picture without gaps between rows: Width x Height x PixelBytes. Such a picture begins
        /// at Data[0]: gaps that the server sent were removed.</summary>
        public int PictureBytes { get { return Width * Height * PixelBytes; } }

        /// <summary>Give the memory back. The frame must not be used after it; a second call does nothing.</summary>
        public void Release()
        {
            if (_released) return;
            _released = true;
            _pool.Return(this);
        }

        /// <summary>Write this raw picture, with another of its size drawn over it with this weight (0..1), into `pixels`.</summary>
        public void Fade(Frame over, double weight, byte[] pixels)
        {
            var part = (int)(256 * weight);
            for (int i = 0; i < PictureBytes; i++) pixels[i] = (byte)(Data[i] + ((over.Data[i] - Data[i]) * part >> 8));
        }

        internal void Reuse() { _released = false; }

        internal void ReadPicture(MsgView fields)
        {
            Index = (int)fields.Int("index", 0, int.MaxValue);
            Count = (int)fields.Int("count", 1, int.MaxValue);
            Width = (int)fields.Int("width", 1, 65535);
            Height = (int)fields.Int("height", 1, 65535);
            Stride = (int)fields.Int("stride", 0, int.MaxValue);
            MsgView format = fields.Find("pixel_format"), codec = fields.Find("codec");
            if (format.Is("rgba32")) PixelFormat = PixelFormats.Rgba32;
            else if (format.Is("bgra32")) PixelFormat = PixelFormats.Bgra32;
            else if (format.Is("rgb24")) PixelFormat = PixelFormats.Rgb24;
            else throw MsgFields.Bad("pixel_format", "rgb24, rgba32 or bgra32");
            if (codec.Is("jpeg")) Codec = Codecs.Jpeg;
            else if (!codec.Is("raw")) throw MsgFields.Bad("codec", "raw or jpeg");
            else
            {
                Codec = Codecs.Raw;
                int row = Width * PixelBytes;
                if (Stride < row || (long)Stride * Height != Data.Length)
                    throw new AnimeGamerException("bad_field", "received " + Data.Length + " bytes for a picture of "
                        + Width + " x " + Height + ", stride " + Stride);
                for (int y = 1; Stride > row && y < Height; y++)
                    Buffer.BlockCopy(Data, y * Stride, Data, y * row, row);
                Stride = row;
            }
        }
    }

    /// <summary>Frames of one size, used again and again. Used by several threads.</summary>
    sealed class FramePool
    {
        const int Most = 64;
        readonly Stack<Frame> _free = new Stack<Frame>(Most);
        int _length;

        /// <summary>A frame whose Data has exactly this length; its content is that of an earlier frame.</summary>
        public Frame Take(int length)
        {
            lock (_free)
            {
                if (length != _length)
                {
                    _free.Clear();
                    _length = length;
                }
                if (_free.Count > 0)
                {
                    Frame frame = _free.Pop();
                    frame.Reuse();
                    return frame;
                }
            }
            return new Frame(this, length);
        }

        public void Return(Frame frame)
        {
            lock (_free)
                if (frame.Data.Length == _length && _free.Count < Most) _free.Push(frame);
        }
    }
}
