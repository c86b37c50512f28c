"""Writes frames as mp4 and PNG files, and contact sheets of games. A file appears complete or not at all."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .bundle.files import write_file
from .errors import OutputError
from .stages.image import Picture

Frames = npt.NDArray[np.uint8]
"""Video frames [T, H, W, 3], RGB24."""

# Visually lossless for flat cartoon colours. As small and as near as preset veryfast at CRF 17, in a third of its time.
ENCODER = {"preset": "ultrafast", "crf": "18"}
# Without cpu-independent, x264 was seen to give noisy pictures other bytes from run to run.
X264 = "cpu-independent=1:bframes=3:cabac=1:8x8dct=1"
AV_FORMATS = {"rgb24": "rgb24", "rgba32": "rgba", "bgra32": "bgra"}
"""Pixel format -> its name in the codec library."""
BT709, LIMITED = 1, 1
"""The library's numbers, of the space, primaries and curve alike; and of video's range of values."""
SMALL_HEIGHT = 384
"""Lower clips are enlarged by a whole number when encoded: many players blur or reject tiny videos."""
SHEET_FRAMES = 6
SHEET_WIDTH = 160
"""Largest width in pixels of one frame on the contact sheet; larger frames are subsampled."""
SHEET_GAP = 4


def clip_scale(height: int) -> int:
    """Default enlargement of a clip of this height in pixels: 1 at full size, 4 for pocket."""
    return max(1, SMALL_HEIGHT // height)


class ClipWriter:
    """Encodes one clip as H.264 in an mp4 file: for `play`, `Clip.save`, the server's exports and its clients alike.

    The file is whole, with its index and duration before the pictures. Its colours are BT.709 and say so: of a clip
    that does not, players guess by its height. The same frames give the same bytes.

    scale: enlarges by this whole number (default: `clip_scale`). pixel_format: rgb24, rgba32 or bgra32.
    """

    def __init__(
        self, height: int, width: int, fps: float, scale: int | None = None, pixel_format: str = "rgb24"
    ) -> None:
        import av  # loads FFmpeg: a worker has this module without writing clips
        from av.video.reformatter import VideoReformatter

        self._frame_of, self._format = av.VideoFrame.from_ndarray, AV_FORMATS[pixel_format]
        self._file = io.BytesIO()
        self._container = av.open(
            self._file,
            "w",
            format="mp4",
            options={"movflags": "+faststart"},
            io_open=lambda *_: io.BytesIO(self._file.getvalue()),  # read again to move the index to the front
        )
        scale = clip_scale(height) if scale is None else scale
        stream = self._container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001))
        # 4:2:0 colour needs even sides.
        stream.width, stream.height = (side * scale // 2 * 2 for side in (width, height))
        stream.pix_fmt = "yuv420p"
        stream.options = {**ENCODER, "x264-params": X264}
        stream.color_range, stream.colorspace, stream.color_primaries, stream.color_trc = LIMITED, BT709, BT709, BT709
        self._stream = stream
        # One for the clip: a frame's own would compute the filter's coefficients again.
        self._reformatter = VideoReformatter()

    def add(self, frame: npt.NDArray[np.uint8]) -> None:
        """Encode one frame [H, W, C]."""
        picture = self._reformatter.reformat(
            self._frame_of(np.ascontiguousarray(frame), format=self._format),
            self._stream.width,
            self._stream.height,
            "yuv420p",
            interpolation="BICUBIC",
            dst_colorspace=BT709,
            dst_color_range=LIMITED,
        )
        self._container.mux(self._stream.encode(picture))

    def finish(self) -> bytes:
        """The file."""
        self._container.mux(self._stream.encode(None))
        self.close()
        return self._file.getvalue()

    def close(self) -> None:
        """Close the encoder, even of an abandoned clip: its threads would otherwise wait for the garbage collector."""
        self._container.close()


def write_clip(path: Path, frames: Frames, fps: float, scale: int | None = None) -> None:
    """Write frames as an mp4, enlarged `scale` times. Raises OutputError."""
    _, height, width, _ = frames.shape
    with _library_errors(path), contextlib.closing(ClipWriter(height, width, fps, scale)) as writer:
        for frame in frames:
            writer.add(frame)
        content = writer.finish()
    write_file(path, content)


@contextlib.contextmanager
def _library_errors(path: Path) -> Iterator[None]:
    """Raises OutputError for an error of the codec library."""
    import av

    try:
        yield
    except av.error.FFmpegError as error:
        do = "try another --scale, or update the package av"
        raise OutputError("the pictures cannot be encoded", where=path, found=str(error), do=do) from error


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


def contact_rows(sheet: Picture, turns: int) -> list[Picture]:
    """The rows of a contact sheet of so many turns."""
    height = (len(sheet) + SHEET_GAP) // turns
    return [sheet[row * height : (row + 1) * height - SHEET_GAP] for row in range(turns)]


def write_png(path: Path, picture: Picture) -> None:
    """Write one RGB picture [H, W, 3] as a PNG. Raises OutputError."""
    import av

    codec = av.CodecContext.create("png", "w")
    assert isinstance(codec, av.VideoCodecContext)
    codec.height, codec.width = picture.shape[:2]
    codec.pix_fmt, codec.time_base = "rgb24", Fraction(1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
    with _library_errors(path):
        content = b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])
    write_file(path, content)
