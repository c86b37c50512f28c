using System;
using Unity.Collections;
using UnityEngine;
using UnityEngine.Events;

namespace AnimeGamer
{
    [Serializable] public sealed class TextureEvent : UnityEvent<Texture> { }

    /// <summary>
    /// Shows a session's clips as a texture, as its Display says: at their own rate, held, looped, faded into each other. A view that is added
    /// late shows the picture of the moment at once. Several views of one session may show the same.
    /// </summary>
    [AddComponentMenu("AnimeGamer/Turn View")]
    public sealed class TurnView : MonoBehaviour
    {
        public AnimeGamerSession session;

        [Tooltip("Optional: its material shows the picture.")]
        public Renderer target;

        [Tooltip("Name of the material's texture: _MainTex, or _BaseMap in URP and HDRP.")]
        public string property = "_MainTex";

        [Tooltip("Called when there is a new texture, as for a RawImage's texture. Its content changes without a call.")]
        public TextureEvent onTexture = new TextureEvent();

        Texture2D _texture;
        MaterialPropertyBlock _block;
        byte[] _faded = new byte[0];
        int _version = -1;

        /// <summary>The picture; null before the first one. Destroyed with this component.</summary>
        public Texture2D Texture { get { return _texture; } }

        // After the session's Update, so that a picture is shown in the game's frame in which it is due.
        void LateUpdate()
        {
            if (session == null || session.Display.Version == _version) return;
            ClipDisplay display = session.Display;
            _version = display.Version;
            if (display.Picture != null) Show(display.Picture, display.Next ?? display.Picture, display.Blend);
        }

        void OnDestroy()
        {
            if (_texture != null) Destroy(_texture);
            _texture = null;
        }

        // Show `frame`, faded in over the picture before it, if that has its size.
        void Show(Frame before, Frame frame, double blend)
        {
            if (_texture == null || _texture.width != frame.Width || _texture.height != frame.Height) Make(frame);
            byte[] data = frame.Data;
            if (before != frame && before.PictureBytes == frame.PictureBytes)
            {
                Array.Resize(ref _faded, frame.PictureBytes);
                before.Fade(frame, blend, data = _faded);
            }
            NativeArray<byte> pixels = _texture.GetRawTextureData<byte>();
            NativeArray<byte>.Copy(data, 0, pixels, 0, frame.PictureBytes);
            _texture.Apply(false);
        }

        void Make(Frame frame)
        {
            if (_texture != null) Destroy(_texture);
            _texture = new Texture2D(frame.Width, frame.Height, TextureFormat.RGBA32, false)
            {
                name = "AnimeGamer turn",
                wrapMode = TextureWrapMode.Clamp,
                hideFlags = HideFlags.DontSave,
            };
            if (target != null)
            {
                if (_block == null) _block = new MaterialPropertyBlock();
                target.GetPropertyBlock(_block);
                _block.SetTexture(property, _texture);
                target.SetPropertyBlock(_block);
            }
            onTexture.Invoke(_texture);
        }
    }
}
