"""The short recipe walks the whole road of `make pocket`: render, train every phase, export, measure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.events import Done, FrameReady, StatePredicted, Understood
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, str, Path]:
    """A bundle of the short recipe, what the build printed, and its work folder."""
    work, out = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("bundles") / "pocket"
    return load_after(work, out)


def load_after(work: Path, out: Path) -> tuple[Bundle, str, Path]:
    command = [sys.executable, "-m", "animegamer_export.pocket", "--recipe", "short"]
    command += ["--work", str(work), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return load(out), done.stdout, work


def test_every_phase_runs_in_order(built: tuple[Bundle, str, Path]) -> None:
    _, printed, _ = built
    named = [line[3:] for line in printed.splitlines() if line.startswith("== ")]
    trained = ["corpus", "frames", "autoencoder", "decoder", "denoiser", "predictor", "adapt", "adapt_decoder"]
    assert named == [*trained, "readers", "bundle", "plans", "answers", "quality"]


def test_the_built_bundle_plays_a_turn_with_history(built: tuple[Bundle, str, Path]) -> None:
    bundle, _, _ = built
    pipeline = Pipeline.open(bundle, open_engines(bundle, EngineConfig("cpu-fp32", threads=1)), "fast")
    session = Session.start(bundle, seed=3)
    for text in ("Tofi waves gently in the meadow.", "Now run!"):
        events = list(pipeline.run_turn(session, Instruction.parse(text)))
        frames = [event.frame for event in events if isinstance(event, FrameReady)]
        assert np.stack(frames).shape == (17, 96, 144, 3)
        assert (
            isinstance(events[0], Understood) and isinstance(events[1], StatePredicted) and isinstance(events[-1], Done)
        )
    assert session.turns == 2


def test_the_manifest_carries_measured_figures(built: tuple[Bundle, str, Path]) -> None:
    manifest = built[0].manifest
    assert manifest.origin == "trained"
    assert 5 < manifest.quality["vae"]["psnr_db"] < 99
    assert set(manifest.quality["fast"]) >= {"instruction", "motion", "states", "game"}
    for name, entry in manifest.plans.items():
        assert (name == "exact") == (not entry.fidelity), name
        if entry.fidelity:
            assert 0 <= entry.fidelity["instruction_score"] <= 1 and 0 <= entry.fidelity["instruction_score_exact"] <= 1
            assert entry.fidelity["instruction_judge"].startswith("pocket's judge")


def test_pictures_are_drawn(built: tuple[Bundle, str, Path]) -> None:
    drawn = sorted(path.name for path in (built[2] / "pictures").iterdir())
    assert drawn == ["pocket-game.png", "pocket-turns.png"]
