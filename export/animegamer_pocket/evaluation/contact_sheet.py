"""Contact sheets: rows of clips as a PNG, each row under its caption."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

SHEET_FRAMES = (0, 3, 6, 9, 12, 16)
_CAPTION_PX, _GAP_PX = 18, 4
_BACKGROUND, _TEXT, _LABEL, _NOTE = (250, 248, 244), (50, 40, 60), (150, 140, 150), (200, 20, 20)


@dataclasses.dataclass(frozen=True, slots=True)
class SheetRow:
    """A caption and its clips by label, each uint8 [17, 96, 144, 3]. The clips stand below each other.

    note: a second line, in red.
    """

    caption: str
    clips: dict[str, npt.NDArray[np.uint8]]
    note: str = ""


def contact_sheet(rows: Sequence[SheetRow], path: Path) -> None:
    """Write a PNG with the frames `SHEET_FRAMES` of every row's clips.

    Raises:
        ValueError: there are no rows, or a clip has too few frames.
        OSError: the file cannot be written.
    """
    if not rows:
        raise ValueError("a contact sheet needs at least one row")
    sheet = np.concatenate([_block(row) for row in rows], axis=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(path), sheet[..., ::-1]):
        raise OSError(f"cannot write the contact sheet {path}")


def _block(row: SheetRow) -> npt.NDArray[np.uint8]:
    for label, clip in row.clips.items():
        if max(SHEET_FRAMES) >= len(clip):
            raise ValueError(
                f"the clip {label!r} of {row.caption!r} has {len(clip)} frames, needs {max(SHEET_FRAMES) + 1}"
            )
    strips = {
        label: np.concatenate([clip[frame] for frame in SHEET_FRAMES], axis=1) for label, clip in row.clips.items()
    }
    width = max(strip.shape[1] for strip in strips.values()) + 2 * _GAP_PX
    lines = 2 if row.note else 1
    height = lines * _CAPTION_PX + sum(strip.shape[0] + _GAP_PX for strip in strips.values())
    block = np.full((height, width, 3), _BACKGROUND, np.uint8)
    _write(block, row.caption, _GAP_PX, _TEXT)
    labels = " / ".join(strips)
    _write(block, labels, width - _GAP_PX - _text_width(labels), _LABEL)
    if row.note:
        _write(block[_CAPTION_PX:], row.note, _GAP_PX, _NOTE)
    y = lines * _CAPTION_PX
    for strip in strips.values():
        block[y : y + strip.shape[0], _GAP_PX : _GAP_PX + strip.shape[1]] = strip
        y += strip.shape[0] + _GAP_PX
    return block


def _text_width(text: str) -> int:
    return int(cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.42, 1)[0][0])


def _write(block: npt.NDArray[np.uint8], text: str, x: int, color: tuple[int, int, int]) -> None:
    cv2.putText(block, text, (x, _CAPTION_PX - 5), cv2.FONT_HERSHEY_SIMPLEX, 0.42, color, 1, cv2.LINE_AA)
