"""Pictures from disk as input of the image tower: decode, crop to the clip's aspect, resize, scale to -1..1.

Resizing is as in the reference (MODEL.md section 1): a Gaussian blur if the picture shrinks, then bicubic with aligned
corners. Both are linear and separable, so each axis is one matrix.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.errors import PictureError

from .picture_formats import decodable, format_of

Picture = npt.NDArray[np.uint8]
"""One RGB picture [H, W, 3]."""

MAX_MEGAPIXELS = 50
"""50 megapixels take 150 MB decoded and one second to resize; a small file can claim far more."""
LEAST_SIDE = 16
"""Pixels."""
MAX_FILE_BYTES = 512 * 2**20
"""Of the file: 50 megapixels of 16-bit colours, and some room."""
FORMATS = "a PNG, JPEG or WebP file"
CUBIC = -0.75
"""The bicubic kernel's parameter in torch (and OpenCV)."""


def read_picture(path: Path) -> Picture:
    """The picture in a PNG, JPEG or WebP file, turned as its camera says; transparent pixels become white.

    Raises PictureError if the file is missing, not such a picture, or over 50 megapixels.
    """
    try:
        content = read_bounded(path, MAX_FILE_BYTES)
    except FileNotFoundError as error:
        raise PictureError("no such picture", where=path, do="give the path of an existing picture") from error
    except (OSError, ValueError) as error:
        raise _no_picture(path, _reason(error)) from error
    return decode_picture(content, path)


def decode_picture(content: bytes, path: Path | None = None, megapixels: int = MAX_MEGAPIXELS) -> Picture:
    """The picture in a file's bytes, as in `read_picture`, of at most so many megapixels; path: for the errors.

    Raises PictureError. Its size is checked before anything of that size is allocated.
    """
    import av  # loads FFmpeg, which most games do not need

    kind = format_of(content)
    if kind is None:
        raise _no_picture(path, "no image data")
    try:
        content = decodable(content, kind)
    except ValueError as error:
        raise _no_picture(path, str(error)) from None  # our own words, which a player may see
    try:
        if kind == "png_pipe" and content[12:16] == b"IHDR":
            width, height = struct.unpack(">II", content[16:24].ljust(8, b"\0"))
            _check_size(width, height, path, megapixels)
        options = {"max_pixels": str(megapixels * 10**6)}  # opening decodes a picture to find its format
        with av.open(io.BytesIO(content), "r", format=kind, options=options) as container:
            if not container.streams.video:
                raise _no_picture(path, "no image data")
            codec = container.streams.video[0].codec_context
            if codec is None:  # missing in PyAV's annotations
                raise _no_picture(path, f"{container.format.name}, which this FFmpeg cannot decode")
            _check_size(codec.width, codec.height, path, megapixels)
            frame = next(container.decode(video=0), None)
    except (OSError, ValueError, av.FFmpegError) as error:
        raise _no_picture(path, _reason(error)) from error
    if frame is None:
        raise _no_picture(path, "no image data")
    if frame.is_corrupt:
        raise _no_picture(path, "damaged image data")
    rgba = frame.to_ndarray(format="rgba")
    alpha = rgba[..., 3:].astype(np.uint16)
    upright = (rgba[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255
    return np.ascontiguousarray(np.rot90(upright.astype(np.uint8), frame.rotation // 90))


def prepare(picture: Picture, height: int, width: int, aspect: float) -> npt.NDArray[np.float32]:
    """The centre crop of a picture (aspect = width / height), resized: float32 [1, 3, height, width] in -1..1.

    A picture of the clip's shape is processed exactly like the reference's first frame.
    """
    middle = centre_crop(picture, aspect)
    down, across = resize_matrix(middle.shape[0], height), resize_matrix(middle.shape[1], width)
    channels = [down @ middle[..., channel].astype(np.float32) @ across.T for channel in range(3)]
    prepared: npt.NDArray[np.float32] = (np.stack(channels)[None] / 127.5 - 1.0).astype(np.float32)
    return prepared


def centre_crop(picture: Picture, aspect: float) -> Picture:
    """The largest centred part of this aspect, to the nearest pixel."""
    height, width = picture.shape[:2]
    keep_width = min(width, max(1, round(height * aspect)))
    keep_height = min(height, max(1, round(width / aspect)))
    top, left = (height - keep_height) // 2, (width - keep_width) // 2
    return picture[top : top + keep_height, left : left + keep_width]


def resize_matrix(source: int, target: int) -> npt.NDArray[np.float32]:
    """The matrix float32 [target, source] that resizes one axis: blur if it shrinks, then cubic with aligned corners.

    The blur has sigma (source / target - 1) / 2 and reaches two sigmas to each side; the border is mirrored.
    """
    step = (source - 1) / (target - 1) if target > 1 else 0.0
    positions = np.arange(target, dtype=np.float32) * np.float32(step)  # rounded as in the reference
    left = np.floor(positions).astype(np.int64)
    taps, kernel = _blur((source / target - 1) / 2) if source > target else (np.zeros(1, np.int64), np.ones(1))
    matrix = np.zeros((target, source))
    for offset in range(-1, 3):
        nearest = np.clip(left + offset, 0, source - 1)
        share = _cubic(np.abs(positions.astype(np.float64) - left - offset))
        for tap, weight in zip(taps, kernel, strict=True):
            mirrored = np.abs(nearest + tap)
            column = np.where(mirrored < source, mirrored, 2 * (source - 1) - mirrored)
            np.add.at(matrix, (np.arange(target), column), share * weight)
    return matrix.astype(np.float32)


def _cubic(distance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance**2 + 1
    far = CUBIC * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _blur(deviation: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Offsets and weights of a Gaussian kernel."""
    reach = max(int(4 * deviation), 3) // 2
    taps = np.arange(-reach, reach + 1)
    kernel = np.exp(-(taps**2) / (2 * max(deviation, 0.001) ** 2))
    return taps, kernel / kernel.sum()


def _check_size(width: int, height: int, path: Path | None, megapixels: int) -> None:
    found, most = f"{width} x {height}", f"at most {megapixels} megapixels"
    if not width * height:  # FFmpeg refused to decode more pixels, or could not
        what, do = "the picture is too large, damaged, or an animated WebP", "save it as a smaller PNG or JPEG"
        raise PictureError(what, where=path, expected=most, do=do)
    if width * height > megapixels * 10**6:
        raise PictureError("the picture is too large", where=path, found=found, expected=most, do="resize it")
    if min(width, height) < LEAST_SIDE:
        expected, do = f"{LEAST_SIDE} x {LEAST_SIDE} pixels or more", "use a larger one"
        raise PictureError("the picture is too small", where=path, found=found, expected=expected, do=do)


def _no_picture(path: Path | None, found: str) -> PictureError:
    return PictureError("not a readable picture", where=path, found=found, expected=FORMATS)


def _reason(error: Exception) -> str:
    """Extracts the reason from PyAV's message, which adds an error number and a function name."""
    return (getattr(error, "strerror", None) or str(error)).lower()
