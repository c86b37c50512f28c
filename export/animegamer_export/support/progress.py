"""Shows the progress of an export: a bar with bytes and remaining time on a terminal, and a line per finished step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console


class Progress:
    """Prints steps to a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def step(self, name: str, size: int) -> Iterator[Callable[[int], None]]:
        """A bar for a step of about `size` bytes; yields a callback for the number of bytes of each write."""
        columns = (
            bars.TextColumn("{task.description:24s}"),
            bars.BarColumn(),
            bars.DownloadColumn(),
            bars.TransferSpeedColumn(),
            bars.TimeRemainingColumn(),
        )
        shown = bars.Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        with shown:
            task = shown.add_task(name, total=size or None)
            yield lambda count: shown.advance(task, count)

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """A spinner for work of unknown length, on a terminal only."""
        with self.console.status(what):
            yield

    def finished(self, name: str, size: int, seconds: float) -> None:
        """A line for a finished step."""
        megabytes = f"{size / 1e6:10.1f} MB" if size else " " * 13
        self.console.print(f"{name:24s} {megabytes}  {seconds:7.1f} s", highlight=False)
