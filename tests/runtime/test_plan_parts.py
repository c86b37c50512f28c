"""A plan may name parts of its own: they play it and it alone, and sessions of the other plans do not notice them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_device import FakeDevice, with_engines
from own_parts import OWN, add_plan

import animegamer_rt
import fakes
from animegamer_rt import Player
from animegamer_rt.backends.interface import Engines, Frames
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.backends.tensorrt import loader as tensorrt
from animegamer_rt.backends.tensorrt.engine_id import engine_graphs
from animegamer_rt.bundle.loader import Bundle, load, open_bundle
from animegamer_rt.bundle.roles import VAE
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.diagnose import selftest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError, BundleFormatError, PlanError
from animegamer_rt.pipeline import Pipeline

POCKET = Path(open_bundle("pocket").folder)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Of PyTorch: two threads wait long for each other where others use the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def pocket(tmp_path: Path) -> Bundle:
    """Pocket with a plan that copies of its parts play."""
    return add_plan(load(shutil.copytree(POCKET, tmp_path / "pocket")), "fast")


def frames(bundle: Bundle, engines: Engines, plan: str) -> Frames:
    player = Player(bundle, engines, plan=plan)
    player.pipeline.denoiser._plan = fakes.plan_with_reuse(2)
    return player.start(seed=7).turn("Tofi waves.").frames


def played(bundle: Bundle, config: EngineConfig, plan: str) -> Frames:
    return frames(bundle, open_engines(bundle, config, plan=plan), plan)


@pytest.mark.parametrize(
    ("config", "largest"), [(EngineConfig("cpu-fp32", threads=1), 0), (EngineConfig("torch-cpu"), 1)]
)
def test_copies_of_parts_play_the_frames_of_the_originals(pocket: Bundle, config: EngineConfig, largest: int) -> None:
    """PyTorch computes a denoiser's timesteps together, those of its other plans too, in another order of sums."""
    x, fast = (played(pocket, config, plan).astype(int) for plan in ("x", "fast"))
    assert np.abs(x - fast).max() <= largest


def test_a_plan_is_played_by_its_own_denoiser_and_vae(bundle: Bundle) -> None:
    before, config = played(bundle, EngineConfig(), "balanced"), EngineConfig()
    added = add_plan(bundle, changed=True)
    assert np.array_equal(played(added, config, "balanced"), before)
    assert not np.array_equal(played(added, config, "x"), before)
    with animegamer_rt.open(added, plan="x") as player:
        assert player.pipeline.plan_name == "x"
    for plan in ("x", "balanced"):
        engines = open_engines(added, config, plan)
        assert engines.parts == added.parts_of(plan)


def test_tensorrt_plays_a_plan_with_the_engines_of_its_parts(bundle: Bundle) -> None:
    added = add_plan(bundle, changed=True)

    def opened(added: Bundle, plan: str) -> Engines:
        parts, config = added.parts_of(plan), EngineConfig("tensorrt")
        return replace(tensorrt.load(added, config, parts, device=FakeDevice(), tell=lambda _: None), parts=parts)

    own = [graph for graph in engine_graphs(added) if "_x" in graph]
    built = with_engines(added, [graph for graph in engine_graphs(added) if graph not in own])
    with pytest.raises(BackendError, match="no engine of denoiser_x for sm89"):
        opened(built, "x")
    built = with_engines(built, own)
    for plan in ("x", "balanced"):
        assert np.array_equal(frames(built, opened(built, plan), plan), played(built, EngineConfig(), plan))


def test_engines_that_hold_other_parts_are_refused(bundle: Bundle) -> None:
    added = add_plan(bundle)
    for plan, other in (("x", "balanced"), ("balanced", "x")):
        with pytest.raises(PlanError, match=r"hold other parts than the plan .*found .*denoiser.*open the engines for"):
            Pipeline.open(added, open_engines(added, plan=other), plan)


def test_own_parts_leave_the_fingerprint_as_it_was(bundle: Bundle, pocket: Bundle) -> None:
    before = bundle.fingerprint
    added = add_plan(bundle, changed=True)
    assert added.fingerprint == before and load(added.folder).fingerprint == before
    assert added.own_files == {"denoiser_x.onnx", "vae_x_first.onnx", "vae_x_next.onnx"}
    assert pocket.fingerprint == load(POCKET).fingerprint
    assert "denoiser.weights" not in pocket.own_files, "the originals need it, too"


def test_format_4_is_written_where_a_plan_names_parts_alone(bundle: Bundle) -> None:
    def version() -> int:
        return int(json.loads((bundle.folder / "manifest.json").read_text())["format_version"])

    assert version() == 2
    added = add_plan(bundle)
    assert version() == 4 and load(added.folder) == added
    write_manifest(added.folder, bundle.manifest)
    assert version() == 2 and load(added.folder) == bundle


def test_pocket_is_written_as_it_is_shipped(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(POCKET, tmp_path / "pocket"))
    write_manifest(folder, load(folder).manifest)
    assert (folder / "manifest.json").read_bytes() == (POCKET / "manifest.json").read_bytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["plans"]["x"]["parts"].update(vae="vae_y"), "names a part without all its graphs.*vae_y_"),
        (lambda data: data["parts"].pop("vae_x_next"), "names a part without all its graphs.*vae_x_next"),
        (lambda data: data["plans"]["x"]["parts"].update(predictor="denoiser_x"), "another role.*denoiser, vae"),
        (lambda data: data["plans"]["exact"].update(parts=dict(OWN)), "the plan 'exact' names parts"),
        (
            lambda data: data["parts"]["denoiser_x"].update(inputs={"latent": {"dtype": "float32", "shape": [1]}}),
            "the part 'denoiser_x' has other inputs than 'denoiser'",
        ),
    ],
)
def test_a_plan_whose_part_cannot_play_it_is_refused_in_words(
    bundle: Bundle, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    path = add_plan(bundle).folder / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(BundleFormatError, match=said):
        load(bundle.folder)


def test_a_part_of_another_kind_of_network_is_refused_by_pytorch(pocket: Bundle) -> None:
    parts = dict(pocket.manifest.parts)
    parts["vae_x_first"] = replace(parts["vae_x_first"], network="wavelets")
    bundle = write_manifest(pocket.folder, replace(pocket.manifest, parts=parts))
    assert bundle.network(VAE, "vae_x") == "wavelets" and bundle.network(VAE, VAE) == "decoder"
    said = "does not support this kind of network as the vae; .*found wavelets.*expected decoder or light_decoder"
    with pytest.raises(BackendError, match=said):
        open_engines(bundle, EngineConfig("torch-cpu"), plan="x")
    assert open_engines(bundle, EngineConfig("torch-cpu"), plan="fast").parts.vae == VAE


def test_a_precision_that_a_kind_of_denoiser_does_not_have_is_an_error(pocket: Bundle) -> None:
    parts = dict(pocket.manifest.parts)
    parts["denoiser_x"] = replace(parts["denoiser_x"], network="student")
    bundle = write_manifest(pocket.folder, replace(pocket.manifest, parts=parts))
    with pytest.raises(BackendError, match="no 8-bit products .*found student, precision int8.*omit --precision"):
        open_engines(bundle, EngineConfig("torch-cpu", precision="int8"), plan="x")


def test_selftest_compares_the_parts_of_every_plan(bundle: Bundle) -> None:
    added = add_plan(bundle, changed=True)
    names = {name for name, _, _ in selftest.own_answers(added, EngineConfig())}
    assert names == {"denoiser_x.latent", "vae_x_first.frames", "vae_x_next.frames"}
