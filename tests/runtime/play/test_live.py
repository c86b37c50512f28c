"""`animegamer-rt play --live`: clips without a gap, quiet turns while nobody types, a sentence when somebody does."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
import tiny_reader
from rich.console import Console
from rich.live import Live

import fakes
from animegamer_rt.api import Clip
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.cli import main
from animegamer_rt.errors import InstructionError
from animegamer_rt.play.command import PlayOptions, open_game
from animegamer_rt.play.live import LiveGame, play_live
from animegamer_rt.play.live_screen import LiveScreen, live_screen
from animegamer_rt.play.played_game import PlayedGame
from animegamer_rt.play.quiet import QuietWords
from animegamer_rt.play.terminal import Terminal
from animegamer_rt.stages.image import Picture

FRAMES, FPS, QUIET_TURNS = 17, 8, 5
CLIP_SECONDS = FRAMES / FPS


class Scripted(Executor):
    """A clock, a worker whose turns take `turn_seconds` on it, and a terminal at which lines are typed on time."""

    def __init__(self, lines: dict[float, str | None], turn_seconds: float = 0.5) -> None:
        self.now, self._lines, self._turn_seconds = 0.0, dict(sorted(lines.items())), turn_seconds
        self._busy_until = 0.0
        self.pictures: list[float] = []
        self.begun: list[tuple[str, bool, float]] = []
        self.refusals: list[str] = []
        self.waiting = ""

    def clock(self) -> float:
        return self.now

    def submit(self, play: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        assert self.now >= self._busy_until, "one turn of a game at a time"
        self._busy_until = ready = self.now + self._turn_seconds
        turn: Future[Any] = Future()
        turn.done = lambda: self.now >= ready  # type: ignore[method-assign]
        try:
            turn.set_result(play(*arguments, **named))
        except InstructionError as error:
            turn.set_exception(error)
        return turn

    def begin(self, clip: Clip, asked: bool) -> None:
        self.begun.append((clip.instruction, asked, self.now))

    def show(self, picture: Picture) -> None:
        self.pictures.append(self.now)

    def coming(self, text: str) -> None:
        self.waiting = text

    def refused(self, error: InstructionError) -> None:
        self.refusals.append(str(error))

    def typed(self, seconds: float) -> str | None:
        at = next(iter(self._lines), float("inf"))
        if at > self.now + seconds:
            self.now += seconds
            return ""
        self.now = max(self.now, at)
        return self._lines.pop(at)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tiny_reader.add_reader(fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny"))


@pytest.fixture
def played(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedGame]:
    monkeypatch.setattr("animegamer_rt.play.command.open_engines", lambda *_: fakes.fake_engines())
    game = open_game(PlayOptions(seed=7, out=tmp_path / "out"), bundle)
    yield game
    game.close()


def live(played: PlayedGame, lines: dict[float, str | None], turn_seconds: float = 0.5) -> Scripted:
    """A live game until somebody quits."""
    scripted = Scripted(lines, turn_seconds)
    words = QuietWords(tiny_reader.WORDS, seed=7)
    play_live(LiveGame(played, words), scripted, FPS, scripted, scripted.clock)
    return scripted


def kept(played: PlayedGame) -> list[str]:
    """The instructions of the game's record, whose files are all of the folder."""
    record = json.loads(played.folder.game_path.read_text(encoding="utf-8"))
    found = {path.name for path in played.folder.folder.iterdir() if not path.name.startswith(".")}
    assert found == set(played.folder.files)
    return [turn["instruction"] for turn in record["turns"]]


def test_clips_follow_each_other_and_a_sentence_comes_with_the_next(played: PlayedGame) -> None:
    scripted = live(played, {5.0: "Tobo runs in a raincoat", 12.0: "...", 20.0: None})
    first = scripted.pictures[0]
    assert scripted.pictures == pytest.approx([first + at / FPS for at in range(len(scripted.pictures))])
    asked = [(text, at) for text, was_asked, at in scripted.begun if was_asked]
    assert [text for text, _ in asked] == ["Tobo runs in a raincoat"]
    assert 5.0 < asked[0][1] <= 5.0 + CLIP_SECONDS
    assert len(scripted.refusals) == 1 and "the instruction is empty" in scripted.refusals[0]
    texts = [text for text, _, _ in scripted.begun]
    assert texts[0].startswith(("Mia", "Tobo")) and " the " in texts[0]
    assert sum(text.startswith("Now") for text in texts) >= 4 and len(texts) == 10
    assert kept(played)[: len(texts)] == texts


def test_undo_takes_the_last_sentence_back_and_says_so(played: PlayedGame) -> None:
    scripted = live(played, {3.0: "Tobo waves", 9.0: "undo", 20.0: None})
    assert "Tobo waves" not in kept(played)
    assert scripted.waiting == "" and len(scripted.refusals) == 1
    assert re.fullmatch(r"turn \d+ is taken back", scripted.refusals[0])


def test_quiet_words_of_which_nothing_is_drawn_make_way_for_others(
    played: PlayedGame, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = cycle(("Mia waves.", "..."))
    monkeypatch.setattr(QuietWords, "instruction", lambda *_, **__: next(said))
    scripted = live(played, {5 * CLIP_SECONDS: None})
    assert {text for text, _, _ in scripted.begun} == {"Mia waves."} and len(scripted.begun) >= 5
    assert not scripted.refusals


def test_slow_engines_hold_the_last_picture_and_go_on(played: PlayedGame) -> None:
    scripted = live(played, {30.0: None}, turn_seconds=5.0)
    begun = [at for _, _, at in scripted.begun]
    assert all(after - before == pytest.approx(5.0, abs=0.2) for before, after in pairwise(begun))


@pytest.fixture
def few_quiet_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a live game goes back."""
    monkeypatch.setattr("animegamer_rt.play.live.QUIET_TURNS", QUIET_TURNS)


def test_nothing_grows_while_nobody_types(played: PlayedGame, few_quiet_turns: None) -> None:
    typed = 2.5 * CLIP_SECONDS
    scripted = live(played, {typed: "Tobo waves", typed + 20 * CLIP_SECONDS: None})
    texts = [text for text, _, _ in scripted.begun]
    assert len(texts) > 3 * QUIET_TURNS
    asked = texts.index("Tobo waves")
    record = kept(played)
    assert record[: asked + 1] == texts[: asked + 1]
    assert len(record) <= asked + 1 + QUIET_TURNS and played.session.turns == len(record)


def test_what_was_kept_can_be_played_again(
    played: PlayedGame, few_quiet_turns: None, bundle: Bundle, tmp_path: Path
) -> None:
    live(played, {3.0: "Tobo waves", 12 * CLIP_SECONDS: None})
    script = tmp_path / "again.txt"
    script.write_text("\n".join(kept(played)), encoding="utf-8")
    command = ["play", "--bundle", str(bundle.folder), "--instructions", str(script), "--seed", "7"]
    assert main([*command, "--out", str(tmp_path / "again")]) == 0
    again = json.loads((tmp_path / "again" / "game.json").read_text(encoding="utf-8"))["turns"]
    first = json.loads(played.folder.game_path.read_text(encoding="utf-8"))["turns"]
    assert [turn["frames_sha256"] for turn in again] == [turn["frames_sha256"] for turn in first]


def test_who_leaves_in_a_turn_keeps_what_was_finished(played: PlayedGame) -> None:
    game = LiveGame(played, QuietWords(tiny_reader.WORDS, seed=7))
    assert game.asked("Tobo waves") is not None
    game.leave()
    assert game.quiet() is None
    assert kept(played) == ["Tobo waves"]


def test_it_needs_a_terminal(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--bundle", str(bundle.folder), "--live"]) == 2
    assert "--live needs a terminal" in capsys.readouterr().err


@pytest.fixture
def terminal(bundle: Bundle) -> Terminal:
    return Terminal(bundle, preview=False, console=Console(file=io.StringIO(), force_terminal=True))


@pytest.mark.skipif(sys.platform == "win32", reason="a live game is refused there")
@pytest.mark.parametrize("twice", [False, True])
def test_ctrl_c_leaves_the_terminal_as_it_was(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, twice: bool) -> None:
    import termios

    def interrupted(live: Live) -> None:
        raise KeyboardInterrupt

    keyboard, slave = os.openpty()
    with open(slave, encoding="utf-8") as stdin, open(keyboard, "wb", buffering=0) as keys:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(stdin)
        with pytest.raises(KeyboardInterrupt), live_screen(terminal) as screen:
            assert termios.tcgetattr(stdin) != before
            keys.write("Tobo räns\x7f\x7f\x7funs\x1b[A\r".encode())
            assert screen.typed(5.0) == "Tobo runs"
            if twice:
                monkeypatch.setattr(Live, "stop", interrupted)
            raise KeyboardInterrupt
        assert termios.tcgetattr(stdin) == before


def test_a_terminal_that_is_gone_ends_the_game_in_mid_line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with open(read, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        screen = LiveScreen(terminal, Live(console=terminal.console))
        os.write(write, b"Tobo")
        os.close(write)
        assert screen.typed(5.0) == "" and screen.typed(5.0) is None


def test_quiet_words_are_sentences() -> None:
    words = QuietWords(tiny_reader.WORDS, seed=1)
    said = {words.instruction(first=False) for _ in range(300)}
    assert any(text.endswith("at night.") for text in said)
    assert any(text.startswith("Now fly on a kite gently") for text in said)
    assert not any("quickly" in text or "wildly" in text for text in said)
    assert any(text.startswith("Mia flies on a kite") for text in said)
