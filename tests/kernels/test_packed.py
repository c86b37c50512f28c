"""unpack and packed_product: references against PyTorch, kernels against references, and the layer's own layout."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from animegamer_kernels import FEW_ROWS, KernelError, Packed, packed_product, unpack
from animegamer_rt.backends.torch.packed_linear import PackedLinear
from kernel_results import Kernels, Outputs, assert_close

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


@dataclass(frozen=True)
class Case:
    """A weight [outputs, inputs] of so many bits in blocks, times so many rows of `dtype`."""

    outputs: int
    inputs: int
    block: int
    bits: int
    rows: int = 3
    dtype: torch.dtype = F32

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return f"{self.outputs}x{self.inputs}-blocks-of-{self.block}-{self.bits}-bits-{self.rows}-rows-{name}"


CASES = (
    Case(1, 8, 8, 4, rows=1),
    Case(1, 4, 4, 8, rows=1),
    Case(5, 64, 64, 4, rows=2, dtype=BF16),
    Case(17, 192, 64, 4, dtype=F16),
    Case(33, 768, 64, 4, rows=4, dtype=BF16),
    Case(16, 4096, 64, 4, dtype=BF16),
    Case(3, 14336, 64, 4, dtype=BF16),
    Case(6, 1056, 32, 4),
    Case(6, 520, 104, 4, rows=2),
    Case(5, 132, 132, 8, rows=4),
    Case(17, 768, 768, 8, dtype=BF16),
    Case(7, 192, 64, 8, rows=2, dtype=F16),
)
# The predictor's largest layers.
FULL = (
    Case(14336, 4096, 64, 4, dtype=BF16),
    Case(4096, 14336, 64, 4, dtype=BF16),
    Case(4096, 14336, 14336, 8, dtype=BF16),
)


def layer(case: Case) -> PackedLinear:
    """Every code there is, and scales of different size."""
    random = torch.Generator().manual_seed(case.inputs + case.outputs)
    highest = 2 ** (case.bits - 1)
    codes = torch.randint(-highest, highest, (case.outputs, case.inputs), generator=random, dtype=torch.int8)
    scales = torch.exp(torch.randn(case.outputs, case.inputs // case.block, generator=random)) / highest
    return PackedLinear.pack(codes, scales, four_bits=case.bits == 4)


def tokens(case: Case) -> Tensor:
    return torch.randn(case.rows, case.inputs, generator=torch.Generator().manual_seed(7)).to(case.dtype)


def packed(case: Case, device: str) -> Packed:
    held = layer(case)
    return Packed(held.codes.to(device), held.scales[..., 0].contiguous().to(device), case.bits)


def run_unpack(case: Case, operators: Kernels) -> Tensor:
    out = Outputs(operators.device)
    unpack(operators.library, packed(case, operators.device), out.new("out", (case.outputs, case.inputs), case.dtype))
    return out.read()["out"]


def run_product(case: Case, operators: Kernels) -> Tensor:
    out = Outputs(operators.device)
    written = out.new("out", (case.rows, case.outputs), case.dtype)
    packed_product(operators.library, packed(case, operators.device), tokens(case).to(operators.device), written)
    return out.read()["out"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_are_bit_by_bit_the_layers_own(operators: Kernels, case: Case) -> None:
    assert torch.equal(run_unpack(case, operators), layer(case).weight(case.dtype))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_is_pytorchs_product(reference: Kernels, case: Case) -> None:
    expected = tokens(case).double() @ layer(case).weight(F32).double().T
    assert_close("out", run_product(case, reference), expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel_is_the_references_result(reference: Kernels, kernels: Kernels, case: Case) -> None:
    assert_close("out", run_product(case, kernels), run_product(case, reference), roundings=3)


@pytest.mark.gpu
@pytest.mark.parametrize("case", FULL, ids=str)
def test_full_size_kernel_is_the_references_result(reference: Kernels, gpu: Kernels, case: Case) -> None:
    assert torch.equal(run_unpack(case, gpu), layer(case).weight(case.dtype))
    assert_close("out", run_product(case, gpu), run_product(case, reference), roundings=3)


def test_arrays_that_do_not_fit_are_refused_by_name(reference: Kernels) -> None:
    library, case = reference.library, Case(3, 16, 8, 4)
    weight, x, out = packed(case, "cpu"), torch.zeros(2, 16), torch.zeros(2, 3)
    with pytest.raises(KernelError, match="scales: an array of another shape"):
        packed_product(library, Packed(weight.codes, torch.zeros(3, 1), 4), x, out)
    with pytest.raises(KernelError, match="scales: an array of another dtype"):
        unpack(library, Packed(weight.codes, torch.zeros(3, 2).half(), 4), torch.zeros(3, 16))
    with pytest.raises(KernelError, match="codes: an array of another shape"):
        unpack(library, Packed(torch.zeros(3, 8, dtype=torch.int8), weight.scales, 4), torch.zeros(3, 16))
    with pytest.raises(KernelError, match="x: an array of another shape"):
        packed_product(library, weight, torch.zeros(2, 8), out)
    with pytest.raises(KernelError, match="out: an array of another dtype"):
        packed_product(library, weight, x, out.half())
    with pytest.raises(KernelError, match="rows 5: expected 1 to 4"):
        packed_product(library, weight, torch.zeros(FEW_ROWS + 1, 16), torch.zeros(FEW_ROWS + 1, 3))
