"""Pictures that travel: what arrives is what was sent, as near as the codec allows, and the same bytes every time."""

from __future__ import annotations

import io

import av
import numpy as np
from PIL import Image

from animegamer_rt.serving.worker.encoders import ClipEncoder, Frame, JpegEncoder

HEIGHT, WIDTH = 96, 144


def frame(shift: int = 0) -> Frame:
    """A smooth sky, a flat red square and a sharp blue bar: what a cartoon is made of."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    picture = np.stack([100 + rows / 2, 140 + columns / 3, 230 - rows / 2], -1).astype(np.uint8)
    picture[20:50, 30 + shift : 70 + shift] = (250, 40, 30)
    picture[70:74] = (20, 30, 200)
    return picture


def psnr_db(one: Frame, other: Frame) -> float:
    return float(10 * np.log10(255**2 / np.mean((one.astype(float) - other.astype(float)) ** 2)))


def decoded(jpeg: bytes) -> Frame:
    with Image.open(io.BytesIO(jpeg)) as picture:
        assert (picture.format, picture.mode) == ("JPEG", "RGB")
        return np.asarray(picture)


def clip(frames: list[Frame], pixel_format: str = "rgb24") -> list[bytes]:
    encoder = ClipEncoder(*frames[0].shape[:2], 8, pixel_format)
    return [*(encoder.add(frame) for frame in frames), encoder.finish()]


def frames_of(content: bytes) -> list[Frame]:
    with av.open(io.BytesIO(content)) as container:
        return [picture.to_ndarray(format="rgb24") for picture in container.decode(video=0)]


def test_a_higher_quality_is_nearer_and_takes_more_bytes() -> None:
    jpegs = [JpegEncoder(HEIGHT, WIDTH, quality).encode(frame()) for quality in (1, 50, 90, 100)]
    assert sorted(map(len, jpegs)) == list(map(len, jpegs))
    nearness = [psnr_db(decoded(jpeg), frame()) for jpeg in jpegs]
    assert sorted(nearness) == nearness
    assert all(found > least for found, least in zip(nearness, (26, 32, 38, 42), strict=True))
    encoder = JpegEncoder(15, 23, 90)
    pictures = [np.full((15, 23, 3), grey, np.uint8) for grey in (90, 200)]
    for picture in pictures:  # of any size, and each is a file of its own
        assert np.abs(decoded(encoder.encode(picture)).astype(int) - picture).max() <= 3


def test_a_clip_shows_its_frames() -> None:
    frames = [frame(2 * number) for number in range(17)]
    content = b"".join(clip(frames))
    found = frames_of(content)
    assert len(found) == 17
    assert min(psnr_db(one, other) for one, other in zip(found, frames, strict=True)) > 28
    with av.open(io.BytesIO(content)) as container:
        assert float(container.streams.video[0].average_rate) == 8


def test_a_clip_can_be_played_from_its_pieces_in_order() -> None:
    pieces = [piece for piece in clip([frame(number) for number in range(17)]) if piece]
    assert len(pieces) >= 2
    assert pieces[0][4:8] == b"ftyp" and b"moov" in pieces[0]
    assert b"moof" in b"".join(pieces[1:]) and b"moof" not in pieces[0]
