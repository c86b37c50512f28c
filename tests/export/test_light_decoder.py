"""A light decoder plays a plan in place of the vae, a student in place of the denoiser: added, measured, or refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from animegamer_export.distill import add
from animegamer_export.distill.files import teacher_hash
from animegamer_export.parts.light_decoder import export_light_decoder
from animegamer_export.parts.vae import pixels
from animegamer_export.plan_search.command import write_plans
from animegamer_export.plan_search.measure import SearchBudget
from animegamer_export.quantize.bundle import quantize_bundle
from animegamer_export.quantize.scheme import scheme
from animegamer_rt import cli
from animegamer_rt.backends.interface import Frames
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.networks import read_network
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.manifest import PlanEntry
from animegamer_rt.bundle.roles import DEFAULT_PARTS, DENOISER, LIGHT_DECODER, VAE
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import AnimeGamerError, OutputError
from animegamer_rt.models.light_decoder import LightDecoder, LightDecoderSize
from animegamer_rt.stages.vae import Vae

SIZE = LightDecoderSize(channels=(96, 32), blocks=(2, 1))  # as `distill` makes it, so that one tracing serves both
LATENT = (1, 5, 16, 8, 12)


@pytest.fixture
def network() -> LightDecoder:
    """Random weights; a block of its first stage is dead, as blocks may be after training."""
    torch.manual_seed(5)
    network = LightDecoder(SIZE).eval()
    with torch.no_grad():
        network.get_parameter("stages.0.0.a.bias").fill_(-100.0)
        network.get_parameter("stages.0.1.a.weight")[3] = 0.0
    return network


def latents(count: int) -> list[Tensor]:
    return list(torch.randn(count, *LATENT, generator=torch.Generator().manual_seed(1)))


def test_each_backend_plays_what_the_network_draws(bundle: Bundle, network: LightDecoder) -> None:
    written = export_light_decoder(network, latents(12), bundle.folder, "vae_light")
    manifest = bundle.manifest
    entry = PlanEntry(manifest.plans["exact"].plan, {"ssim": 1.0}, parts={VAE: "vae_light"})
    parts, sizes = {**manifest.parts, **written.parts}, {**manifest.sizes, LIGHT_DECODER: asdict(SIZE)}
    plans = {**manifest.plans, "x": entry}
    lighter = write_manifest(bundle.folder, replace(manifest, parts=parts, sizes=sizes, plans=plans))
    assert lighter.fingerprint == bundle.fingerprint
    latent = latents(13)[-1]
    with torch.no_grad():
        rounded = {name: one.half().float() if one.ndim > 1 else one for name, one in network.state_dict().items()}
        network.load_state_dict(rounded)
        true = pixels(network(latent[0], None), torch.tensor([2, 1, 0, 3]), torch.tensor([True])).numpy().astype(int)

    def played(device: str) -> Frames:
        engines = open_engines(lighter, EngineConfig(device, threads=None if "torch" in device else 1), plan="x")
        return np.stack(list(Vae(engines.vae).decode(latent.numpy(), "bgra32", flip=True)))

    assert true.shape == (17, 32, 48, 4) and true[..., :3].std() > 5
    for device in ("cpu-fp32", "torch-cpu"):
        assert np.abs(played(device) - true).max() <= 1
    assert 0 < np.abs(played("cpu") - true).mean() < 1


@pytest.fixture
def files(bundle: Bundle, network: LightDecoder, tmp_path: Path) -> tuple[Path, Path]:
    """A student, the denoiser itself, and a light decoder."""
    denoiser, _ = read_network(bundle, TorchDevice(torch.float32), DEFAULT_PARTS, DENOISER)
    state = {name: one.detach().clone() for name, one in denoiser.named_parameters()}
    student, light = tmp_path / "student.safetensors", tmp_path / "light.safetensors"
    save_file(state, student, {"teacher": teacher_hash(bundle), "timesteps": "999,319,19"})
    save_file(network.state_dict(), light, {"size": json.dumps(asdict(SIZE))})
    return student, light


@pytest.fixture
def least_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few turns, and every likeness will do: the random vae draws what no decoder was trained on."""
    monkeypatch.setattr(add, "LEAST_DB", 1.0)
    monkeypatch.setattr(add, "CALIBRATION_TURNS", 2)
    monkeypatch.setattr(add, "SearchBudget", lambda: SearchBudget(turns=1))
    measure = add._measure
    monkeypatch.setattr(add, "_measure", lambda *arguments: (measure(*arguments)[0], []))


def test_turbo_is_added_measured_and_replaced_and_a_failed_replacement_leaves_it(
    bundle: Bundle,
    files: tuple[Path, Path],
    tmp_path: Path,
    least_work: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    student, light = files
    arguments = ["distill", str(bundle.folder), "--student", str(student), "--light-decoder", str(light)]
    arguments += ["--work", str(tmp_path / "work")]
    names = []
    for end, options in (("", ["--default"]), ("_2", [])):
        assert cli.main([*arguments, *options]) == 0
        found = load(bundle.folder)
        assert found.fingerprint == bundle.fingerprint
        entry = found.manifest.plans["turbo"]
        assert entry.parts == {"denoiser": f"denoiser_turbo{end}", "vae": f"vae_light{end}"}
        assert "ssim" in entry.fidelity
        assert [step["timestep"] for step in entry.plan["steps"]] == [999, 319, 19]
        assert found.default_plan == "turbo"
        paths = sorted(path.name for path in bundle.folder.iterdir())
        assert not end or all(end in name for name in paths if "turbo" in name or "light" in name)
        names.append([name.replace("_2", "") for name in paths])
    assert names[0] == names[1]
    assert "the light decoder against the vae" in capsys.readouterr().out
    found = write_plans(found, {}, {"turbo": {"ssim": 0.9}})  # as `search-plans` does
    assert found.default_plan == "turbo"
    before = {path.name: path.read_bytes() for path in bundle.folder.iterdir()}

    def interrupted(*_: object) -> None:
        assert load(bundle.folder) == found  # whatever kills it now, the earlier one plays
        with pytest.raises(OutputError, match="another process is writing here"):
            add.add_turbo(found, *files)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(add, "_measure", interrupted)
        add.add_turbo(found, *files)
    assert {path.name: path.read_bytes() for path in bundle.folder.iterdir()} == before
    (bundle.folder / "denoiser_turbo.weights").write_bytes(b"of a killed run")
    monkeypatch.setattr(add, "_measure", lambda *_: ({}, ["edges"]))
    assert cli.main(arguments) == 1 and "the bundle keeps its earlier one: edges" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in bundle.folder.iterdir()} == before
    quantize_bundle(found, tmp_path / "small", {"predictor": scheme("int8-qdq")})
    small = load(tmp_path / "small")
    assert small.parts_of("turbo") == found.parts_of("turbo") and "turbo" in small.manifest.plans
    without = write_manifest(bundle.folder, add.without_turbo(found.manifest))
    assert without.manifest == bundle.manifest


def of_another_teacher(bundle: Bundle, student: Path, light: Path) -> None:
    denoiser, _ = read_network(bundle, TorchDevice(torch.float32), DEFAULT_PARTS, DENOISER)
    save_file(dict(denoiser.named_parameters()), student, {"teacher": "0" * 64, "timesteps": "999,19"})


def without_timesteps(bundle: Bundle, student: Path, light: Path) -> None:
    denoiser, _ = read_network(bundle, TorchDevice(torch.float32), DEFAULT_PARTS, DENOISER)
    save_file(dict(denoiser.named_parameters()), student, {"teacher": teacher_hash(bundle)})


def of_an_odd_size(bundle: Bundle, student: Path, light: Path) -> None:
    save_file({"a": torch.zeros(1)}, light, {"size": '{"channels": [96, 32], "blocks": [2]}'})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (of_another_teacher, "made of another denoiser than the bundle's.*found 0000000000000000"),
        (without_timesteps, "timesteps are not a list like 999,319,19"),
        (lambda bundle, student, light: student.write_bytes(b"no"), "not a safetensors file"),
        (lambda bundle, student, light: shutil.copy(student, light), "not the weights of a LightDecoder"),
        (of_an_odd_size, "its size is impossible"),
        (lambda bundle, student, light: None, "draws other pictures than the bundle's vae.*at least 25 dB"),
    ],
)
def test_what_cannot_play_is_refused_in_words(
    bundle: Bundle,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Bundle, Path, Path], object],
    said: str,
) -> None:
    monkeypatch.setattr(add, "CALIBRATION_TURNS", 2)
    change(bundle, *files)
    with pytest.raises(AnimeGamerError, match=said):
        add.add_turbo(bundle, *files)
    assert load(bundle.folder) == bundle and not list(bundle.folder.glob("*_turbo*"))
