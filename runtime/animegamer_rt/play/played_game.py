"""A game and the folder it is saved to."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from animegamer_rt.api import ClipBuilder, Game
from animegamer_rt.errors import InstructionError
from animegamer_rt.events import Event, FrameReady
from animegamer_rt.session import Session

from .game_folder import GameFolder
from .terminal import UNDO, Terminal


class PlayedGame:
    """A game and the folder it is saved to, which stays locked until `close`."""

    def __init__(self, game: Game, folder: GameFolder, close: Callable[[], None] = lambda: None) -> None:
        self.game, self.folder, self.close = game, folder, close
        self.pipeline = game.player.pipeline
        geometry = self.pipeline.bundle.manifest.geometry
        self._frames = geometry.frames
        self._frames_bytes = geometry.frames * geometry.height * geometry.width * 3

    @property
    def session(self) -> Session:
        return self.game.session

    @property
    def next_turn(self) -> int:
        """Number of the next turn, from 1."""
        return self.session.turns + 1

    @contextlib.contextmanager
    def prepared(self) -> Iterator[None]:
        """Have another thread read the history while the player types; finished on return."""
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(self.pipeline.predictor.prepare, self.session.history)
            yield
            reading.result()

    def stream(self, text: str) -> Generator[Event, None, None]:
        """The events of the next turn.

        Raises InstructionError, with code `undo` if the text takes the last turn back; OutputError if the folder cannot
        take the turn's files; and as `Game.stream`.
        """
        if text.lower() in UNDO:
            raise InstructionError("there is no turn to take back", code="undo")
        self.folder.check_next_turn()
        self.folder.check_free_space(self._frames_bytes)
        return self.game.stream(text)

    def copy(self) -> Session:
        """The game as it is now, for `go_back`."""
        return self.session.branch(self.session.turns, self.pipeline.predictor.predict)

    def go_back(self, copy: Session) -> None:
        """Continue from an earlier `copy`, in the folder too. No shot is predicted again."""
        self.folder.cut(copy.turns)
        self.game.session = copy

    def undo(self) -> None:
        """Take the last turn back, in the folder too."""
        self.folder.cut(self.session.turns - 1)
        self.game.rewind(self.session.turns - 1)

    def play_turn(self, text: str, terminal: Terminal) -> None:
        """Play one turn and write it to the folder. An error or an interrupt leaves the game as it was before."""
        events, turn = self.stream(text), ClipBuilder()
        deferred: list[int] = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(terminal.turn())
            for event in events:
                terminal.show(event)
                turn.add(event)
                if isinstance(event, FrameReady) and event.index == self._frames - 1:
                    # The session commits the turn with the next event: the folder must then get it, too.
                    deferred = stack.enter_context(_defer_interrupt())
            clip = turn.build(text, self.pipeline.bundle.manifest.geometry.fps)
            path = self.folder.add(clip)
        terminal.finished(path, clip.seconds, len(clip.frames) / self.folder.fps)
        if deferred:
            raise KeyboardInterrupt


@contextlib.contextmanager
def _defer_interrupt() -> Iterator[list[int]]:
    """Defer Ctrl-C while a finished turn is written; signals received meanwhile are in the list."""
    held: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield held
        return

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)

    before = signal.signal(signal.SIGINT, hold)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)
