"""The attention implementations: INT8 turns stay close to plain ones, and inaccurate ones are not chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from counted_weights import scattered
from kernel_results import relative_error
from torch import Tensor
from torch_parts import Turn, noise
from torch_tape import TapeDevice

from animegamer_kernels.library import FILE_NAME, PATH_VARIABLE, Library
from animegamer_rt.backends import registry
from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.torch import attention
from animegamer_rt.backends.torch.attention import (
    HOPPER_ATTENTIONS,
    Attention,
    AttentionTiming,
    select_attention,
    time_attentions,
)
from animegamer_rt.backends.torch.denoiser import Denoiser
from animegamer_rt.backends.torch.device import CudaTorchDevice, TorchDevice
from animegamer_rt.backends.torch.fused_transformer import FusedTransformer
from animegamer_rt.backends.torch.kernels import Kernels
from animegamer_rt.backends.torch.loader import cast_for_inference
from animegamer_rt.bundle.denoise_plan import DenoisePlan, build_plan
from animegamer_rt.bundle.files import sha256
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.engine_identity import named_fields
from animegamer_rt.errors import BackendError
from animegamer_rt.models.denoiser import Denoiser as DenoiserNetwork
from animegamer_rt.models.denoiser import DenoiserSize

SIZE = DenoiserSize(hidden=128, layers=2, heads=2, time_width=16, latent_height=4, latent_width=6)
SHORT = build_plan(even_timesteps(2), branches=["pair", "conditional"])
TWICE = build_plan(even_timesteps(4), branches=["pair", "pair", "conditional", "conditional"])
"""SHORT has each kind of step once, because emulation is slow; TWICE has them again, for their graphs."""
NEAR = {torch.bfloat16: 4e-2, torch.float16: 5e-3}
"""Relative error allowed for a turn, against PyTorch's attention in the same type."""


pytestmark = pytest.mark.usefixtures("one_thread")


def turn(plan: DenoisePlan) -> Turn:
    made = Turn(plan=plan)
    made.shot = noise(226, SIZE.hidden)
    return made


def latent(given: Turn, kernels: Kernels, way: Attention, torch_device: TorchDevice, turns: int = 1) -> np.ndarray:
    """The latent of the last of `turns` identical turns; graphs are captured in the second."""
    torch.manual_seed(0)
    with torch_device.use():
        network = scattered(DenoiserNetwork(SIZE), 1, by=0.1).to(torch_device.device)
        transformer = FusedTransformer(
            cast_for_inference(network, torch_device.dtype), torch_device.dtype, kernels, way
        )  # type: ignore[type-var]
        unconditional = torch.randn(226, SIZE.hidden, generator=torch.Generator().manual_seed(2)).to(
            torch_device.device
        )
    part = Denoiser(torch_device, transformer, unconditional, [step.timestep for step in given.plan])
    return [given.latents(Engines(None, part, None))[0] for _ in range(turns)][-1]  # type: ignore[arg-type]


def test_turn_with_int8_scores_stays_near(both_kernels: Kernels) -> None:
    given, torch_device = turn(SHORT), TorchDevice(torch.float16)
    found, plain = (latent(given, both_kernels, way, torch_device) for way in ("int8", "torch"))
    assert 0 < relative_error(found, plain) < NEAR[torch_device.dtype]


def test_graphs_hold_int8_scores(kernels: Kernels) -> None:
    given, torch_device = turn(TWICE), TapeDevice(torch.bfloat16)
    half = TorchDevice(torch.bfloat16)
    plain, by_torch = latent(given, kernels, "int8", half), latent(given, kernels, "torch", half)
    assert 0 < relative_error(plain, by_torch) < NEAR[torch.bfloat16]
    np.testing.assert_array_equal(latent(given, kernels, "int8", torch_device, turns=2), plain)
    assert torch_device.captured == 2


def test_attentions_are_timed_and_unusable_ones_give_a_reason(kernels: Kernels) -> None:
    assert not AttentionTiming("int8", 1.0, float("nan")).accurate
    found = {one.attention: one for one in time_attentions(TorchDevice(torch.bfloat16), kernels, SIZE)}
    assert found.keys() == {"torch", "cudnn", "flash", "efficient", "int8"}
    assert found["torch"].accurate and found["int8"].accurate
    assert 0 < found["torch"].error < found["int8"].error
    assert found["int8"].milliseconds > found["torch"].milliseconds > 0  # the references are slow
    assert not found["cudnn"].accurate and found["cudnn"].refused


class Clock(TorchDevice):
    """A CPU with given times per attention."""

    def __init__(self, dtype: torch.dtype, milliseconds: Mapping[str, float]) -> None:
        super().__init__(dtype)
        self._times = iter(milliseconds.values())

    def milliseconds(self, work: Callable[[], object]) -> float:
        return next(self._times)


def test_fastest_is_the_fastest_accurate_attention(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of PyTorch's libraries a CPU has flash.
    times = {"torch": 3.0, "flash": 2.0, "int8": 1.0}
    way, words = select_attention("fastest", Clock(torch.bfloat16, times), kernels, SIZE)
    assert way == "int8" and words.startswith("int8 attention as the fastest of int8 1.000 ms, flash 2.000 ms, torch")
    assert "cudnn not usable" in words

    def wrong(self: Kernels, qkv: Tensor, query: object, key: object, mma: object) -> Tensor:
        return qkv[:, :, 2] * 1.03

    monkeypatch.setattr(Kernels, "attention_int8", wrong)
    way, words = select_attention("fastest", Clock(torch.bfloat16, times), kernels, SIZE)
    assert way == "flash" and "int8 not usable" in words
    with pytest.raises(BackendError, match=r"'int8' is not usable on this device.*found int8: relative error \d"):
        select_attention("int8", Clock(torch.bfloat16, times), kernels, SIZE)


def test_warpgroups_are_chosen_where_a_gpu_has_them(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_device = TorchDevice(torch.bfloat16)
    with pytest.raises(BackendError, match=r"needs sm_90.*found CPU.*--attention int8"):
        select_attention("int8-wgmma", torch_device, kernels, SIZE)
    monkeypatch.setattr(attention, "has_warpgroups", lambda device: True)
    for name in HOPPER_ATTENTIONS:
        assert select_attention(name, torch_device, kernels, SIZE) == (name, f"{name} attention")
    times = {"torch": 3.0, "flash": 3.0, "wgmma": 2.5, "int8": 2.0, "int8-wgmma": 1.5}
    way, words = select_attention("fastest", Clock(torch.bfloat16, times), kernels, SIZE)
    assert way == "int8-wgmma" and "int8-wgmma 1.500 ms, int8 2.000 ms, wgmma 2.500 ms" in words


def test_int8_scores_are_chosen_only_on_request_and_where_possible(kernels: Kernels) -> None:
    half = TorchDevice(torch.bfloat16)
    assert select_attention("torch", half, None, SIZE) == ("torch", "")
    assert select_attention("int8", half, kernels, SIZE) == ("int8", "int8 attention")
    with pytest.raises(BackendError, match="choosing the attention needs the kernels"):
        select_attention("int8", half, None, SIZE)
    with pytest.raises(BackendError, match="heads of 64 in torch.float32"):
        select_attention("int8", TorchDevice(), kernels, SIZE)
    narrow = DenoiserSize(hidden=32, layers=2, heads=2, time_width=16, latent_height=4, latent_width=6)
    with pytest.raises(BackendError, match="heads of 16"):
        select_attention("int8", half, kernels, narrow)
    way, words = select_attention("fastest", Clock(torch.float32, {"torch": 2.0, "flash": 1.0}), kernels, SIZE)
    assert way == "flash" and "int8 not usable" in words


def test_engines_say_which_attention_and_kernels_they_have(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(library.path))
    bundle = open_bundle("pocket")
    engines = registry.open_engines(bundle, EngineConfig("torch-cpu", "bf16", "int8"))
    assert engines.device.endswith(f"int8 attention, references of {FILE_NAME}")
    said = named_fields(engines.identity(bundle))
    assert (said["attention"], said["kernels"]) == ("int8", sha256(library.path)[:12])


@pytest.mark.gpu
def test_turn_with_int8_scores_is_the_same_in_graphs_and_near_the_plain_one(kernels: Kernels) -> None:
    given, dtype = turn(TWICE), torch.bfloat16
    eager = latent(given, kernels, "int8", CudaTorchDevice(dtype, captures=False))
    np.testing.assert_array_equal(latent(given, kernels, "int8", CudaTorchDevice(dtype), turns=3), eager)
    assert 0 < relative_error(eager, latent(given, kernels, "torch", CudaTorchDevice(dtype))) < NEAR[dtype]
    assert relative_error(eager, latent(given, kernels, "int8", TorchDevice(dtype))) < NEAR[dtype]
