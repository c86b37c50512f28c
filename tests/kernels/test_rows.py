"""norm_modulate and gate_residual against PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from kernel_results import MAX_VALUE, Operators, Outputs, assert_close, assert_same, case_id
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
    Case(1, 1, 1, 8, BF16),
    Case(1, 1, 0, 1920, F16, F8),
    Case(2, 7, 3, 36),
    Case(2, 7, 7, 64, F16, affine=False),
    Case(2, 9, 0, 128, BF16, I8, shared=True),
    Case(3, 5, 2, 264, BF16, modulated=False),
    Case(1, 23, 11, 1920, affine=False, modulated=False),
    Case(2, 61, 46, 192, BF16, F8),
    Case(2, 61, 46, 192, torch.float32, I8),
    Case(2, 13, 9, 1920, BF16, F8),
    Case(2, 13, 9, 1920, F16, I8, affine=False),
    Case(1, 3, 1, 4096),
    Case(1, 3, 1, 8192, BF16),
    Case(1, 3, 1, 8192, F16, F8),
)
# More rows than any GPU runs blocks: every block takes several, and its run crosses from shot to image and to entry 1.
FULL = Case(2, 6976, 226, 1920, BF16, F8)


@dataclass
class Inputs:
    x: Tensor
    branch: Tensor
    # Six chunks apart in one table, as a modulation's linear layer leaves them: [batch, 6 * width], or [6 * width].
    table: Tensor
    affine: Tensor

    def to(self, device: str) -> Inputs:
        return Inputs(*(array.to(device) for array in (self.x, self.branch, self.table, self.affine)))


def inputs(case: Case) -> Inputs:
    random = torch.Generator().manual_seed(case.width + case.tokens)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random)

    # Means away from 0 and rows of different size, as residual streams have.
    rows = (case.batch, case.tokens, 1)
    x = normal(case.batch, case.tokens, case.width) * torch.exp(normal(*rows) / 2) + 2 * normal(*rows)
    branch = normal(case.batch, case.tokens, case.width)
    table = 0.5 * normal(*(() if case.shared else (case.batch,)), 6 * case.width)
    return Inputs(x.to(case.dtype), branch.to(case.dtype), table, normal(2, case.width))


def chunks(case: Case, table: Tensor) -> tuple[Tensor, ...]:
    return table.chunk(6, dim=-1)


def run(case: Case, operators: Operators, gated: bool, normed: bool = True) -> dict[str, Tensor]:
    library, device = operators.library, operators.device
    given, out = inputs(case).to(device), Outputs(device)
    image_shift, image_scale, image_gate, shot_shift, shot_scale, shot_gate = chunks(case, given.table)
    weight, bias = given.affine if case.affine else (None, None)
    quantised = case.out is not None
    norm = None
    if normed:
        norm = Norm(
            out.new("out", given.x.shape, case.out or case.dtype),
            EPSILON,
            out.new("out_scales", given.x.shape[:2], torch.float32) if quantised else None,
            weight,
            bias,
            *((image_shift, image_scale, shot_shift, shot_scale) if case.modulated else ()),
        )
    if gated:
        x_next = out.new("x_next", given.x.shape, case.dtype)
        gate_residual(library, given.x, given.branch, image_gate, shot_gate, x_next, case.shot_tokens, norm)
    elif norm is not None:
        norm_modulate(library, given.x, norm, case.shot_tokens)
    return out.read()


def truth(case: Case, gated: bool) -> dict[str, Tensor]:
    """In float64 with PyTorch's own LayerNorm; x_next as rounded to its dtype is what the norm sees."""
    given = inputs(case)
    per_batch = [chunk.double().reshape(-1, 1, case.width) for chunk in chunks(case, given.table)]
    image, shot = per_batch[:3], per_batch[3:]
    is_shot = (torch.arange(case.tokens) < case.shot_tokens)[None, :, None]
    shift, scale, gate = (torch.where(is_shot, b, a) for a, b in zip(image, shot, strict=True))
    found = {}
    x = given.x
    if gated:
        x = found["x_next"] = (x.double() + gate * given.branch.double()).to(case.dtype)
    weight, bias = given.affine.double() if case.affine else (None, None)
    y = functional.layer_norm(x.double(), (case.width,), weight, bias, EPSILON)
    found["out"] = y * (1 + scale) + shift if case.modulated else y
    if case.out is not None:
        found["out_scales"] = found["out"].abs().amax(dim=2) / MAX_VALUE[case.out]
        codes = found["out"] / found["out_scales"][..., None]
        found["out"] = codes.round().to(I8) if case.out == I8 else codes.to(case.out)
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


def test_gate_and_residual_go_without_a_norm_and_in_place(operators: Operators) -> None:
    library, device = operators.library, operators.device
    case = Case(2, 9, 4, 64, BF16)
    expected = truth(case, gated=True)["x_next"]
    assert_close("x_next", run(case, operators, gated=True, normed=False)["x_next"], expected, 2)
    given = inputs(case).to(device)
    _, _, image_gate, _, _, shot_gate = chunks(case, given.table)
    gate_residual(library, given.x, given.branch, image_gate, shot_gate, given.x, case.shot_tokens)
    assert_close("x", given.x.cpu(), expected, 2)


@pytest.mark.parametrize("dtype", [F8, I8])
def test_rows_of_zeros_and_of_nans_have_their_scales(operators: Operators, dtype: torch.dtype) -> None:
    library, device = operators.library, operators.device
    x = torch.zeros(1, 3, 64, device=device)
    x[0, 1] = torch.arange(64.0)
    x[0, 2, 5] = float("nan")
    outputs = Outputs(device)
    norm = Norm(outputs.new("out", x.shape, dtype), EPSILON, outputs.new("out_scales", (1, 3), torch.float32))
    norm_modulate(library, x, norm, shot_tokens=0)
    found = outputs.read()
    values = found["out"].float() * found["out_scales"][..., None]
    assert bool((values[0, 0] == 0).all()) and float(found["out_scales"][0, 0]) > 0
    assert float(values[0, 1].max()) == pytest.approx(31.5 / 341.25**0.5, rel=1e-3)
    assert bool(values[0, 2].isnan().all())
