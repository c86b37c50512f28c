"""The PyTorch engines on a device without data: host and device tensors meet in copies only, and not in graphs.

An operator over tensors of both is an error on a GPU; with this device it is one on any machine. The device uses
PyTorch's slot for third-party devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from benchmarks.gpu.parts import pack
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from animegamer_export.parts.predictor import example_prompt
from animegamer_rt.backends.interface import StateSlots
from animegamer_rt.backends.torch import loader as backend
from animegamer_rt.backends.torch.device import TorchDevice, Work
from animegamer_rt.backends.torch.kernels import Kernels
from animegamer_rt.backends.torch.networks import Models
from animegamer_rt.backends.torch.rowwise_linear import FP8, INT8
from animegamer_rt.bundle.denoise_plan import build_plan
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize
from animegamer_rt.stages.predictor import prefill_prompt

torch.utils.rename_privateuse1_backend("elsewhere")
_setup_privateuseone_for_python_backend("elsewhere")
# Tests in the same process that recompute activations have PyTorch ask for it.
torch.get_device_module("elsewhere").get_amp_supported_dtype = lambda: [torch.bfloat16]
ELSEWHERE = torch.device("elsewhere", 0)
GEOMETRY = Geometry(height=32, width=48, latent_height=4, latent_width=6, shot_width=128)
PREDICTOR = PredictorSize(128, 1, 2, 1, 256, 400, 128)
DENOISER = DenoiserSize(128, 1, 2, 64, 4, 6)
VAE = VaeSize(32, norm_groups=8, res_blocks=0)
PLAN = build_plan(even_timesteps(3), branches=["pair", "reuse", "conditional"])


@dataclass(frozen=True)
class Case:
    """How the parts are opened; `free`: bytes that the vae finds."""

    name: str
    products: torch.dtype | None = None
    kernels: bool = False
    attention: str = "torch"
    four_bits: bool = False
    free: float = 2**40


CASES = (
    Case("packed-little-memory", four_bits=True, free=0.0),
    Case("fp8", FP8),
    Case("int8", INT8),
    Case("kernels", kernels=True, four_bits=True),
    Case("fp8-kernels-little-memory", FP8, kernels=True, free=0.0),
    Case("int8-kernels", INT8, kernels=True, attention="wgmma"),
)


class Mixing(TorchDispatchMode):
    """Notes, while something is captured, operators over tensors of both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.capturing, self.found = False, set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = (leaf for leaf in tree_leaves((args, kwargs, out)) if isinstance(leaf, Tensor))
        if self.capturing and len({tensor.device.type for tensor in tensors}) > 1:
            self.found.add(str(func))
        return out


class Elsewhere(TorchDevice):
    """A device with graphs and so much memory."""

    captures = True

    def __init__(self, free: float, mixing: Mixing) -> None:
        super().__init__(torch.bfloat16)
        self.device, self._free, self._mixing = ELSEWHERE, free, mixing

    def free_bytes(self) -> float:
        return self._free

    def to_device(self, array: npt.NDArray[np.generic]) -> Tensor:
        return torch.empty(array.shape, dtype=torch.from_numpy(array).dtype, device=self.device)

    def to_host(self, tensor: Tensor) -> Any:
        assert tensor.device == self.device
        return SimpleNamespace(numpy=lambda: np.zeros(tensor.shape, np.float32))

    def capture(self, work: Work) -> Work:
        self._mixing.capturing = True
        work()
        self._mixing.capturing = False
        return lambda: None


@pytest.fixture
def no_numbers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda layer: None)
    monkeypatch.setattr(backend, "check_attention", lambda *given: None)
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_host_and_device_meet_in_copies_alone(case: Case, no_numbers: None) -> None:
    with Mixing() as mixing:
        torch_device = Elsewhere(case.free, mixing)
        with ELSEWHERE:
            predictor, denoiser, decoder = Predictor(PREDICTOR), Denoiser(DENOISER), VaeDecoder(VAE)
            unconditional = torch.empty(226, DENOISER.hidden)
            if case.four_bits:
                pack(predictor)
        kernels = Kernels("none is called") if case.kernels else None
        how: dict[str, Any] = {"rowwise": case.products, "kernels": kernels, "attention": case.attention}
        setup = backend.EngineSetup(torch_device, GEOMETRY, [PLAN], **how)
        for network in (predictor, denoiser, decoder):
            setup.convert(network)
        engines = backend.build_engines(setup, Models(predictor, denoiser, decoder, unconditional))
        for _ in range(3):
            play(engines, predictor)
    # Little memory keeps the vae's caches on the host: they are copied within its graphs.
    assert mixing.found == ({"aten.copy_.default"} if case.free == 0 else set())


def play(engines: backend.Engines, predictor: Predictor) -> None:
    """A turn: plainly, captured, and as a graph."""
    prefill = prefill_prompt(engines.predictor, example_prompt(predictor, 1, 8))
    engines.predictor.extend(np.array([5, 3, 4]), prefill.cache)
    assert prefill.choose_next is not None
    prefill.choose_next(StateSlots((7, 8, 9), ((3, 4), (5, 6))), 1)
    noise = np.zeros(GEOMETRY.latent_shape, np.float32)
    denoising = engines.denoiser.start(noise, np.zeros((226, DENOISER.hidden), np.float32), 10.0)
    for step, coefficients in zip(PLAN, PLAN.coefficients(), strict=True):
        denoising.step(coefficients, float(step.timestep), step.rows, noise)
    latent = denoising.latent()
    order: Sequence[int] = (2, 1, 0, 3)
    _, caches = engines.vae.first(np.ascontiguousarray(latent[:, :3]), order, True)
    engines.vae.next(np.ascontiguousarray(latent[:, 3:]), caches, order, True)
