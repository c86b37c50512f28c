"""guided_step against the model's own step."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from kernel_results import Operators, Outputs, assert_close, case_id
from torch import Tensor

from animegamer_kernels import StepOutputs, guided_step
from animegamer_rt.models.denoiser import DenoiserSize, Head
from animegamer_rt.models.denoiser_step import advance

LATENTS = ("next_latent", "x0", "next_difference")
# signal, sigma, guidance - 1, reuse, c_latent, c_x0, c_x0_prev, c_noise
COEFFICIENTS = (0.3, 0.95, 5.97, 0.7, 0.8, 0.4, -0.1, 0.25)


@dataclass(frozen=True)
class Case:
    batch: int
    frames: int
    channels: int
    height: int
    width: int
    dtype: torch.dtype = torch.float32


CASES = (
    Case(1, 1, 1, 2, 2),
    Case(1, 5, 16, 12, 18, torch.bfloat16),
    Case(2, 5, 16, 12, 18),
    Case(2, 3, 20, 6, 10, torch.float16),
)


def inputs(case: Case) -> tuple[Tensor, ...]:
    """patches, latent, x0_prev, noise, difference, coefficients."""
    random = torch.Generator().manual_seed(case.width)
    patches = case.frames * case.height * case.width // 4
    latent = (1, case.frames, case.channels, case.height, case.width)
    first = torch.randn((case.batch, patches, case.channels * 4), generator=random).to(case.dtype)
    return first, *(torch.randn(latent, generator=random) for _ in range(4)), torch.tensor(COEFFICIENTS)


def run(case: Case, operators: Operators) -> dict[str, Tensor]:
    arrays, out = [array.to(operators.device) for array in inputs(case)], Outputs(operators.device)
    latents = [out.new(name, arrays[1].shape, torch.float32) for name in LATENTS]
    patches = out.new("next_patches", (1, *arrays[0].shape[1:]), case.dtype)
    guided_step(operators.library, *arrays, StepOutputs(*latents, patches))
    return out.read()


def unpatchify(case: Case, patches: Tensor) -> Tensor:
    """The model's own head with identity layers."""
    size = DenoiserSize(case.channels * 4, 1, 1, 4, case.height, case.width, case.frames, case.channels)
    head = Head(size).requires_grad_(False).double()
    head.norm, head.output = torch.nn.Identity(), torch.nn.Identity()
    torch.nn.init.zeros_(head.modulation.weight), torch.nn.init.zeros_(head.modulation.bias)
    v: Tensor = head(patches.double(), torch.zeros(1, 4, dtype=torch.float64))
    return v


def truth(case: Case) -> dict[str, Tensor]:
    patches, latent, x0_prev, noise, difference, coefficients = inputs(case)
    arrays = (array.double() for array in (latent, x0_prev, noise, difference))
    found = advance(unpatchify(case, patches), *arrays, coefficients.double().unbind(0))
    return dict(zip(LATENTS, found, strict=True))


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_step_is_the_models_step(operators: Operators, case: Case) -> None:
    found, expected = run(case, operators), truth(case)
    for name in LATENTS:
        assert_close(name, found[name], expected[name], roundings=3)
    # The patches are in the order that unpatchify undoes.
    patches = unpatchify(case, found["next_patches"]).to(case.dtype)
    assert_close("next_patches", patches, expected["next_latent"], roundings=3)
