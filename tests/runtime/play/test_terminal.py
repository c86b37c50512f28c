"""A game on a terminal: a real process behind a real pseudo-terminal, and terminals that lack colours or letters."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import fakes
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import InstructionError
from animegamer_rt.events import FrameReady, StageSeconds, StatePredicted
from animegamer_rt.play.terminal import Terminal
from animegamer_rt.state.game import CharacterState, GameState

SECONDS = 120  # a busy machine takes its time to start Python


class Player:
    """Someone at a terminal: types, and reads the screen."""

    def __init__(self, folder: Path, *options: str, **variables: str) -> None:
        fakes.write_bundle(folder / "tiny")
        import pty

        self.screen_end, other_end = pty.openpty()
        command = [sys.executable, "-m", "animegamer_rt", "play", "--bundle", str(folder / "tiny"), *options]
        terminal = {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "50", "INPUTRC": os.devnull}
        self.process = subprocess.Popen(
            command,
            stdin=other_end,
            stdout=other_end,
            stderr=other_end,
            cwd=folder,
            env={**os.environ, **terminal, **variables},
            start_new_session=True,
        )
        os.close(other_end)
        self.seen = ""

    def type(self, text: str) -> None:
        """Type a text as it is."""
        os.write(self.screen_end, text.encode())

    def read_until(self, expected: str) -> str:
        """What appears on the screen up to and with a text; fails if it does not appear."""
        deadline, fresh = time.monotonic() + SECONDS, self.seen
        while expected not in _plain(fresh):
            assert time.monotonic() < deadline, f"{expected!r} never appeared in {_plain(fresh)!r}"
            if select.select([self.screen_end], [], [], 0.2)[0]:
                try:
                    fresh += os.read(self.screen_end, 65536).decode(errors="replace")
                except OSError:
                    break
        before, found, self.seen = _plain(fresh).partition(expected)
        assert found, before
        return before + found

    def leave(self) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait(timeout=SECONDS)


def _plain(screen: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen).replace("\r", "")


@contextlib.contextmanager
def at_a_terminal(folder: Path, *options: str, **variables: str) -> Iterator[Player]:
    player = Player(folder, "--seed", "7", "--out", "mine", *options, **variables)
    try:
        yield player
    finally:
        player.process.kill()
        player.process.wait()
        os.close(player.screen_end)


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    with at_a_terminal(tmp_path, "--no-preview") as player:
        yield player


def turns(folder: Path) -> list[str]:
    return [turn["instruction"] for turn in json.loads((folder / "mine" / "game.json").read_text())["turns"]]


def test_a_game_is_asked_for_turn_by_turn(player: Player, tmp_path: Path) -> None:
    opening = player.read_until("turn 1 > ")
    assert "Mia, Tobo" in opening and "day town, night forest" in opening
    assert "Tobo runs to the forest." in opening and "Motion:" not in opening
    player.type("Mia waves\n")
    turn = player.read_until("turn 2 > ")
    for name in ("motion level", "stamina", "social", "entertainment", "mine/turn-001.mp4"):
        assert name in turn
    assert re.search(r"stamina +[█░]{20} +\d+ +[-+=]", turn)
    player.type("Tobo runs\n")
    player.read_until("turn 3 > ")
    player.type("quit\n")
    closing = player.read_until("game record:")
    assert "2 turns" in closing and "mine/contact-sheet.png" in closing
    assert player.leave() == 0
    assert turns(tmp_path) == ["Mia waves", "Tobo runs"]


def test_bad_instruction_is_explained_and_asked_for_again(player: Player, tmp_path: Path) -> None:
    player.read_until("turn 1 > ")
    player.type("   \n...\n")
    player.read_until("the instruction is empty")
    player.type("x" * 600 + "\n")
    player.read_until("the instruction is too long")
    player.type("/bundlex other\n:rewind 1\n")
    player.read_until("no such command; found '/bundlex'; expected help, undo or quit")
    player.read_until("no such command; found ':rewind'")
    player.read_until("turn 1 > ")
    player.type("\x04")
    assert "no turn was finished" in player.read_until("no turn was finished")
    assert player.leave() == 0
    assert turns(tmp_path) == []


def test_interrupt_at_the_prompt_ends_the_game(player: Player, tmp_path: Path) -> None:
    player.read_until("turn 1 > ")
    player.type("Mia waves\n")
    player.read_until("turn 2 > ")
    time.sleep(0.5)  # the line editor shows its prompt a moment before it listens for signals
    os.killpg(player.process.pid, signal.SIGINT)
    player.read_until("1 turn")
    assert player.leave() == 130
    assert turns(tmp_path) == ["Mia waves"]


def test_an_interrupt_while_the_clip_is_shown_goes_on_to_the_next_turn(tmp_path: Path) -> None:
    with at_a_terminal(tmp_path, "--fps", "1") as player:
        player.read_until("turn 1 > ")
        player.type("Mia waves\n")
        player.read_until("▀")
        os.killpg(player.process.pid, signal.SIGINT)
        shown = player.read_until("turn 2 > ")
        assert "mine/turn-001.mp4" in shown and "stopped" not in shown


FRAMES = np.zeros((2, 16, 24, 3), np.uint8)


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
    quiet = GameState(motion_level=1, social=0, entertainment=0, stamina=0)
    about = {"game_state": quiet, "character": character, "shown": character, "motion_scope": 0.0, "history_turns": 0}
    return StatePredicted(session="game", turn=1, sequence=0, shot=np.zeros((226, 4), np.float32), **about)


def finish_turn(terminal: Terminal) -> None:
    with terminal.turn():
        for index, frame in enumerate(FRAMES):
            terminal.show(FrameReady(session="game", turn=1, sequence=index, index=index, frame=frame))
    seconds = StageSeconds(predictor=0.1, denoiser=2.0, vae=0.5, total=2.6)
    terminal.finished(Path("turn-001.mp4"), seconds, playback_seconds=0.01)


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
