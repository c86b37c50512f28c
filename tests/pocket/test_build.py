"""`make pocket` by the short recipe: every phase from rendering to figures, and what its bundle holds and plays."""

from __future__ import annotations

import contextlib
import io
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from animegamer_export.distill.optimiser import Optimisers
from animegamer_export.verify import bundles
from animegamer_pocket.__main__ import main
from animegamer_pocket.world.captions import parse
from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.events import Done, FrameReady, StatePredicted, Understood
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.state.game import Instruction

SHORT = ("--recipe", "short", "--threads", "1")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, str, Path]:
    """A bundle of the short recipe, what the build printed, and its work folder."""
    work, out = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("bundles") / "pocket"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([*SHORT, "--work", str(work), "--out", str(out)]) == 0
    return load(out), printed.getvalue(), work


@pytest.fixture
def bundle(built: tuple[Bundle, str, Path]) -> Bundle:
    return built[0]


def test_every_phase_runs_in_order(built: tuple[Bundle, str, Path]) -> None:
    _, printed, _ = built
    named = [line[3:] for line in printed.splitlines() if line.startswith("== ")]
    trained = ["corpus", "frames", "autoencoder", "decoder", "denoiser", "predictor", "adapted", "adapted_decoder"]
    assert named == [*trained, "readers", "bundle", "plans", "quality"]


def test_an_interrupted_phase_goes_on_to_the_same_weights(
    built: tuple[Bundle, str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work, update = shutil.copytree(built[2], tmp_path / "work"), Optimisers.step

    def interrupted(optimisers: Optimisers, loss: Tensor, step: int) -> None:
        if step == 0:
            signal.raise_signal(signal.SIGINT)
        update(optimisers, loss, step)

    for phase in ("frames", "denoiser"):
        command = [*SHORT, "--work", str(work), "--out", str(tmp_path / "out"), "--phase", phase]
        for suffix in (".pt", ".state"):
            (work / phase).with_suffix(suffix).unlink()
        monkeypatch.setattr(Optimisers, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(command)
        assert f"{phase}: stopped after step 1 of" in capsys.readouterr().out
        monkeypatch.setattr(Optimisers, "step", update)
        assert main(command) == 0
        again, straight = (torch.load(folder / f"{phase}.pt", weights_only=True) for folder in (work, built[2]))
        for network in again.keys() - {"facts"}:
            for name, weight in again[network].items():
                assert torch.equal(weight, straight[network][name]), (phase, name)


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


def played(bundle: Bundle, engines: Engines) -> np.ndarray:
    """The frames of the first of two turns."""
    pipeline, session, clips = Pipeline.open(bundle, engines, "fast"), Session.start(bundle, seed=7), []
    for text in ("Mirel runs quickly at the beach.", "Now wave!"):
        events = list(pipeline.run_turn(session, Instruction.parse(text)))
        assert [type(event) for event in (*events[:2], events[-1])] == [Understood, StatePredicted, Done]
        clips.append(np.stack([event.frame for event in events if isinstance(event, FrameReady)]).astype(float))
    assert [clip.shape for clip in clips] == [(17, 96, 144, 3)] * 2 and session.turns == 2
    assert clips[0].std() > 1 and not np.array_equal(clips[0], clips[1])
    return clips[0]


def test_turns_with_history_are_played_in_8_bits_in_float32_and_by_pytorch(bundle: Bundle) -> None:
    clips = {}
    for device, *precisions in (("cpu", "int8", "fp16"), ("cpu-fp32", "fp16", "fp16"), ("torch-cpu", "fp32", "fp32")):
        threads = None if device == "torch-cpu" else 1
        engines = open_engines(bundle, EngineConfig(device, threads=threads))
        assert ("denoiser in 8 bits" in engines.device) == (device == "cpu")
        assert [engines.precision_of(bundle, role) for role in ("denoiser", "vae")] == precisions
        clips[device] = played(bundle, engines)
    assert 0 < np.abs(clips["cpu"] - clips["cpu-fp32"]).mean() < 5
    assert np.abs(clips["torch-cpu"] - clips["cpu-fp32"]).max() <= 2


def test_a_changed_encoder_is_compared_by_its_shots(bundle: Bundle, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle.folder, tmp_path / "changed")
    weights = np.fromfile(copy / "encoder.weights", np.float16)
    (weights * np.float16(1.01)).tofile(copy / "encoder.weights")
    figures = bundles.compare(write_manifest(copy, bundle.manifest), bundle, bundles.SampleCounts(2, 1, "fast"))
    assert figures.keys() == {"encoder"} and 1e-3 < figures["encoder"]["shot_relative_error"] < 1e-1


def test_the_manifest_describes_the_world_and_its_sizes(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert (manifest.geometry.height, manifest.geometry.width) == (96, 144)
    assert manifest.sizes["decoder"]["scale"] == manifest.provenance["latent_scale"]
    for example in manifest.world.examples:
        scene = parse(example)
        assert scene.motion in manifest.world.motions and scene.place in manifest.world.places
