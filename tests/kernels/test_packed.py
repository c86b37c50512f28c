"""unpack and packed_product against PyTorch, with the layout of PackedLinear."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from kernel_results import Operators, Outputs, assert_close, case_id
from torch import Tensor

from animegamer_kernels import packed_product, unpack
from animegamer_rt.backends.torch.packed_linear import PackedLinear

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


@dataclass(frozen=True)
class Case:
    """A weight [outputs, inputs] and x [rows, inputs] of `dtype`."""

    outputs: int
    inputs: int
    block: int
    bits: int
    rows: int = 3
    dtype: torch.dtype = F32


CASES = (
    Case(1, 8, 8, 4, rows=1),
    Case(1, 4, 4, 8, rows=1),
    Case(5, 64, 64, 4, rows=2, dtype=BF16),
    Case(17, 192, 64, 4, dtype=F16),
    Case(33, 768, 64, 4, rows=4, dtype=BF16),
    Case(3, 14336, 64, 4, dtype=BF16),
    Case(6, 1056, 32, 4),
    Case(6, 520, 104, 4, rows=2),
    Case(5, 132, 132, 8, rows=4),
    Case(17, 768, 768, 8, dtype=BF16),
    Case(7, 192, 64, 8, rows=2, dtype=F16),
)


def layer(case: Case) -> PackedLinear:
    """A layer with every code and with scales of different magnitude."""
    random = torch.Generator().manual_seed(case.inputs + case.outputs)
    highest = 2 ** (case.bits - 1)
    codes = torch.randint(-highest, highest, (case.outputs, case.inputs), generator=random, dtype=torch.int8)
    scales = torch.exp(torch.randn(case.outputs, case.inputs // case.block, generator=random)) / highest
    return PackedLinear.pack(codes, scales, four_bits=case.bits == 4)


def tokens(case: Case) -> Tensor:
    return torch.randn(case.rows, case.inputs, generator=torch.Generator().manual_seed(7)).to(case.dtype)


def run_unpack(case: Case, operators: Operators) -> Tensor:
    out, weight = Outputs(operators.device), layer(case).to(operators.device)
    written = out.new("out", (case.outputs, case.inputs), case.dtype)
    unpack(operators.library, weight.codes, weight.scales, case.bits == 4, written)
    return out.read()["out"]


def run_product(case: Case, operators: Operators) -> Tensor:
    out, weight = Outputs(operators.device), layer(case).to(operators.device)
    written = out.new("out", (case.rows, case.outputs), case.dtype)
    x = tokens(case).to(operators.device)
    packed_product(operators.library, x, weight.codes, weight.scales, case.bits == 4, written)
    return out.read()["out"]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_weight_is_the_layers_bit_by_bit_and_product_is_pytorchs(operators: Operators, case: Case) -> None:
    assert torch.equal(run_unpack(case, operators), layer(case).weight(case.dtype))
    expected = tokens(case).double() @ layer(case).weight(F32).double().T
    assert_close("out", run_product(case, operators), expected, roundings=3)
