"""Pictures that travel: what arrives is what was sent, as near as the codec allows, and the same bytes every time."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from animegamer_rt.serving.worker.encoders import Frame, JpegEncoder

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
