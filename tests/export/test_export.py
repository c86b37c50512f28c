"""`animegamer-rt export` on random weights of tiny size: whole, broken off, killed, and asked for nonsense."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from project import run_command
from watching import FP16, Watching

from animegamer_export.build.command import add_command
from animegamer_export.build.sizes import FULL
from animegamer_export.build.steps import ExportRequest, export
from animegamer_export.build.weight_source import TOWER_PARTS, ExportSource, from_seed
from animegamer_rt.backends.interface import PartCache
from animegamer_rt.backends.onnxruntime import loader as onnxruntime
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.manifest import Engine
from animegamer_rt.bundle.manifest_file import UNFINISHED
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BundleFileError, ConfigError, OutputError
from animegamer_rt.events import FrameReady
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.instruction import Instruction

RANDOM = ["--random-weights", "0", "--size", "tiny"]


def test_random_weights_become_a_bundle_that_plays(whole: Bundle) -> None:
    bundle = load(whole.folder)
    assert bundle.manifest.origin == "random weights"
    assert not (bundle.folder / UNFINISHED).exists() and not (bundle.folder / ".export").exists()
    session = Session.start(bundle, seed=7)
    pipeline = Pipeline.open(bundle, open_engines(bundle, EngineConfig(threads=1)), "fast")
    frames = [
        event.frame
        for event in pipeline.run_turn(session, Instruction.parse("Mirel waves."))
        if isinstance(event, FrameReady)
    ]
    assert np.stack(frames).shape == (17, 32, 48, 3)


def flip_a_bit(path: Path) -> None:
    held = path.read_bytes()
    path.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))


def test_a_file_damaged_later_is_made_again(tmp_path: Path, whole: Bundle, source: ExportSource) -> None:
    shutil.copytree(whole.folder, tmp_path / "tiny")
    flip_a_bit(tmp_path / "tiny" / "encoder.weights")
    with pytest.raises(BundleFileError, match="damaged"):
        load(tmp_path / "tiny")
    again = Watching()
    export(source, ExportRequest(FP16, tmp_path / "tiny"), again)
    assert again.steps == ["encoder"]
    assert load(tmp_path / "tiny").fingerprint == whole.fingerprint


@pytest.fixture
def finished(tmp_path: Path, whole: Bundle) -> Bundle:
    """The tiny bundle with all that is added after an export: a measured plan, an engine, figures."""
    shutil.copytree(whole.folder, tmp_path / "tiny")
    (tmp_path / "tiny" / "engines").mkdir()
    (tmp_path / "tiny" / "engines" / "vae_first-sm89.engine").write_bytes(b"engine")
    manifest = whole.manifest
    return write_manifest(
        tmp_path / "tiny",
        replace(
            manifest,
            plans={**manifest.plans, "mine": replace(manifest.plans["fast"], fidelity={"ssim": 0.9})},
            engines={"vae_first-sm89": Engine("engines/vae_first-sm89.engine", {}, whole.part_sha256("vae_first"))},
            quality={"fvd": 1.0},
        ),
    )


def test_a_whole_bundle_exported_again_keeps_plans_engines_and_figures(finished: Bundle, source: ExportSource) -> None:
    watching = Watching()
    export(source, ExportRequest(FP16, finished.folder), watching)
    assert watching.steps == []
    again = load(finished.folder).manifest
    assert (again.plans, again.engines) == (finished.manifest.plans, finished.manifest.engines)
    assert again.quality == finished.manifest.quality


def test_a_part_that_changes_costs_the_figures_not_the_plans(finished: Bundle, source: ExportSource) -> None:
    finished.path("engines/vae_first-sm89.engine").unlink()
    export(source, ExportRequest({"encoder": "fp32"}, finished.folder), Watching())
    again = load(finished.folder).manifest
    assert again.plans["mine"].plan == finished.manifest.plans["mine"].plan
    assert (again.plans["mine"].fidelity, again.quality, again.engines) == ({}, {}, {})
    assert again.plans["exact"].default


def test_another_denoiser_takes_no_plan_over(finished: Bundle, source: ExportSource) -> None:
    other = replace(source, made_of={**source.made_of, "denoiser": "another"})
    export(other, ExportRequest(FP16, finished.folder), Watching())
    assert set(load(finished.folder).manifest.plans) == {"exact", "balanced", "fast"}


def test_a_second_bundle_loads_only_what_differs(
    tmp_path: Path, whole: Bundle, source: ExportSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole.folder, tmp_path / "other")
    other = export(source, ExportRequest({"encoder": "fp32"}, tmp_path / "other"), Watching())
    assert other is not None
    opened, plain = list[str](), onnxruntime.open_session

    def counted(path: Path, device: str, threads: int | None) -> object:
        opened.append(path.name)
        return plain(path, device, threads)

    monkeypatch.setattr(onnxruntime, "open_session", counted)
    loaded: PartCache = {}
    onnxruntime.load(whole, EngineConfig(threads=1), loaded)
    assert len(opened) == len(loaded) == 5
    opened.clear()
    onnxruntime.load(other, EngineConfig(threads=1), loaded)
    assert opened == ["encoder.onnx"] and len(loaded) == 5


def test_a_disk_that_fills_up_is_told_and_the_export_goes_on(tmp_path: Path, source: ExportSource) -> None:
    class Full(Watching):
        def step(self, name: str, size: int) -> AbstractContextManager[Callable[[int], None]]:
            if name == "tokenizer":
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().step(name, size)

    asked = ExportRequest({"encoder": "fp16"}, tmp_path / "b")
    with pytest.raises(OutputError, match="the disk is full; free some space and run it again"):
        export(source, asked, Full())
    again = Watching()
    export(source, asked, again)
    assert again.steps == ["tokenizer"]


def test_a_quantised_part_is_made_from_its_fp16_form(tmp_path: Path, source: ExportSource) -> None:
    watching = Watching()
    export(source, ExportRequest({"predictor": "int8-qdq"}, tmp_path / "b"), watching)
    assert watching.steps == ["predictor in fp16", "predictor", "tokenizer"]
    assert not (tmp_path / "b" / ".export").exists()
    weights = (tmp_path / "b" / "predictor.weights").stat().st_size
    assert len(watching.told["predictor"]) > 10 and sum(watching.told["predictor"]) > 0.9 * weights
    operators = {node.op_type for node in onnx.load(tmp_path / "b" / "predictor.onnx").graph.node}
    assert "DequantizeLinear" in operators
    again = Watching()
    export(source, ExportRequest({"predictor": "int8-qdq"}, tmp_path / "b"), again)
    assert again.steps == []


def test_a_killed_export_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "animegamer_rt", "export", "--random-weights", "0", "--size", "tiny"]
    command += ["--parts", "encoder", "--out", str(tmp_path / "b")]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    written, deadline = tmp_path / "b" / "encoder.onnx", time.monotonic() + 600
    while not written.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = written.stat().st_mtime_ns
    with pytest.raises(BundleFileError, match="not finished"):
        load(tmp_path / "b")
    goes_on = Watching()
    export(from_seed(0, "tiny"), ExportRequest({"encoder": "fp16"}, tmp_path / "b"), goes_on)
    assert "tokenizer" in goes_on.steps
    assert ("encoder" in goes_on.steps) == (written.stat().st_mtime_ns != before)


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
        ([*RANDOM, "--precision", "predictor=fp8"], "animegamer-rt quantize BUNDLE --precision predictor=fp8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_make_no_sense_are_refused_before_writing(tmp_path: Path, arguments: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        run_command(add_command, [*arguments, "--out", str(tmp_path / "b")])
    assert not (tmp_path / "b").exists()
