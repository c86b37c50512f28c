"""Pictures that travel: what arrives is what was sent, as near as the codec allows, and the same bytes every time."""

from __future__ import annotations

import io

import av
import numpy as np
import pytest
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


@pytest.mark.parametrize(("quality", "least_db"), [(100, 42), (90, 38), (50, 32), (1, 26)])
def test_a_jpeg_shows_the_frame(quality: int, least_db: float) -> None:
    assert psnr_db(decoded(JpegEncoder(HEIGHT, WIDTH, quality).encode(frame())), frame()) > least_db


def test_a_higher_quality_is_nearer_and_takes_more_bytes() -> None:
    jpegs = [JpegEncoder(HEIGHT, WIDTH, quality).encode(frame()) for quality in (10, 50, 90, 100)]
    assert sorted(map(len, jpegs)) == list(map(len, jpegs))
    nearness = [psnr_db(decoded(jpeg), frame()) for jpeg in jpegs]
    assert sorted(nearness) == nearness


def test_every_frame_is_a_jpeg_of_its_own() -> None:
    encoder = JpegEncoder(HEIGHT, WIDTH, 90)
    jpegs = [encoder.encode(frame(shift)) for shift in (0, 40)]
    for jpeg, shift in zip(jpegs, (0, 40), strict=True):
        assert psnr_db(decoded(jpeg), frame(shift)) > 38


@pytest.mark.parametrize("size", [(16, 24), (15, 23), (1, 1)])
def test_any_size_can_be_a_jpeg(size: tuple[int, int]) -> None:
    picture = np.full((*size, 3), 90, np.uint8)
    assert np.abs(decoded(JpegEncoder(*size, 90).encode(picture)).astype(int) - picture).max() <= 3


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


@pytest.mark.parametrize(("pixel_format", "order"), [("rgba32", [0, 1, 2, 3]), ("bgra32", [2, 1, 0, 3])])
def test_a_clip_has_the_same_colours_from_every_pixel_format(pixel_format: str, order: list[int]) -> None:
    opaque = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)
    other = np.concatenate([frame(), opaque], -1)[..., order]
    (found,) = frames_of(b"".join(clip([other], pixel_format)))
    assert psnr_db(found, frame()) > 28


def test_a_clip_of_odd_size_loses_its_last_row_and_column() -> None:
    picture = frame()[:15, :23]
    (found,) = frames_of(b"".join(clip([picture])))
    assert found.shape == (14, 22, 3)
    assert psnr_db(found, picture[:14, :22]) > 28
