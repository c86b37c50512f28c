"""norm_modulate and gate_residual against PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from kernel_results import Operators, Outputs, assert_close, assert_same, case_id, quantise_rows
from torch import Tensor
from torch.nn import functional

from animegamer_kernels import Norm, gate_residual, norm_modulate

EPSILON = 1e-5


@dataclass(frozen=True)
class Case:
    """x [batch, tokens, width]; out None: the dtype of x. `affine`: weight and bias; `modulated`: shifts and scales."""

    batch: int
    tokens: int
    shot_tokens: int
    width: int
    dtype: torch.dtype = torch.float32
    out: torch.dtype | None = None
    affine: bool = True
    modulated: bool = True
    shared: bool = False


F16, BF16, F8, I8 = torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8
CASES = (
    Case(1, 1, 0, 4),
    Case(2, 7, 7, 64, F16, affine=False),
    Case(2, 9, 0, 128, BF16, I8, shared=True),
    Case(3, 5, 2, 264, BF16, modulated=False),
    Case(1, 23, 11, 1920, affine=False, modulated=False),
    Case(2, 61, 46, 192, torch.float32, I8),
    Case(2, 13, 9, 1920, BF16, F8),
    Case(2, 13, 9, 1920, F16, I8, affine=False),
    Case(1, 3, 1, 4096),
    Case(1, 3, 1, 8192, F16, F8),
)
# More rows than resident blocks: every block handles several, across shot, image and batch entries.
FULL = Case(2, 6976, 226, 1920, BF16, F8)


def inputs(case: Case) -> tuple[Tensor, ...]:
    """x and branch [B, S, D]; modulation [B, 6 D] or [6 D] as its linear layer writes it; weight and bias [D]."""
    random = torch.Generator().manual_seed(case.width + case.tokens)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    # Nonzero means and rows of different magnitude, like residual streams.
    rows = (case.batch, case.tokens, 1)
    x = normal(case.batch, case.tokens, case.width) * torch.exp(normal(*rows) / 2) + 2 * normal(*rows)
    branch = normal(case.batch, case.tokens, case.width)
    modulation = 0.5 * normal(*(() if case.shared else (case.batch,)), 6 * case.width)
    return x.to(case.dtype), branch.to(case.dtype), modulation, normal(case.width), normal(case.width)


def run(case: Case, operators: Operators, gated: bool, normed: bool = True) -> dict[str, Tensor]:
    x, branch, modulation, weight, bias = (array.to(operators.device) for array in inputs(case))
    image_shift, image_scale, image_gate, shot_shift, shot_scale, shot_gate = modulation.chunk(6, dim=-1)
    out, norm = Outputs(operators.device), None
    if normed:
        norm = Norm(
            out.new("out", x.shape, case.out or case.dtype),
            EPSILON,
            out.new("out_scales", x.shape[:2], torch.float32) if case.out is not None else None,
            *((weight, bias) if case.affine else (None, None)),
            *((image_shift, image_scale, shot_shift, shot_scale) if case.modulated else ()),
        )
    if gated:
        x_next = out.new("x_next", x.shape, case.dtype)
        gate_residual(operators.library, x, branch, image_gate, shot_gate, x_next, case.shot_tokens, norm)
    elif norm is not None:
        norm_modulate(operators.library, x, norm, case.shot_tokens)
    return out.read()


def truth(case: Case, gated: bool) -> dict[str, Tensor]:
    """PyTorch's LayerNorm in float64. The norm sees x_next as rounded to its dtype."""
    x, branch, modulation, weight, bias = inputs(case)
    per_batch = [chunk.double().reshape(-1, 1, case.width) for chunk in modulation.chunk(6, dim=-1)]
    is_shot = (torch.arange(case.tokens) < case.shot_tokens)[None, :, None]
    image, shot = per_batch[:3], per_batch[3:]
    shift, scale, gate = (torch.where(is_shot, *pair) for pair in zip(shot, image, strict=True))
    found = {}
    if gated:
        x = found["x_next"] = (x.double() + gate * branch.double()).to(case.dtype)
    affine = (weight.double(), bias.double()) if case.affine else (None, None)
    y = functional.layer_norm(x.double(), (case.width,), *affine, EPSILON)
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
    assert_same(run(FULL, gpu, gated), run(FULL, reference, gated), roundings=3)


def test_gated_sum_needs_no_norm(operators: Operators) -> None:
    case = Case(2, 9, 4, 64, BF16)
    expected = truth(case, gated=True)["x_next"]
    assert_close("x_next", run(case, operators, gated=True, normed=False)["x_next"], expected, 2)


@pytest.mark.parametrize("dtype", [F8, I8])
def test_rows_of_zeros_and_of_nans_have_their_scales(operators: Operators, dtype: torch.dtype) -> None:
    x = torch.zeros(1, 3, 64, device=operators.device)
    x[0, 1], x[0, 2, 5] = torch.arange(64.0), float("nan")
    out = Outputs(operators.device)
    norm = Norm(out.new("out", x.shape, dtype), EPSILON, out.new("out_scales", (1, 3), torch.float32))
    norm_modulate(operators.library, x, norm, shot_tokens=0)
    found = out.read()
    values = found["out"].float() * found["out_scales"][..., None]
    assert bool((values[0, 0] == 0).all()) and float(found["out_scales"][0, 0]) > 0
    assert float(values[0, 1].max()) == pytest.approx(31.5 / 341.25**0.5, rel=1e-3)
    assert bool(values[0, 2].isnan().all())
