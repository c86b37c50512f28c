"""The public API: what `import animegamer_rt` offers, and what its errors and broken-off turns leave behind."""

from __future__ import annotations

import doctest
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import animegamer_rt
import fakes
from animegamer_rt import (
    AnimeGamerError,
    BundleError,
    ConfigError,
    Done,
    FrameReady,
    Game,
    PlanError,
    Player,
    SessionError,
    StatePredicted,
    api,
    errors,
    pipeline,
)
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.state.game import Instruction

WAVE = "Mia waves."


@pytest.fixture
def player(bundle: Bundle) -> Iterator[Player]:
    with Player(bundle, fakes.fake_engines()) as player:
        yield player


@pytest.fixture
def game(player: Player) -> Game:
    return player.start(seed=7)


def test_examples_in_the_docstrings_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with animegamer_rt.open("pocket", plan="turbo", threads=1) as player:
        for module, examples in ((api, 14), (pipeline, 7)):
            given = {"player": player}
            assert doctest.testmod(module, extraglobs=given, optionflags=doctest.ELLIPSIS) == (0, examples)
    with av.open("turn.mp4") as video:
        assert sum(1 for _ in video.decode(video=0)) == 17


def test_importing_the_package_imports_no_numpy_and_no_engine() -> None:
    code = "import sys, animegamer_rt; print({'numpy', 'onnxruntime', 'av', 'torch'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_turn_is_its_stream_put_together(player: Player) -> None:
    clip, events = player.start(seed=7).turn(WAVE), list(player.start(seed=7).stream(WAVE))
    frames = [event.frame for event in events if isinstance(event, FrameReady)]
    assert clip.frames.dtype == np.uint8 and (clip.frames == np.stack(frames)).all()
    assert isinstance(events[0], StatePredicted) and isinstance(events[-1], Done)
    assert [event.sequence for event in events] == list(range(len(events)))
    assert (clip.state, clip.character, clip.shown) == (events[0].game_state, events[0].character, events[0].shown)
    assert (clip.turn, clip.instruction, clip.fps) == (1, WAVE, 8)


def test_games_of_one_player_take_turns_and_remember_their_own(player: Player) -> None:
    alone, one, other = player.start(seed=7), player.start(seed=7), player.start(seed=8)
    for text in (WAVE, "Tobo runs."):
        expected = alone.turn(text).frames
        assert (one.turn(text).frames == expected).all()
        assert (other.turn(text).frames != expected).any()


@pytest.mark.parametrize("after", [1, 5, 21])
def test_stream_that_is_closed_early_leaves_the_game_as_it_was(player: Player, game: Game, after: int) -> None:
    stream = game.stream(WAVE)
    for _ in range(after):
        next(stream)
    stream.close()
    assert (game.turns, game.character.stamina) == (0, 50)
    assert (game.turn(WAVE).frames == player.start(seed=7).turn(WAVE).frames).all()


def test_second_turn_at_once_is_refused_until_the_first_is_closed(player: Player, game: Game) -> None:
    stream = game.stream(WAVE)
    next(stream)
    with pytest.raises(SessionError, match="already playing a turn; .* close the stream"):
        player.start().turn(WAVE)
    stream.close()
    assert player.start().turn(WAVE).turn == 1


def test_closed_player_plays_nothing(player: Player, game: Game) -> None:
    running = game.stream(WAVE)
    next(running)
    player.close()
    for act in (lambda: next(running), lambda: game.turn(WAVE), lambda: game.stream(WAVE), player.start):
        with pytest.raises(SessionError, match="the player is closed; .*`with` block"):
            act()
    assert game.turns == 0


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"bundle": "poket"}, BundleError, "did you mean 'pocket'"),
        ({"plan": "fats"}, PlanError, "did you mean 'fast'"),
        ({"device": "cuda0"}, ConfigError, "unknown device.*did you mean 'cuda'"),
        ({"precision": "fp8"}, ConfigError, "set for PyTorch"),
    ],
)
def test_unknown_choice_is_refused_with_the_nearest(options: dict[str, str], kind: type, said: str) -> None:
    with pytest.raises(kind, match=said):
        animegamer_rt.open(**options)  # type: ignore[arg-type]


CALLS: dict[str, Callable[[Player], Any]] = {
    "open(5)": lambda _: animegamer_rt.open(5),  # type: ignore[arg-type]
    "open('')": lambda _: animegamer_rt.open(""),
    "open(NUL)": lambda _: animegamer_rt.open("a\0b"),
    "open(long)": lambda _: animegamer_rt.open("n" * 5000),
    "open(~nosuch)": lambda _: animegamer_rt.open("~nosuchuser"),
    "plan ''": lambda player: animegamer_rt.open(player.bundle, plan=""),
    "plan 5": lambda player: animegamer_rt.open(player.bundle, plan=5),  # type: ignore[arg-type]
    "device": lambda player: animegamer_rt.open(player.bundle, device=None),  # type: ignore[arg-type]
    "threads": lambda player: animegamer_rt.open(player.bundle, threads="4"),  # type: ignore[arg-type]
    "seed '1'": lambda player: player.start("1"),  # type: ignore[arg-type]
    "seed 1.5": lambda player: player.start(1.5),  # type: ignore[arg-type]
    "seed True": lambda player: player.start(True),
    "seed -1": lambda player: player.start(-1),
    "seed 2**128": lambda player: player.start(2**128),
    "history": lambda player: player.start(1, history_turns="2"),  # type: ignore[arg-type]
    "history -1": lambda player: player.start(1, history_turns=-1),
    "image": lambda player: player.start(1, image=5, motion="wave"),  # type: ignore[arg-type]
    "image alone": lambda player: player.start(1, image="picture.png"),
    "motion alone": lambda player: player.start(1, motion="gently wave"),
    "turn": lambda player: player.start(1).turn(None),  # type: ignore[arg-type]
    "blank": lambda player: player.start(1).stream("  "),  # before the turn begins
    "rewind": lambda player: player.start(1).rewind("0"),  # type: ignore[arg-type]
    "branch": lambda player: player.start(1).branch(0, seed="x"),  # type: ignore[arg-type]
    "instruction": lambda _: Instruction.parse(5),  # type: ignore[arg-type]
    "save": lambda player: player.start(1).turn("Mia waves.").save(5),  # type: ignore[arg-type]
    "scale": lambda player: player.start(1).turn("Mia waves.").save("x.mp4", scale="2"),  # type: ignore[arg-type]
    "scale 0": lambda player: player.start(1).turn("Mia waves.").save("x.mp4", scale=0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_value_is_an_error_of_this_package(player: Player, call: Callable[[Player], Any]) -> None:
    with pytest.raises(AnimeGamerError):
        call(player)


def test_a_player_says_that_it_does_not_survive_a_fork(player: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    game = player.start(1)
    monkeypatch.setattr(os, "getpid", lambda: 0)
    with pytest.raises(SessionError, match="before a fork"):
        game.turn("Mia waves.")


def test_every_error_is_in_the_tree_drawn_and_has_a_code_of_its_own() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert all(issubclass(kind, AnimeGamerError) for kind in kinds)
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in kinds)
