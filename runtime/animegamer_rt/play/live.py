"""`animegamer-rt play --live`: clips follow each other, and the game goes on by itself while nobody types.

A turn is drawn while the clip before it plays. The loop knows neither the terminal nor the real clock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Protocol

from animegamer_rt.api import Clip, ClipBuilder
from animegamer_rt.errors import InstructionError
from animegamer_rt.events import Done
from animegamer_rt.stages.image import Picture

from .played_game import PlayedGame
from .quiet import QuietWords

QUIET_TURNS = 30
LEAD_SECONDS = 0.3
"""A turn is asked for this long, and one and a half times the time of the last ones, before the clip ends."""
WAIT_SECONDS = 0.05
"""Between two looks at a turn that is not ready, while the last picture stays."""


class Screen(Protocol):
    """Where a live game is shown and typed."""

    def begin(self, clip: Clip, asked: bool) -> None:
        """Say what is shown from now on."""

    def show(self, picture: Picture) -> None: ...

    def coming(self, text: str) -> None:
        """Say which typed sentence comes next; "": none."""

    def refused(self, error: InstructionError) -> None: ...

    def typed(self, seconds: float) -> str | None:
        """A line that was typed, after at most so many seconds; "" if none was. None: the player quits."""


class LiveGame:
    """Plays turns that are asked for and quiet ones, for one worker thread.

    After QUIET_TURNS quiet turns the game and its folder go back to the last turn that was asked for, so that neither
    grows while nobody types.
    """

    def __init__(self, played: PlayedGame, words: QuietWords) -> None:
        self._played, self._words = played, words
        self._leaving = threading.Event()
        self._keep()

    def asked(self, text: str) -> Clip | None:
        """None if the player left before the turn was finished.

        Raises as `PlayedGame.stream`; InstructionError also to tell that the text took the last asked turn back.
        """
        try:
            clip = self._turn(text)
        except InstructionError as error:
            if error.code != "undo" or not self._kept.turns:
                raise
            self._played.go_back(self._kept)
            self._played.undo()
            self._keep()
            raise InstructionError(f"turn {self._played.next_turn} is taken back", code="undo") from None
        self._keep()
        return clip

    def quiet(self) -> Clip | None:
        """The same for a turn that nobody asked for; None also if nothing would change. Raises for a first one."""
        if self._quiet_turns == QUIET_TURNS:
            self._played.go_back(self._kept)
            self._keep()
        self._quiet_turns += 1
        session = self._played.session
        first = not session.turns and session.initial_turn is None
        try:
            return self._turn(self._words.instruction(first))
        except InstructionError:
            if first:  # nothing is shown that could stay
                raise
            return None

    def leave(self) -> None:
        """Drop the running turn, from any thread."""
        self._leaving.set()

    def _keep(self) -> None:
        self._kept, self._quiet_turns = self._played.copy(), 0

    def _turn(self, text: str) -> Clip | None:
        events, clip = self._played.stream(text), ClipBuilder()
        for event in events:
            clip.add(event)
            if self._leaving.is_set() and not isinstance(event, Done):
                events.close()
                return None
        done = clip.build(text, self._played.pipeline.bundle.manifest.geometry.fps)
        self._played.folder.add(done)
        return done


def play_live(
    game: LiveGame, screen: Screen, fps: float, worker: Executor, clock: Callable[[], float] = time.monotonic
) -> None:
    """Play until the player quits. worker: one thread. A typed sentence is the next turn that begins to be drawn."""
    sentences: deque[str] = deque()
    pictures: deque[Picture] = deque()
    running: Future[Clip | None] | None = None
    ready: Clip | None = None
    asked, began, took, due = False, 0.0, 0.0, clock()
    try:
        while True:
            if running is not None and running.done():
                took = max(0.7 * took, clock() - began)
                ready, running = _clip(running, screen, asked), None
                if asked and ready is None:  # it was refused, or took a turn back
                    screen.coming(sentences[0] if sentences else "")
            lead = LEAD_SECONDS + 1.5 * took
            if running is None and ready is None and (sentences or len(pictures) / fps <= lead):
                asked, began = bool(sentences), clock()
                running = worker.submit(game.asked, sentences.popleft()) if asked else worker.submit(game.quiet)
            line = screen.typed(max(0.0, due - clock()))
            if line is None:
                return
            if line:
                sentences.append(line)
                screen.coming(line)
            if clock() < due:
                continue
            if not pictures and ready is not None:
                pictures.extend(ready.frames)
                screen.begin(ready, asked)
                ready = None
            if pictures:
                screen.show(pictures.popleft())
                due = max(due + 1 / fps, clock())
            else:
                due = clock() + WAIT_SECONDS
    finally:
        game.leave()


def _clip(finished: Future[Clip | None], screen: Screen, asked: bool) -> Clip | None:
    try:
        return finished.result()
    except InstructionError as error:
        if not asked:
            raise
        screen.refused(error)
        return None
