"""The PyTorch backend on the shipped bundle: numbers, states and frames of onnxruntime; and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from benchmarks.gpu.half_products import HalfProducts

import fakes
from animegamer_bench import run as bench
from animegamer_export.evaluate.metrics import psnr
from animegamer_kernels.library import OFF, PATH_VARIABLE
from animegamer_rt import cli
from animegamer_rt.backends import registry
from animegamer_rt.backends.interface import Engines, Frames
from animegamer_rt.backends.torch import loader as torch_backend
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import Part
from animegamer_rt.bundle.roles import ENCODER, PLAY_ROLES
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.diagnose import selftest
from animegamer_rt.engine_config import ATTENTIONS, EngineConfig
from animegamer_rt.errors import BackendError
from animegamer_rt.events import Event, FrameReady, StatePredicted
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.game import Instruction

PSNR_DB = 45.0
TOLERANCES = {"predictor": 1e-5, "denoiser": 1e-4}
"""Largest errors, MODEL.md section 7 (four steps of the sampler), as shares of values above 1, such as logits. Frames
may differ by one of 255."""

Played = tuple[Frames, list[object]]
"""Frames and states of all turns."""


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return open_bundle("pocket")


@pytest.fixture(scope="module")
def both(bundle: Bundle) -> tuple[Engines, Engines]:
    """PyTorch's engines and onnxruntime's."""
    configs = EngineConfig("torch-cpu"), EngineConfig("cpu-fp32", threads=1)
    ours, theirs = (registry.open_engines(bundle, config) for config in configs)
    return ours, theirs


def test_every_part_answers_as_onnxruntime_does(bundle: Bundle, both: tuple[Engines, Engines]) -> None:
    found, expected = (list(selftest.answers(bundle, engines)) for engines in both)
    assert [name for name, _, _ in found] == [name for name, _, _ in expected] and len(found) == 8
    for (name, ours, _), (_, theirs, _) in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.std() > 0
        error, largest = float(np.abs(ours.astype(np.float64) - theirs).max()), float(np.abs(theirs).max())
        tolerance = TOLERANCES.get(name.partition(".")[0])
        assert error <= (1.0 if tolerance is None else tolerance * max(1.0, largest)), name


def test_encoder_answers_as_onnxruntime_does(bundle: Bundle, both: tuple[Engines, Engines]) -> None:
    random, size = np.random.default_rng(5), bundle.manifest.sizes["encoder"]
    text = random.standard_normal((1, size["text_tokens"], size["text_width"]), dtype=np.float32)
    image = random.standard_normal((1, size["image_tokens"], size["image_width"]), dtype=np.float32)
    shots = [engines.encoder.encode(text, image) for engines in both if engines.encoder is not None]
    assert len(shots) == 2 and np.abs(shots[0] - shots[1]).max() <= 1e-5


@pytest.fixture(scope="module")
def game(bundle: Bundle, both: tuple[Engines, Engines]) -> Played:
    """Two turns by PyTorch's engines."""
    return played(short_pipeline(bundle, both[0]))


def test_two_turns_look_as_onnxruntime_paints_them(bundle: Bundle, both: tuple[Engines, Engines], game: Played) -> None:
    (ours, our_states), (theirs, their_states) = game, played(short_pipeline(bundle, both[1]))
    assert our_states == their_states
    assert ours.shape == theirs.shape == (34, 96, 144, 3)
    assert psnr(ours, theirs) > PSNR_DB


def short_pipeline(bundle: Bundle, engines: Engines) -> Pipeline:
    """A pipeline with a plan of three steps, whose timesteps are in none of the bundle's plans."""
    pipeline = Pipeline.open(bundle, engines)
    pipeline.denoiser._plan = fakes.plan_with_reuse(3)
    return pipeline


def played(pipeline: Pipeline, turns: int = 2) -> Played:
    session, events = Session.start(pipeline.bundle, seed=7), list[Event]()
    for text in pipeline.bundle.manifest.world.examples[:turns]:
        events += pipeline.run_turn(session, Instruction.parse(text))
    states: list[object] = [event.game_state for event in events if isinstance(event, StatePredicted)]
    return np.stack([event.frame for event in events if isinstance(event, FrameReady)]), states


def test_why_a_fresh_process_cannot_play_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cli.main(["bench", "run", "--device", "tensorrt", "--results", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "a fresh process cannot play this bundle; found " in said and said.count("\n") == 1


def test_bundle_that_is_no_network_of_ours_is_refused(tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny")
    with pytest.raises(BackendError, match="lacks the sizes of its denoiser"):
        torch_backend.load(bundle, EngineConfig("torch-cpu"))
    parts = {**bundle.manifest.parts, "denoiser": Part("denoiser.onnx", "int8-qdq")}
    quantised = write_manifest(bundle.folder, replace(bundle.manifest, parts=parts))
    said = r"cannot read the quantised weights of denoiser.*found int8-qdq; .*predictor=int4-qdq"
    with pytest.raises(BackendError, match=said):
        torch_backend.load(quantised, EngineConfig("torch-cpu"))


COMMANDS = {
    "play": (["--instructions", "{file}"], "animegamer_rt.play.command"),
    "bench run": (["--results", "{folder}"], "animegamer_bench.run"),
    "selftest": (["--out", "{folder}/report.json"], "animegamer_rt.diagnose.selftest"),
    "search-plans": (["pocket", "--dry-run", "--results", "{folder}"], "animegamer_export.evaluate.turns"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_asked_of_pytorch_reaches_its_engines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns.txt").write_text("Mia waves.")
    arguments, module = COMMANDS[name]

    def opened(bundle: Bundle, config: EngineConfig, plan: str | None = None) -> Engines:
        raise BackendError(f"opened {config}")

    monkeypatch.setattr(f"{module}.open_engines", opened)
    monkeypatch.setattr(bench, "measure_fresh_process", lambda *given: {})
    words = [word.format(file=tmp_path / "turns.txt", folder=tmp_path) for word in arguments]
    chosen = ["--device", "torch-cpu", "--precision", "fp16", "--attention", "wgmma"]
    assert cli.main([*name.split(), *words, *chosen]) == 2
    assert f"opened {EngineConfig('torch-cpu', 'fp16', 'wgmma')}" in capsys.readouterr().err


def test_an_attention_without_kernels_is_refused_before_a_read(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, OFF)
    monkeypatch.delattr(torch_backend, "load_models")
    for name in ATTENTIONS.keys() - {"torch"}:
        said = f"not built or are turned off; found --attention {name}; .*make kernels.*or omit"
        with pytest.raises(BackendError, match=said):
            registry.open_engines(bundle, EngineConfig("torch-cpu", attention=name))


def test_precision_that_was_asked_for_is_what_opens_and_what_records_say(bundle: Bundle) -> None:
    engines = registry.open_engines(bundle, EngineConfig("torch-cpu", "int8"), plan="balanced")
    assert " in bfloat16 and INT8 on " in engines.device
    bf16 = dict.fromkeys(("predictor", "vae"), "bf16")
    assert engines.precision == {**bf16, "denoiser": "int8"}
    recorded = {role: engines.precision_of(bundle, role) for role in (*PLAY_ROLES, ENCODER)}
    assert recorded == {**recorded, **engines.precision} and recorded["encoder"] == "fp16"
    with HalfProducts():
        without_vae = islice(selftest.answers(bundle, engines), 4)
        values = {name: found for name, found, _ in without_vae}
    assert "denoiser.latent" in values
    expected = selftest._reference(bundle)
    for name, found in values.items():
        error = selftest.compare(found, expected[name])
        assert 1e-4 < error <= selftest.allowed_error(bundle, EngineConfig("torch-cpu", "int8"), name), name
