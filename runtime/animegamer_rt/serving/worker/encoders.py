"""Encodes frames as JPEG, the same bytes for the same frame."""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
import numpy.typing as npt

Frame = npt.NDArray[np.uint8]
"""One frame [H, W, C]."""

# Quantisers of the library's MJPEG encoder: 1 (finest) to 31. Its table is that of MPEG-1 times quantiser / 8, on
# average half of the JPEG standard's table, which is the one for quality 50: hence 15 for quality 50.
FINEST, STANDARD, COARSEST = 1, 15, 31


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
