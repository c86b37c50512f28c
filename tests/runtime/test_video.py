"""Clips, sheets and files: what is written can be read back, and a failure leaves nothing half done."""

from __future__ import annotations

import io
from pathlib import Path

import av
import numpy as np
import pytest

from animegamer_rt.bundle.files import make_folder, write_file
from animegamer_rt.errors import OutputError
from animegamer_rt.video import SHEET_FRAMES, ClipWriter, clip_scale, contact_row, write_clip, write_contact_sheet


def moving_square(frames: int = 17, height: int = 96, width: int = 144) -> np.ndarray:
    clip = np.full((frames, height, width, 3), (60, 160, 80), np.uint8)
    for t in range(frames):
        clip[t, 20:60, 2 * t : 2 * t + 40] = (250, 80, 80)
    return clip


def decode(path: Path) -> tuple[np.ndarray, float]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(stream)])
        return frames, float(stream.average_rate)


def test_clip_shows_the_frames_enlarged_at_the_asked_rate(tmp_path: Path) -> None:
    clip = moving_square()
    write_clip(tmp_path / "turn.mp4", clip, fps=8)
    frames, rate = decode(tmp_path / "turn.mp4")
    assert frames.shape == (17, 384, 576, 3)
    assert rate == 8
    assert np.abs(frames[:, 2::4, 2::4].astype(int) - clip).mean() < 4


def boxes(content: bytes) -> list[str]:
    found, at = [], 0
    while at < len(content):
        found.append(content[at + 4 : at + 8].decode())
        at += int.from_bytes(content[at : at + 4], "big")
    return found


def test_a_clip_is_a_whole_file_with_its_duration_first_and_tagged_colours(tmp_path: Path) -> None:
    bars = np.repeat(np.uint8([[250, 20, 20], [20, 250, 20], [20, 20, 250], [240, 20, 240]]), 36, 0)
    write_clip(tmp_path / "turn.mp4", np.broadcast_to(bars, (17, 96, 144, 3)), fps=8)
    content = (tmp_path / "turn.mp4").read_bytes()
    assert [box for box in boxes(content) if box != "free"] == ["ftyp", "moov", "mdat"]
    with av.open(io.BytesIO(content)) as container:
        codec = container.streams.video[0].codec_context
        assert container.duration == 17 / 8 * 1e6
        assert (codec.colorspace, codec.color_primaries, codec.color_trc, codec.color_range) == (1, 1, 1, 1)
        first = next(container.decode(video=0)).to_ndarray(format="yuv420p")
    y = first[100, 60:576:144].astype(float)
    assert np.abs(y - (16 + np.array(bars[::36] @ [0.2126, 0.7152, 0.0722]) * 219 / 255)).max() <= 3  # BT.709


def test_the_same_frames_give_the_same_bytes_whatever_the_memory_held() -> None:
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (6, 16, 24, 3), np.uint8)
    files = set()
    for _ in range(4):
        writer = ClipWriter(16, 24, 8)
        for frame in frames:
            writer.add(frame)
            random.integers(0, 256, random.integers(1_000, 3_000_000), np.uint8)
        files.add(writer.finish())
    assert len(files) == 1


@pytest.mark.parametrize("name", ["2026-11-26T18:00.mp4", "file:x.mp4", "50%.mp4", "a?b#c.mp4", "-i.mp4"])
def test_any_name_is_a_file_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    write_clip(Path(name), moving_square(2), 8)
    assert decode(tmp_path / name)[0].shape == (2, 384, 576, 3)


def test_an_error_of_the_library_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"turn\.mp4: the pictures cannot be encoded; found .+; try another --scale"):
        write_clip(tmp_path / "turn.mp4", moving_square(1), 8, scale=200)


def test_full_size_is_not_enlarged_and_odd_sides_are_made_even(tmp_path: Path) -> None:
    assert clip_scale(480) == 1
    assert clip_scale(96) == 4
    write_clip(tmp_path / "odd.mp4", moving_square(3, 95, 143), fps=10, scale=1)
    assert decode(tmp_path / "odd.mp4")[0].shape == (3, 94, 142, 3)


def test_sheet_has_a_row_a_turn(tmp_path: Path) -> None:
    row = contact_row(moving_square())
    assert row.shape == (96, SHEET_FRAMES * 144 + (SHEET_FRAMES - 1) * 4, 3)
    assert (row[:, :144] == moving_square()[0]).all()
    write_contact_sheet(tmp_path / "sheet.png", [row, row, row])
    [sheet] = decode(tmp_path / "sheet.png")[0]
    assert sheet.shape == (3 * 96 + 2 * 4, row.shape[1], 3) and (sheet[:96] == row).all()


def test_failed_write_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    missing = tmp_path / "missing"
    for write in (
        lambda: write_clip(missing / "turn.mp4", moving_square(), 8),
        lambda: write_file(missing / "game.json", b"{}"),
        lambda: make_folder(tmp_path / "file" / "game"),
    ):
        with pytest.raises(OutputError, match="cannot be written"):
            write()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_failed_encoding_keeps_the_earlier_clip(tmp_path: Path) -> None:
    path = tmp_path / "turn.mp4"
    write_clip(path, moving_square(), 8)
    before = path.read_bytes()
    with pytest.raises(ValueError):
        write_clip(path, moving_square()[..., :2], 8)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["turn.mp4"]
