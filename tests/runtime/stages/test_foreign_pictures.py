"""Files that are given as pictures: known by their first bytes, whole, and never a list of other files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from animegamer_rt.errors import PictureError
from animegamer_rt.stages.image import read_picture

FORMATS = ("png", "jpg", "gif", "webp", "bmp", "tiff")
SOURCE = np.random.default_rng(5).integers(0, 256, (48, 64, 3), np.uint8)


def saved(folder: Path, suffix: str, **options: object) -> bytes:
    Image.fromarray(SOURCE).save(folder / f"whole.{suffix}", **options)
    return (folder / f"whole.{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", FORMATS)
def test_common_formats_are_read_whatever_their_names(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "picture.m3u8").write_bytes(saved(tmp_path, suffix))
    assert read_picture(tmp_path / "picture.m3u8").shape == SOURCE.shape


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("suffix", [*FORMATS[:5], "progressive"])
def test_a_picture_that_was_cut_short_is_refused(tmp_path: Path, suffix: str, share: float) -> None:
    progressive = {"progressive": True} if suffix == "progressive" else {}
    content = saved(tmp_path, "jpg" if progressive else suffix, **progressive)
    (tmp_path / "half").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(PictureError, match="half: not a picture that can be read"):
        read_picture(tmp_path / "half")


def test_the_end_of_a_thumbnail_is_not_the_pictures(tmp_path: Path) -> None:
    content = saved(tmp_path, "jpg")
    thumbnail = b"Exif\0\0" + content[:2000] + b"\xff\xd9"
    inside = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    whole = content[:2] + inside + content[2:]
    (tmp_path / "whole.jpg").write_bytes(whole)
    assert read_picture(tmp_path / "whole.jpg").shape == SOURCE.shape
    (tmp_path / "half.jpg").write_bytes(whole[: len(whole) - 1000])
    with pytest.raises(PictureError, match="its end is missing"):
        read_picture(tmp_path / "half.jpg")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.m3u8", "#EXTM3U\n#EXTINF:1,\nwhole.png\n"),
        ("list.ffconcat", "ffconcat version 1.0\nfile 'whole.png'\n"),
        ("stream.sdp", "v=0\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"),
        ("list.mpd", "<?xml version='1.0'?><MPD><BaseURL>whole.png</BaseURL></MPD>"),
        ("drawing.svg", "<svg xmlns='http://www.w3.org/2000/svg'><image href='whole.png'/></svg>"),
        ("story.txt", "a story"),
    ],
)
def test_a_file_that_names_other_files_is_no_picture(tmp_path: Path, name: str, text: str) -> None:
    saved(tmp_path, "png")
    (tmp_path / name).write_text(text)
    with pytest.raises(PictureError, match="no image data"):
        read_picture(tmp_path / name)


def test_a_pipe_or_a_device_is_no_picture() -> None:
    with pytest.raises(PictureError, match="not a regular file"):
        read_picture(Path("/dev/zero"))
