"""The Python API with values of other types: errors of this package that say what was expected."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import animegamer_rt
import fakes
from animegamer_rt import AnimeGamerError, Player, SessionError
from animegamer_rt.state.instruction import Instruction


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    with animegamer_rt.open(fakes.write_bundle(tmp_path / "tiny")) as opened:
        yield opened


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
    "history": lambda player: player.start(1, history_turns="2"),  # type: ignore[arg-type]
    "image": lambda player: player.start(1, image=5, motion="wave"),  # type: ignore[arg-type]
    "turn": lambda player: player.start(1).turn(None),  # type: ignore[arg-type]
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
