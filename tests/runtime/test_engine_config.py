"""How engines are chosen, and all that they say of themselves because it can change a byte."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

import onnxruntime
import pytest
import torch
from own_parts import add_plan

from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import REFERENCE
from animegamer_rt.cli import main
from animegamer_rt.engine_config import DEVICES, EngineConfig, add_engine_options
from animegamer_rt.engine_identity import EngineIdentity, difference, named_fields
from animegamer_rt.errors import ConfigError
from animegamer_rt.profiling import host


def parsed(*arguments: str) -> EngineConfig:
    parser = argparse.ArgumentParser()
    add_engine_options(parser, simulated=True)
    return EngineConfig.from_arguments(parser.parse_args(arguments))


def test_another_process_gets_the_same_configuration() -> None:
    more = EngineConfig("cpu-fp32", threads=3), EngineConfig("simulated:0.5", frame_size="720x480")
    for config in (*map(EngineConfig, DEVICES), EngineConfig("torch", "fp8", "wgmma"), *more):
        assert parsed(*config.to_args()) == config


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"device": "simulated:soon"}, "unknown device; found 'simulated:soon'; expected cpu, cpu-fp32, cuda"),
        ({"device": "simulated:1e3"}, "unknown device"),
        ({"device": "cupu"}, "did you mean 'cpu'?"),
        ({"precision": "fp8"}, "can only be set for PyTorch; found --precision fp8 for cpu; expected torch or"),
        ({"device": "cuda", "attention": "wgmma"}, "can only be set for PyTorch; found --attention wgmma for cuda;"),
        ({"device": "tensorrt", "threads": 2}, "can only be set for onnxruntime; found --threads 2 for tensorrt"),
        ({"threads": 0}, "--threads: out of range; found 0; expected 1 to 1024"),
    ],
)
def test_a_choice_that_the_device_does_not_offer_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        EngineConfig(**fields)  # type: ignore[arg-type]


def test_only_commands_that_need_no_pictures_take_simulated_engines(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["bench", "run"], ["selftest"]):
        with pytest.raises(SystemExit):
            main([*command, "--device", "simulated:1"])
        assert "--device: invalid choice: 'simulated:1' (choose from" in capsys.readouterr().err


GPU = EngineIdentity(
    "PyTorch on CUDA",
    {"predictor": "bf16", "denoiser": "fp8", "vae": "bf16"},
    library="torch 2.9.0; cuDNN 91002",
    machine="NVIDIA H100 sm90",
    attention="wgmma",
    kernels="0123456789ab",
    parts={"predictor": "aa", "denoiser": "bb", "vae": "cc"},
    settings="50 timesteps 01234567",
)
OLD = "PyTorch on CUDA, predictor bf16, denoiser fp8, vae bf16"
"""As it was stored before the other fields were."""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attention": "int8"}, "attention: int8"),
        ({"kernels": ""}, "kernels: none"),
        ({"machine": "NVIDIA H200 sm90"}, "machine: NVIDIA H200 sm90"),
        ({"library": "torch 2.9.1"}, "library: torch 2.9.1"),
        ({"parts": {**GPU.parts, "vae": "dd"}}, "parts: predictor aa, denoiser bb, vae dd"),
        ({"precision": {**GPU.precision, "denoiser": "bf16"}}, OLD.replace("fp8", "bf16")),
        ({"settings": ""}, "settings: none"),
    ],
)
def test_what_differs_is_said_and_nothing_else(change: dict[str, object], said: str) -> None:
    other = replace(GPU, **change)  # type: ignore[arg-type]
    found = difference(str(other), str(GPU))
    assert found is not None and found[0] == said and difference(str(GPU), str(GPU)) is None


def test_an_older_text_is_compared_in_what_it_holds() -> None:
    assert str(GPU).startswith(OLD + "; ")
    assert difference(OLD, str(GPU)) is None
    assert difference(OLD, str(replace(GPU, kind="TensorRT"))) == (OLD, OLD.replace("PyTorch on CUDA", "TensorRT"))


def test_every_field_of_an_identity_can_be_read_back() -> None:
    found = named_fields(str(GPU))
    assert found["library"] == "torch 2.9.0, cuDNN 91002" and found["attention"] == "wgmma"
    assert list(found) == ["engines", "library", "machine", "attention", "kernels", "parts", "settings", "rules"]


def test_onnxruntime_says_its_version_processor_and_parts(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    said = open_engines(bundle).identity(bundle)
    found = named_fields(said)
    assert found["library"] == f"onnxruntime {onnxruntime.__version__}"
    assert re.fullmatch(r"predictor [0-9a-f]{12}, denoiser [0-9a-f]{12}, vae [0-9a-f]{12}", found["parts"])
    monkeypatch.setattr(host, "instruction_sets", lambda: ["avx2"])
    assert "avx2" in named_fields(open_engines(bundle).identity(bundle))["machine"]
    added = add_plan(bundle, changed=True)
    one, other = (open_engines(added, plan=plan).identity(added) for plan in ("balanced", "x"))
    unlike = difference(one, other)
    assert one == open_engines(added).identity(added) and unlike is not None and unlike[0].startswith("parts: ")


def test_settings_of_the_manifest_belong_to_it_and_a_plan_that_others_play_does_not(bundle: Bundle) -> None:
    said = open_engines(bundle).identity(bundle)
    manifest = replace(bundle.manifest, compatibility=REFERENCE)
    other = replace(bundle, manifest=manifest)
    unlike = difference(said, open_engines(other).identity(other))
    assert unlike is not None and unlike[0].startswith("rules: ") and other.fingerprint == bundle.fingerprint
    added = add_plan(bundle)
    assert open_engines(added).identity(added) == said


def test_threads_do_not_change_what_onnxruntime_is(bundle: Bundle) -> None:
    one, two = (open_engines(bundle, EngineConfig(threads=threads)).identity(bundle) for threads in (1, 2))
    assert one == two


def test_pytorch_computes_deterministically(monkeypatch: pytest.MonkeyPatch) -> None:
    from animegamer_rt.backends.torch.device import CUBLAS_WORKSPACE, compute_deterministically

    monkeypatch.setenv(CUBLAS_WORKSPACE, ":16:8")  # the user's stays
    compute_deterministically()
    assert torch.are_deterministic_algorithms_enabled() and not torch.utils.deterministic.fill_uninitialized_memory
