"""Encodes frames that are not sent raw: one JPEG each, or a clip as a fragmented mp4 in chunks. Deterministic."""

from __future__ import annotations

import io
from fractions import Fraction

import av
import numpy as np
import numpy.typing as npt

from animegamer_rt.video import CRF

Frame = npt.NDArray[np.uint8]
"""One frame [H, W, C]."""

AV_FORMATS = {"rgb24": "rgb24", "rgba32": "rgba", "bgra32": "bgra"}
"""Pixel format -> its name in the codec library."""

# Quantisers of the library's MJPEG encoder: 1 (finest) to 31. Its table is that of MPEG-1 times quantiser / 8, on
# average half of the JPEG standard's table, which is the one for quality 50: hence 15 for quality 50.
FINEST, STANDARD, COARSEST = 1, 15, 31
FRAGMENTED = "frag_keyframe+empty_moov+default_base_moof"
"""mp4 flags that let a file be played while it is written, and be written without seeking."""


class JpegEncoder:
    """Encodes baseline JPEGs of one size and quality, with full colour resolution to keep flat colours' edges sharp."""

    def __init__(self, height: int, width: int, quality: int) -> None:
        codec = av.CodecContext.create("mjpeg", "w")
        assert isinstance(codec, av.VideoCodecContext)
        codec.height, codec.width, codec.pix_fmt, codec.time_base = height, width, "yuvj444p", Fraction(1)
        codec.qmin = codec.qmax = jpeg_quantiser(quality)
        codec.thread_count = 1
        self._codec = codec

    def encode(self, frame: Frame) -> bytes:
        """Encode one rgb24 frame."""
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        picture = picture.reformat(format="yuvj444p", dst_color_range="JPEG")
        return b"".join(bytes(packet) for packet in self._codec.encode(picture))


def jpeg_quantiser(quality: int) -> int:
    """The MJPEG quantiser for a JPEG quality of 1..100, scaled as in the JPEG group's own encoder."""
    scale = 50 / quality if quality < 50 else (100 - quality) / 50
    return max(FINEST, min(COARSEST, round(STANDARD * scale)))


class ClipEncoder:
    """Encodes one clip; every call returns the newly written bytes of the mp4."""

    def __init__(self, height: int, width: int, fps: int, pixel_format: str) -> None:
        self._format = AV_FORMATS[pixel_format]
        self._written = _Pipe()
        self._container = av.open(self._written, "w", format="mp4", options={"movflags": FRAGMENTED})
        self._stream = self._container.add_stream("libx264", rate=fps)
        # 4:2:0 colour needs even sides.
        self._stream.height, self._stream.width, self._stream.pix_fmt = height // 2 * 2, width // 2 * 2, "yuv420p"
        self._stream.options = {"preset": "ultrafast", "tune": "zerolatency", "crf": CRF}

    def add(self, frame: Frame) -> bytes:
        """Encode one frame in the pixel format given at the start; often returns no bytes yet."""
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format=self._format)
        picture = picture.reformat(self._stream.width, self._stream.height, "yuv420p")
        self._container.mux(self._stream.encode(picture))
        return self._written.take()

    def finish(self) -> bytes:
        """The rest of the file, never empty."""
        self._container.mux(self._stream.encode(None))
        self.close()
        return self._written.take()

    def close(self) -> None:
        """Close the encoder, even of an abandoned clip: its threads would otherwise wait for the garbage collector."""
        self._container.close()


class _Pipe(io.RawIOBase):
    """A write-only file; `take` returns what was written since the last call."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)  # type: ignore[call-overload]
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole
