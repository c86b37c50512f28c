"""norm_modulate and gate_residual against PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from kernel_results import Operators, Outputs, assert_same, case_id, quantise_rows
from torch import Tensor
from torch.nn import functional

from animegamer_kernels import gate_residual, norm_modulate

EPSILON = 1e-5


@dataclass(frozen=True)
class Case:
    """x [batch, tokens, width]; out None: the dtype of x. `modulated`: shifts and scales."""

    batch: int
    tokens: int
    shot_tokens: int
    width: int
    dtype: torch.dtype = torch.float32
    out: torch.dtype | None = None
    modulated: bool = True


F16, BF16, F8, I8 = torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8
CASES = (
    Case(1, 1, 0, 4),
    Case(2, 7, 7, 64, F16),
    Case(2, 9, 0, 128, BF16, I8),
    Case(3, 5, 2, 264, BF16, modulated=False),
    Case(1, 23, 11, 1920, modulated=False),
    Case(2, 61, 46, 192, torch.float32, I8),
    Case(2, 13, 9, 1920, BF16, F8),
    Case(2, 13, 9, 1920, F16, I8),
    Case(1, 3, 1, 4096),
    Case(1, 3, 1, 8192, F16, F8),
)
# More rows than resident blocks: every block handles several, across shot, image and batch entries.
FULL = Case(2, 6976, 226, 1920, BF16, F8)


def inputs(case: Case) -> tuple[Tensor, ...]:
    """x and branch [B, S, D]; modulation [6, D]: shift, scale and gate of image, then shot; weight and bias [D]."""
    random = torch.Generator().manual_seed(case.width + case.tokens)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    # Nonzero means and rows of different magnitude, like residual streams.
    rows = (case.batch, case.tokens, 1)
    x = normal(case.batch, case.tokens, case.width) * torch.exp(normal(*rows) / 2) + 2 * normal(*rows)
    branch = normal(case.batch, case.tokens, case.width)
    modulation = 0.5 * normal(6, case.width)
    return x.to(case.dtype), branch.to(case.dtype), modulation, normal(case.width), normal(case.width)


def run(case: Case, operators: Operators, gated: bool, sums: Tensor | None = None) -> dict[str, Tensor]:
    """Results by name. sums: take the norm of these in place of the gated sums."""
    x, branch, modulation, weight, bias = (array.to(operators.device) for array in inputs(case))
    image, shot = modulation.split(3)
    shifts = (shot[:2] if case.shot_tokens else None, image[:2]) if case.modulated else (None, None)
    out = Outputs(operators.device)
    norm = weight, bias, EPSILON, *shifts, case.shot_tokens
    to = out.new("out", x.shape, case.out or case.dtype)
    scales = out.new("out_scales", x.shape[:2], torch.float32) if case.out is not None else None
    if gated:
        summed = out.new("x", x.shape, case.dtype)
        summed.copy_(x)
        gate_residual(operators.library, summed, branch, shot[2], image[2], *norm, to, scales)
        if sums is not None:
            norm_modulate(operators.library, sums.to(operators.device), *norm, to, scales)
    else:
        norm_modulate(operators.library, x, *norm, to, scales)
    return out.read()


def truth(case: Case, gated: bool) -> dict[str, Tensor]:
    """PyTorch's LayerNorm in float64. The norm sees the sum as rounded to its dtype."""
    x, branch, modulation, weight, bias = inputs(case)
    is_shot = (torch.arange(case.tokens) < case.shot_tokens)[None, :, None]
    image, shot = modulation.double().split(3)
    shift, scale, gate = (torch.where(is_shot, *pair) for pair in zip(shot, image, strict=True))
    found = {}
    if gated:
        x = found["x"] = (x.double() + gate * branch.double()).to(case.dtype)
    y = functional.layer_norm(x.double(), (case.width,), weight.double(), bias.double(), EPSILON)
    found["out"] = y * (1 + scale) + shift if case.modulated else y
    if case.out is not None:
        found["out"], found["out_scales"] = quantise_rows(found["out"], case.out)
    return found


GATED = pytest.mark.parametrize("gated", [False, True], ids=["norm_modulate", "gate_residual"])


@GATED
@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_result_is_pytorchs(operators: Operators, case: Case, gated: bool) -> None:
    assert_same(run(case, operators, gated), truth(case, gated), roundings=3)


@pytest.mark.gpu
@GATED
def test_full_size_kernel_is_the_references_result(reference: Operators, gpu: Operators, gated: bool) -> None:
    found = run(FULL, gpu, gated)
    # A fused multiply-add rounds some sums to bfloat16's other neighbour. That moves the mean of the row, and with it
    # values near zero by more than a code, so the reference takes the norm of the kernel's own sums.
    expected = run(FULL, reference, gated, found.get("x"))
    assert_same(found, expected, roundings=3)
    if gated:
        assert float((found["x"] != expected["x"]).float().mean()) < 1e-4  # a product rounds to 2^-24, a sum to 2^-8


@pytest.mark.parametrize("dtype", [F8, I8])
def test_rows_of_zeros_and_of_nans_have_their_scales(operators: Operators, dtype: torch.dtype) -> None:
    x = torch.zeros(1, 3, 64, device=operators.device)
    x[0, 1], x[0, 2, 5] = torch.arange(64.0), float("nan")
    out = Outputs(operators.device)
    weight, to = torch.ones(64, device=operators.device), out.new("out", x.shape, dtype)
    scales = out.new("out_scales", (1, 3), torch.float32)
    norm_modulate(operators.library, x, weight, 0 * weight, EPSILON, None, None, 0, to, scales)
    found = out.read()
    values = found["out"].float() * found["out_scales"][..., None]
    assert bool((values[0, 0] == 0).all()) and float(found["out_scales"][0, 0]) > 0
    assert float(values[0, 1].max()) == pytest.approx(31.5 / 341.25**0.5, rel=1e-3)
    assert bool(values[0, 2].isnan().all())
