"""Pictures in a terminal."""

from __future__ import annotations

import numpy as np
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from animegamer_rt.stages.image import Picture

PREVIEW_CELLS = 72
"""Widest preview of a clip, in terminal columns."""


class BlockPicture:
    """A picture in half blocks: each cell shows two pixels, one above the other. It leaves `rows_below` rows free."""

    def __init__(self, frame: Picture, rows_below: int = 0) -> None:
        self._frame, self._rows_below = frame, rows_below

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height, width, _ = self._frame.shape
        rows = max(1, options.size.height - self._rows_below)
        step = max(-(-width // max(1, min(PREVIEW_CELLS, options.max_width))), -(-height // (2 * rows)))
        if 2 * step > height:  # the terminal is too narrow for a single row of cells
            return
        cropped = self._frame[: height // (2 * step) * 2 * step, : width // step * step].astype(np.uint16)
        small = cropped.reshape(len(cropped) // step, step, -1, step, 3).mean((1, 3)).astype(int)
        for top, bottom in zip(small[::2], small[1::2], strict=True):
            for upper, lower in zip(top, bottom, strict=True):
                yield Segment("▀", Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower)))
            yield Segment.line()


def shows_pictures(console: Console) -> bool:
    """Whether a terminal has the colours and characters of BlockPicture."""
    return console.color_system in ("256", "truecolor") and not (console.no_color or console.options.ascii_only)
