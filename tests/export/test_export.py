"""`animegamer-rt export` on random weights of tiny size: whole, killed, asked for nonsense; modules as ONNX files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from project import run_command
from torch import Tensor, nn
from watching import FP16, Watching

from animegamer_export.build.command import add_command
from animegamer_export.build.sizes import FULL
from animegamer_export.build.steps import export
from animegamer_export.build.weight_source import TOWER_PARTS, ExportSource, from_seed
from animegamer_export.onnx_io.write import Case, Graph, check_outputs, round_to_fp16, write
from animegamer_export.verify.bundles import SampleCounts, compare
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.errors import BundleError, ConfigError

PRECISIONS = {"predictor": "int8-qdq", "denoiser": "fp16", "vae": "fp32", "encoder": "fp16"}
RANDOM = ["--random-weights", "0", "--size", "tiny"]
EXPORTS = """
import pathlib, sys
from animegamer_rt import cli
from tracing import each_network_traced_once
with each_network_traced_once(pathlib.Path(sys.argv[1])):
    cli.main(sys.argv[2:])
"""


@pytest.fixture(scope="module")
def after_a_kill(
    source: ExportSource, traces: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Bundle, Watching]:
    """A bundle in other precisions than `whole`, exported where another export was killed."""
    folder = tmp_path_factory.mktemp("killed")
    process = subprocess.Popen(
        [sys.executable, "-c", EXPORTS, str(traces), "export", *RANDOM, "--out", str(folder / "b")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
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
    written = load(bundle.folder).manifest
    assert (written.parts, written.origin) == (bundle.manifest.parts, "random weights")
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


class Doubled(nn.Module):
    def __init__(self, linear: nn.Linear, factor: float) -> None:
        super().__init__()
        self.linear, self.factor = linear, factor

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.factor


@pytest.fixture(scope="module")
def linear() -> nn.Linear:
    torch.manual_seed(0)
    return round_to_fp16(nn.Linear(64, 64))


@pytest.fixture(scope="module")
def graphs(linear: nn.Linear) -> list[Graph]:
    x = torch.randn(3, 64)
    return [
        Graph(name, Doubled(linear, factor), {"x": x}, ("y",), {"x": {0: "rows"}})
        for name, factor in (("once", 1.0), ("twice", 2.0))
    ]


@pytest.fixture(scope="module")
def folder(graphs: list[Graph], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    write(folder, graphs, "both.weights")
    return folder


def case(linear: nn.Linear, factor: float, rows: int) -> Case:
    x = torch.randn(rows, 64)
    with torch.no_grad():
        return Case(f"{rows} rows", {"x": x}, {"y": linear(x) * factor})


def test_a_part_that_computes_something_else_is_refused(folder: Path, linear: nn.Linear) -> None:
    with pytest.raises(BundleError, match=r"twice\.onnx: outputs of onnxruntime and torch differ: y"):
        check_outputs(folder, [("twice", case(linear, 2.01, 2))], 1e-5)


def test_a_part_names_its_axes_and_no_source_file(folder: Path, graphs: list[Graph], tmp_path: Path) -> None:
    parts = write(tmp_path, graphs[:1], "both.weights")
    assert parts["once"].inputs == {"x": {"dtype": "float32", "shape": ["rows", 64]}}
    assert parts["once"].outputs == {"y": {"dtype": "float32", "shape": ["rows", 64]}}
    written = (tmp_path / "once.onnx").read_bytes()
    assert b".py" not in written and str(Path(__file__).parent).encode() not in written
    assert written == (folder / "once.onnx").read_bytes()  # the same bytes at every export
