"""A clip in the terminal: frames as half blocks in true colour, at the clip's frame rate.

Knows frames and a console, nothing of the game.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from animegamer_rt.stages.image import Picture

PREVIEW_CELLS = 72
"""Widest preview, in terminal columns."""


def show_clip(console: Console, frames: Sequence[Picture], seconds: float) -> None:
    """Play the frames once, within `seconds`; the last one stays."""
    with Live(console=console, auto_refresh=False) as live:
        start = time.monotonic()
        for number, frame in enumerate(frames, 1):
            live.update(BlockPicture(frame), refresh=True)
            time.sleep(max(0.0, start + number * seconds / len(frames) - time.monotonic()))


class BlockPicture:
    """A picture in half blocks: each cell shows two pixels, one above the other."""

    def __init__(self, frame: Picture) -> None:
        self._frame = frame

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height, width, _ = self._frame.shape
        step = -(-width // max(1, min(PREVIEW_CELLS, options.max_width)))
        if 2 * step > height:  # the terminal is too narrow for a single row of cells
            return
        cropped = self._frame[: height // (2 * step) * 2 * step, : width // step * step].astype(np.uint16)
        small = cropped.reshape(len(cropped) // step, step, -1, step, 3).mean((1, 3)).astype(int)
        for top, bottom in zip(small[::2], small[1::2], strict=True):
            for upper, lower in zip(top, bottom, strict=True):
                yield Segment("▀", Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower)))
            yield Segment.line()
