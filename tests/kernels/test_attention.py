"""The denoiser with our attention: turns are close to PyTorch's, and what cannot run here is refused."""

from __future__ import annotations

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
from animegamer_rt.backends.torch.attention import check_attention
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
NARROW = DenoiserSize(hidden=32, layers=2, heads=2, time_width=16, latent_height=4, latent_width=6)
SHORT = build_plan(even_timesteps(2), branches=["pair", "conditional"])
TWICE = build_plan(even_timesteps(4), branches=["pair", "pair", "conditional", "conditional"])
"""SHORT has each kind of step once, because emulation is slow; TWICE has them again, for their graphs."""
NEAR = {torch.bfloat16: 4e-2, torch.float16: 5e-3}
"""Relative error allowed for a turn, against PyTorch's attention in the same type."""
HALF = TorchDevice(torch.bfloat16)

pytestmark = pytest.mark.usefixtures("one_thread")


def turn(plan: DenoisePlan) -> Turn:
    made = Turn(plan=plan)
    made.shot = noise(226, SIZE.hidden)
    return made


def latent(given: Turn, kernels: Kernels, attention: str, torch_device: TorchDevice, turns: int = 1) -> np.ndarray:
    """The latent of the last of `turns` identical turns; graphs are captured in the second."""
    torch.manual_seed(0)
    dtype = torch_device.dtype
    with torch_device.use():
        network = scattered(DenoiserNetwork(SIZE), 1, by=0.1).to(torch_device.device)
        transformer = FusedTransformer(cast_for_inference(network, dtype), dtype, kernels, attention)  # type: ignore[type-var]
        unconditional = torch.randn(226, SIZE.hidden, generator=torch.Generator().manual_seed(2))
    timesteps = [step.timestep for step in given.plan]
    part = Denoiser(torch_device, transformer, unconditional.to(torch_device.device), timesteps)
    return [given.latents(Engines(None, part, None))[0] for _ in range(turns)][-1]  # type: ignore[arg-type]


def test_turn_by_our_attention_stays_near(both_kernels: Kernels) -> None:
    given, torch_device = turn(SHORT), TorchDevice(torch.float16)
    found, plain = (latent(given, both_kernels, attention, torch_device) for attention in ("wgmma", "torch"))
    assert 0 < relative_error(found, plain) < NEAR[torch_device.dtype]


def test_graphs_hold_our_attention(kernels: Kernels) -> None:
    given, torch_device = turn(TWICE), TapeDevice(torch.bfloat16)
    plain = latent(given, kernels, "wgmma", HALF)
    np.testing.assert_array_equal(latent(given, kernels, "wgmma", torch_device, turns=2), plain)
    assert torch_device.captured == 2


def test_attention_that_cannot_run_here_is_refused(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    check_attention("torch", TorchDevice(), None, NARROW)
    check_attention("wgmma", HALF, kernels, SIZE)
    for given, said in (
        (("wgmma", HALF, None, SIZE), "this attention needs the kernels"),
        (("wgmma", TorchDevice(), kernels, SIZE), "heads of 64 in torch.float32"),
        (("wgmma", HALF, kernels, NARROW), "heads of 16"),
    ):
        with pytest.raises(BackendError, match=said):
            check_attention(*given)

    def wrong(self: Kernels, qkv: Tensor) -> Tensor:
        return qkv[:, :, 2] * 1.03

    monkeypatch.setattr(Kernels, "attention", wrong)
    with pytest.raises(BackendError, match=r"attention wgmma is wrong on this device; found relative error \d"):
        check_attention("wgmma", HALF, kernels, SIZE)
    ada = TorchDevice(torch.bfloat16, "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    with pytest.raises(BackendError, match="attention wgmma needs sm_90: H100 or H200"):
        check_attention("wgmma", ada, kernels, SIZE)


def test_engines_say_which_attention_and_kernels_they_have(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(library.path))
    bundle = open_bundle("pocket")
    engines = registry.open_engines(bundle, EngineConfig("torch-cpu", "bf16", "wgmma"))
    assert engines.device.endswith(f"wgmma attention, references of {FILE_NAME}")
    said = named_fields(engines.identity(bundle))
    assert (said["attention"], said["kernels"]) == ("wgmma", sha256(library.path)[:12])


@pytest.mark.gpu
def test_turn_by_our_attention_is_the_same_in_graphs_and_near_the_plain_one_warpgroups(kernels: Kernels) -> None:
    given, dtype = turn(TWICE), torch.bfloat16
    eager = latent(given, kernels, "wgmma", CudaTorchDevice(dtype, captures=False))
    np.testing.assert_array_equal(latent(given, kernels, "wgmma", CudaTorchDevice(dtype), turns=3), eager)
    assert 0 < relative_error(eager, latent(given, kernels, "torch", CudaTorchDevice(dtype))) < NEAR[dtype]
    assert relative_error(eager, latent(given, kernels, "wgmma", TorchDevice(dtype))) < NEAR[dtype]
