"""Plays the same turns with every engine, compares their results, and makes one record of it.

Every engine plays turn k before any plays turn k + 1, so a temporary slowdown affects all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch

from animegamer_bench.machine import Watch, describe, machine_facts, reader
from animegamer_bench.records import percentiles, unsteady
from animegamer_bench.suites import TIMED
from animegamer_rt.backends.interface import Engines, FloatArray, Frames
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.events import Done, FrameReady, StageSeconds, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.instructions_file import example_script
from animegamer_rt.profiling.host import environment
from animegamer_rt.session import Session
from animegamer_rt.state.game import GameState, Instruction

from .engines import open_library_engines

LIBRARIES = ("onnxruntime", "torch", "transformers", "diffusers")
OURS_TORCH, OURS, OURS_8_BIT = "animegamer-rt torch", "animegamer-rt onnxruntime", "animegamer-rt onnxruntime 8-bit"
EAGER = "transformers + diffusers"
SEED = 7
STAGES = ("predictor", "denoiser", "vae")
FRAME_LEVELS, SHOT_SHARE = 2, 1e-3
"""Largest differences from float32 rounding over a few turns: of a frame in levels of 255, and of a shot relative to
its largest value."""


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A turn's result and duration. shot f32 [226, D]; frames u8 [17, H, W, 3]."""

    state: GameState
    shot: FloatArray
    frames: Frames
    seconds: StageSeconds


@dataclass
class Player:
    """One engine with its own game, and every turn that it played."""

    name: str
    pipeline: Pipeline
    session: Session
    turns: list[PlayedTurn] = field(default_factory=list)

    def play(self, text: str) -> None:
        """Play a turn."""
        events = list(self.pipeline.run_turn(self.session, Instruction.parse(text)))
        predicted = next(event for event in events if isinstance(event, StatePredicted))
        frames = np.stack([event.frame for event in events if isinstance(event, FrameReady)])
        done = events[-1]
        assert isinstance(done, Done)
        self.turns.append(PlayedTurn(predicted.game_state, predicted.shot, frames, done.seconds))


def measure(bundle: Bundle, plan: str, turns: int, threads: int) -> dict[str, Any]:
    """The record of `turns` turns of each engine, after one warm-up. threads: of every engine.

    Raises BackendError for a bundle that PyTorch cannot read.
    """
    torch.set_num_threads(threads)
    players = [
        Player(name, Pipeline.open(bundle, engines, plan), Session.start(bundle, seed=SEED))
        for name, engines in _engines(bundle, plan, threads).items()
    ]
    texts = islice(cycle(example_script(bundle.manifest.world)), turns + 1)
    with Watch(reader(None)) as watch:
        for text in texts:
            for player in players:
                player.play(text)
    during = describe(watch.readings)
    reference, manifest = players[0], bundle.manifest
    entries = [_entry(player, reference, during) for player in players]
    base = next(entry for entry in entries if entry["name"] == OURS)["seconds_per_turn_p50"]
    return {
        **environment(*LIBRARIES),
        "kind": "peers",
        **machine_facts(),
        "timed": TIMED,
        "bundle": manifest.name,
        "fingerprint": bundle.fingerprint,
        "shape": [manifest.geometry.frames, manifest.geometry.height, manifest.geometry.width],
        "plan": plan,
        "steps": len(reference.pipeline.plan),
        "n": turns,
        "threads_of_each": threads,
        "activity": during,
        "reference": reference.name,
        "engines": [
            {**entry, "ratio": round(entry["seconds_per_turn_p50"] / base, 3) if base else None} for entry in entries
        ],
    }


def differing(record: Mapping[str, Any]) -> list[str]:
    """The float32 engines of a record whose turns differ from the reference's by more than rounding."""
    return [entry["name"] for entry in record["engines"] if entry["precision"] == "fp32" and not entry["equal"]]


def _engines(bundle: Bundle, plan: str, threads: int) -> dict[str, Engines]:
    ours = open_engines(bundle, EngineConfig(device="cpu-fp32", threads=threads), plan=plan)
    found = {
        OURS_TORCH: open_engines(bundle, EngineConfig(device="torch-cpu"), plan=plan),
        OURS: replace(ours, precision=dict.fromkeys(ours.precision or bundle.manifest.parts, "fp32")),
    }
    if any(part.int8_file for part in bundle.manifest.parts.values()):
        found[OURS_8_BIT] = open_engines(bundle, EngineConfig(device="cpu", threads=threads), plan=plan)
    # The libraries have no reader of instructions.
    found[EAGER] = replace(open_library_engines(bundle), reader=ours.reader, picture_reader=ours.picture_reader)
    return found


def _entry(player: Player, reference: Player, during: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one engine; the first turn is the warm-up, but is compared too."""
    timed = [one.seconds for one in player.turns[1:]]
    seconds = [one.total for one in timed]
    pairs = list(zip(player.turns, reference.turns, strict=True))
    shot = max(_share(one.shot, other.shot) for one, other in pairs)
    levels = max(_levels(one.frames, other.frames) for one, other in pairs)
    same = all(one.state == other.state for one, other in pairs)
    return {
        "name": player.name,
        "precision": "fp32" if player.name != OURS_8_BIT else "int8",
        "n": len(seconds),
        **{f"seconds_per_turn_{name}": value for name, value in percentiles(seconds).items()},
        "stages": {stage: percentiles([getattr(one, stage) for one in timed]) for stage in STAGES},
        "samples": [round(one, 5) for one in seconds],
        "unsteady": unsteady(seconds, during),
        "same_states": same,
        "shot_difference": float(f"{shot:.2g}"),
        "frame_difference": levels,
        "equal": same and shot <= SHOT_SHARE and levels <= FRAME_LEVELS,
    }


def _share(found: FloatArray, expected: FloatArray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def _levels(found: Frames, expected: Frames) -> int:
    return int(np.abs(found.astype(np.int16) - expected.astype(np.int16)).max())
