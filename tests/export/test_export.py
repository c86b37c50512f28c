"""`animegamer-rt export` on random weights of tiny size: whole, killed, and asked for nonsense."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import onnx
import pytest
from project import run_command
from watching import FP16, Watching

from animegamer_export.build.command import add_command
from animegamer_export.build.sizes import FULL
from animegamer_export.build.steps import export
from animegamer_export.build.weight_source import TOWER_PARTS, ExportSource, from_seed
from animegamer_export.verify.bundles import SampleCounts, compare
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import ConfigError, OutputError
from animegamer_rt.events import FrameReady
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.game import Instruction

PRECISIONS = {"predictor": "int8-qdq", "denoiser": "fp16", "vae": "fp32", "encoder": "fp16"}
RANDOM = ["--random-weights", "0", "--size", "tiny"]


def test_random_weights_become_a_bundle_that_plays(whole: Bundle) -> None:
    bundle = load(whole.folder)
    assert bundle.manifest.origin == "random weights"
    session = Session.start(bundle, seed=7)
    pipeline = Pipeline.open(bundle, open_engines(bundle, EngineConfig(threads=1)), "fast")
    frames = [
        event.frame
        for event in pipeline.run_turn(session, Instruction.parse("Mirel waves."))
        if isinstance(event, FrameReady)
    ]
    assert np.stack(frames).shape == (17, 32, 48, 3)


def test_a_disk_that_fills_up_is_told_and_nothing_is_left(tmp_path: Path, source: ExportSource) -> None:
    class Full(Watching):
        def step(self, name: str, size: int) -> AbstractContextManager[Callable[[int], None]]:
            if name == "denoiser":
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().step(name, size)

    with pytest.raises(OutputError, match="the disk is full; free some space and run it again$"):
        export(source, FP16, tmp_path / "b", Full())
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def after_a_kill(source: ExportSource, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Watching]:
    """A bundle in other precisions than `whole`, exported where another export was killed."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "animegamer_rt", "export", "--random-weights", "0", "--size", "tiny"]
    process = subprocess.Popen(
        [*command, "--out", str(folder / "b")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
    )
    written, deadline = folder / ".b.unfinished" / "predictor.weights", time.monotonic() + 600
    while not written.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert [path.name for path in folder.iterdir()] == [".b.unfinished"]
    watching = Watching()
    return export(source, PRECISIONS, folder / "b", watching), watching


def test_a_killed_export_leaves_no_bundle_and_the_next_one_starts_again(after_a_kill: tuple[Bundle, Watching]) -> None:
    bundle, watching = after_a_kill
    assert load(bundle.folder).manifest.parts == bundle.manifest.parts
    assert [path.name for path in bundle.folder.parent.iterdir()] == ["b"]
    assert watching.steps == ["predictor", "denoiser", "vae", "encoder", "tokenizer"]
    assert not [path for path in bundle.folder.iterdir() if path.is_dir()]


def test_a_quantised_part_is_made_from_its_fp16_form(after_a_kill: tuple[Bundle, Watching]) -> None:
    bundle, watching = after_a_kill
    weights = (bundle.folder / "predictor.weights").stat().st_size
    assert len(watching.told["predictor"]) > 20 and 2 * weights < sum(watching.told["predictor"]) < 4 * weights
    assert bundle.manifest.parts["predictor"].precision == "int8-qdq"
    assert 0 < bundle.manifest.provenance["export"]["predictor"]["mean_weight_error"] < 0.01
    operators = {node.op_type for node in onnx.load(bundle.folder / "predictor.onnx").graph.node}
    assert "DequantizeLinear" in operators


def test_the_same_weights_in_other_precisions_differ_by_what_rounding_takes(
    after_a_kill: tuple[Bundle, Watching], whole: Bundle
) -> None:
    figures = compare(load(after_a_kill[0].folder), whole, SampleCounts(2, 1, "fast"))
    assert figures.keys() == {"predictor", "vae"}
    assert 1e-5 < figures["predictor"]["shot_relative_error"] < 5e-2 and 50 < figures["vae"]["frames_psnr_db"] < 100


def test_full_size_needs_the_bytes_that_its_weights_take() -> None:
    count = {part: sum(int(np.prod(shape)) for shape in FULL.shapes(part).values()) for part in FP16}
    assert 7.25e9 < count["predictor"] < 7.31e9 and 1.6e9 < count["denoiser"] < 1.8e9
    assert round(count["vae"] / 1e6, 1) == 123.4
    towers = from_seed(0, "full")
    count |= {part: sum(int(np.prod(shape)) for shape in towers.shapes(part).values()) for part in TOWER_PARTS}
    assert 4.75e9 < count["text_tower"] < 4.77e9 and 78e6 < count["image_tower"] < 80e6


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--random-weights", "0", "--release", "Ponyo"], "--release: random weights do not use it"),
        ([*RANDOM, "--parts", "predictr"], "did you mean 'predictor'"),
        ([*RANDOM, "--parts", "encoder"], "--parts: a bundle needs more parts; add predictor,denoiser,vae"),
        ([*RANDOM, "--precision", "predictor=fp8"], "animegamer-rt quantize BUNDLE --precision predictor=fp8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_make_no_sense_are_refused_before_writing(tmp_path: Path, arguments: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        run_command(add_command, [*arguments, "--out", str(tmp_path / "b")])
    assert not (tmp_path / "b").exists()
