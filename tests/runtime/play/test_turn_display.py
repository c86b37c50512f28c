"""What a game looks like on terminals that lack colours or letters, and while a turn runs."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import InstructionError
from animegamer_rt.events import FrameReady, StageSeconds, StatePredicted
from animegamer_rt.play.terminal import Terminal
from animegamer_rt.state.game import CharacterState, GameState

FRAMES = np.zeros((2, 16, 24, 3), np.uint8)
SECONDS = StageSeconds(predictor=0.1, denoiser=2.0, vae=0.5, total=2.6)


class Screen:
    """A terminal that keeps what it was shown."""

    def __init__(self, encoding: str = "utf-8", no_color: bool = False) -> None:
        self._kept = io.BytesIO()
        self._file = io.TextIOWrapper(self._kept, encoding=encoding, errors="replace")
        self.console = Console(
            file=self._file, force_terminal=True, color_system="truecolor", no_color=no_color, width=100, soft_wrap=True
        )

    @property
    def text(self) -> str:
        self._file.flush()
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._kept.getvalue().decode(self._file.encoding))


def predicted(character: CharacterState) -> StatePredicted:
    return StatePredicted(
        session="game",
        turn=1,
        sequence=0,
        game_state=GameState(motion_level=1, social=0, entertainment=0, stamina=0),
        character=character,
        shown=character,
        motion_scope=0.0,
        history_turns=0,
        shot=np.zeros((226, 4), np.float32),
    )


def finish_turn(terminal: Terminal) -> None:
    with terminal.turn():
        for index, frame in enumerate(FRAMES):
            terminal.show(FrameReady(session="game", turn=1, sequence=index, index=index, frame=frame))
    terminal.finished(Path("turn-001.mp4"), SECONDS, playback_seconds=0.01)


@pytest.mark.parametrize(
    ("screen", "pictures"),
    [(Screen(), True), (Screen(no_color=True), False), (Screen("latin-1"), False)],
    ids=["all", "no colours", "latin-1"],
)
def test_clips_are_shown_only_where_colours_and_blocks_are(bundle: Bundle, screen: Screen, pictures: bool) -> None:
    finish_turn(Terminal(bundle, preview=True, console=screen.console))
    assert ("▀" in screen.text) == pictures
    assert "?" not in screen.text and "turn-001.mp4" in screen.text


@pytest.mark.parametrize(("encoding", "bar"), [("utf-8", "█" * 5 + "░" * 15), ("ascii", "#" * 5 + "." * 15)])
def test_state_bars_are_of_letters_that_the_terminal_has(bundle: Bundle, encoding: str, bar: str) -> None:
    screen = Screen(encoding)
    Terminal(bundle, preview=False, console=screen.console).show(predicted(CharacterState(stamina=25)))
    assert bar in screen.text and "?" not in screen.text


def test_changes_are_counted_from_the_last_turn_that_was_not_stopped(bundle: Bundle) -> None:
    screen = Screen()
    terminal = Terminal(bundle, preview=False, console=screen.console)
    terminal.show(predicted(CharacterState(stamina=25)))
    terminal.turn_stopped(1)
    terminal.show(predicted(CharacterState(stamina=25)))
    assert screen.text.count(" 25  -25") == 2


def test_lines_break_between_words(bundle: Bundle) -> None:
    screen = Screen()
    Terminal(bundle, preview=False, console=screen.console).refused(InstructionError("word " * 30))
    assert {word for line in screen.text.splitlines() for word in line.split()} == {"error:", "word"}
