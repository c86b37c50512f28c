"""epilogue against PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from kernel_results import Operators, Outputs, assert_same, case_id, quantise_rows
from torch import Tensor
from torch.nn import functional

from animegamer_kernels import epilogue

F16, BF16, F32, F8, I8 = torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.int8


@dataclass(frozen=True)
class Case:
    """x [rows, width] of `dtype`, or int32 with `sums`; out None: `dtype`."""

    rows: int
    width: int
    dtype: torch.dtype = F32
    out: torch.dtype | None = None
    sums: bool = False
    gelu: bool = False


CASES = (
    Case(1, 4, gelu=True),
    Case(1, 8, BF16, F8),
    Case(7, 36, F32, I8, gelu=True),
    Case(5, 264, BF16, gelu=True),
    Case(23, 192, F16, F8, gelu=True),
    Case(9, 1920, BF16, I8),
    Case(2, 8192, F16, I8, gelu=True),
    Case(2, 4096, F32, F8),
    Case(1, 4, sums=True),
    Case(5, 36, F32, sums=True, gelu=True),
    Case(9, 5760, BF16, sums=True),
    Case(3, 7680, BF16, I8, sums=True, gelu=True),
    Case(13, 264, F16, sums=True),
    Case(2, 8192, F16, F8, sums=True),
)
# More rows than resident blocks: every block handles several.
FULL = (
    Case(13952, 7680, BF16, F8, gelu=True),
    Case(13952, 7680, BF16, I8, sums=True, gelu=True),
    Case(13952, 5760, BF16, sums=True),
)


def inputs(case: Case) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Rows of different magnitude; for sums also row scales, column scales and bias."""
    random = torch.Generator().manual_seed(case.width + case.rows)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    x = normal(case.rows, case.width) * 3 * torch.exp(normal(case.rows, 1))
    if not case.sums:
        return x.to(case.dtype), ()
    scales, columns = torch.exp(normal(case.rows)) / 1e4, torch.exp(normal(case.width)) / 10
    sums = (x / scales[:, None] / columns).round().clamp(-(2**24), 2**24)
    return sums.to(torch.int32), (scales, columns, normal(case.width))


def run(case: Case, operators: Operators) -> dict[str, Tensor]:
    (x, factors), out, device = inputs(case), Outputs(operators.device), operators.device
    sums = [part.to(device) for part in factors] or [None, None, None]
    written = out.new("out", x.shape, case.out or case.dtype)
    scales = None if case.out is None else out.new("out_scales", x.shape[:1], F32)
    epilogue(operators.library, x.to(device), *sums, case.gelu, written, scales)
    return out.read()


def truth(case: Case) -> dict[str, Tensor]:
    """PyTorch in float64."""
    x, factors = inputs(case)
    value = x.double()
    if factors:
        scales, columns, bias = (part.double() for part in factors)
        value = value * scales[:, None] * columns + bias
    value = functional.gelu(value, approximate="tanh") if case.gelu else value
    if case.out is None:
        return {"out": value}
    codes, scales = quantise_rows(value, case.out)
    return {"out": codes, "out_scales": scales}


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_result_is_pytorchs(operators: Operators, case: Case) -> None:
    assert_same(run(case, operators), truth(case), roundings=3)


@pytest.mark.gpu
@pytest.mark.parametrize("case", FULL, ids=case_id)
def test_full_size_kernel_is_the_references_result(reference: Operators, gpu: Operators, case: Case) -> None:
    assert_same(run(case, gpu), run(case, reference), roundings=3)


def test_gelu_of_extreme_values_is_right(operators: Operators) -> None:
    far = torch.tensor([[-1e30, -100.0, -0.0, 0.0, 100.0, 1e30, float("inf"), float("nan")]], device=operators.device)
    out = torch.empty_like(far)
    epilogue(operators.library, far, None, None, None, True, out)
    assert out[0, :-1].tolist() == [0.0, 0.0, 0.0, 0.0, 100.0, pytest.approx(1e30), float("inf")]
    assert bool(out[0, -1].isnan())
