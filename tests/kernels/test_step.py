"""guided_step against the model's own step, and noise against the runtime's own generator: the same bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from kernel_results import Operators, Outputs, assert_close, case_id
from torch import Tensor

from animegamer_kernels import guided_step, noise
from animegamer_rt.models.denoiser import DenoiserSize, Head
from animegamer_rt.models.denoiser_step import advance
from animegamer_rt.noise import Noise, load_table

LATENTS = ("latent", "x0", "difference")
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
    """patches, latent, x0, difference, noise, coefficients."""
    random = torch.Generator().manual_seed(case.width)
    patches = case.frames * case.height * case.width // 4
    latent = (1, case.frames, case.channels, case.height, case.width)
    first = torch.randn((case.batch, patches, case.channels * 4), generator=random).to(case.dtype)
    return first, *(torch.randn(latent, generator=random) for _ in range(4)), torch.tensor(COEFFICIENTS)


def run(case: Case, operators: Operators) -> dict[str, Tensor]:
    patches, *state, noise, coefficients = (array.to(operators.device) for array in inputs(case))
    out = Outputs(operators.device)
    updated = [
        out.new(name, array.shape, torch.float32).copy_(array) for name, array in zip(LATENTS, state, strict=True)
    ]
    guided_step(operators.library, patches, *updated, noise, coefficients)
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
    patches, latent, x0, difference, noise, coefficients = inputs(case)
    arrays = (array.double() for array in (latent, x0, noise, difference))
    found = advance(unpatchify(case, patches), *arrays, coefficients.double().unbind(0))
    return dict(zip(LATENTS, found, strict=True))


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_step_is_the_models_step(operators: Operators, case: Case) -> None:
    found, expected = run(case, operators), truth(case)
    for name in LATENTS:
        assert_close(name, found[name], expected[name], roundings=3)


WEIGHTS = np.random.default_rng(3).standard_normal(7).astype(np.float32)


@pytest.mark.parametrize(
    ("seed", "turn", "first", "draws", "count"),
    [
        (7, 1, 3, 1, 480),
        (2**64 + 5, 2**40, 1, 7, 17281),
        (2**128 - 1, 2, 0, 4, 33),
        (3, 9, 49, 2, 31),
        (0, 1, 5, 2, 1),
        (7, 1, 50, 0, 40),
    ],
)
def test_noise_has_the_bits_of_the_runtimes(
    operators: Operators, seed: int, turn: int, first: int, draws: int, count: int
) -> None:
    expected = Noise(seed, turn, first, WEIGHTS[:draws], (count,))
    out, device = Outputs(operators.device), operators.device
    found = out.new("noise", (count,), torch.float32)
    key = torch.from_numpy(expected.key.view(np.int64)).to(device)
    table = torch.tensor(load_table(), device=device)
    noise(operators.library, key, table, first, expected.weights.tolist(), found)
    np.testing.assert_array_equal(out.read()["noise"].numpy(), expected.array())
