"""Writes frames as mp4 and PNG files, and contact sheets of games. A file appears complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .bundle.files import remove, write_error, write_file
from .stages.image import Picture

Frames = npt.NDArray[np.uint8]
"""Video frames [T, H, W, 3], RGB24."""

# Visually lossless for flat cartoon colours; a 17-frame pocket clip takes about 60 kB.
CRF = "17"
SMALL_HEIGHT = 384
"""Lower clips are enlarged by a whole number when encoded: many players blur or reject tiny videos."""
SHEET_FRAMES = 6
SHEET_WIDTH = 160
"""Largest width in pixels of one frame on the contact sheet; larger frames are subsampled."""
SHEET_GAP = 4


def clip_scale(height: int) -> int:
    """Default enlargement of a clip of this height in pixels: 1 at full size, 4 for pocket."""
    return max(1, SMALL_HEIGHT // height)


def write_clip(path: Path, frames: Frames, fps: float, scale: int | None = None) -> None:
    """Encode frames as H.264 in an mp4, enlarged `scale` times (default: `clip_scale`). Raises OutputError."""
    import av  # loads FFmpeg: a worker has this module without writing files

    _, height, width, _ = frames.shape
    scale = clip_scale(height) if scale is None else scale
    # 4:2:0 colour needs even sides.
    out_width, out_height = (side * scale // 2 * 2 for side in (width, height))
    part = path.with_name(f".{path.name}.part")
    try:
        with av.open(str(part), "w", format="mp4", options={"movflags": "+faststart"}) as container:
            stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001))
            stream.width, stream.height, stream.pix_fmt = out_width, out_height, "yuv420p"
            stream.options = {"crf": CRF, "preset": "medium"}
            for picture in frames:
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                frame = frame.reformat(out_width, out_height, "yuv420p", interpolation="BICUBIC")
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        os.replace(part, path)
    except OSError as error:  # PyAV's file errors are OSErrors too
        raise write_error(path, error) from error
    finally:
        remove(part)


def contact_row(frames: Frames) -> Picture:
    """Six frames, evenly spaced through the clip, side by side: uint8 [h, w, 3]."""
    step = -(-frames.shape[2] // SHEET_WIDTH)
    chosen = frames[np.linspace(0, len(frames) - 1, SHEET_FRAMES).round().astype(int), ::step, ::step]
    gap = np.full((chosen.shape[1], SHEET_GAP, 3), 255, np.uint8)
    pieces = [piece for picture in chosen for piece in (picture, gap)]
    return np.concatenate(pieces[:-1], axis=1)


def write_contact_sheet(path: Path, rows: Sequence[Picture]) -> None:
    """Write a contact sheet as PNG, one row per turn, oldest at the top. Raises OutputError."""
    gap = np.full((SHEET_GAP, rows[0].shape[1], 3), 255, np.uint8)
    pieces = [piece for row in rows for piece in (row, gap)]
    write_png(path, np.concatenate(pieces[:-1], axis=0))


def write_png(path: Path, picture: Picture) -> None:
    """Write one RGB picture [H, W, 3] as a PNG. Raises OutputError."""
    import av

    codec = av.CodecContext.create("png", "w")
    assert isinstance(codec, av.VideoCodecContext)
    codec.height, codec.width = picture.shape[:2]
    codec.pix_fmt, codec.time_base = "rgb24", Fraction(1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
    write_file(path, b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)]))
