"""How the kernels' results are held against others: guarded outputs, and tolerances by dtype written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from animegamer_kernels import Library

GUARD = 64
# float32 sums of some thousand terms in another order, less a mean of several deviations.
SUM_ERROR = 1e-5
LARGEST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}


@dataclass(frozen=True)
class Kernels:
    """A library, and the device whose arrays it is called with: what an operator's call needs to run somewhere."""

    library: Library
    device: str


@dataclass
class Outputs:
    """Named outputs on one device, poisoned, with guards on both sides that must stay as they are."""

    device: str
    arrays: dict[str, Tensor] = field(default_factory=dict)
    whole: dict[str, Tensor] = field(default_factory=dict)

    def new(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        count = 1
        for size in shape:
            count *= size
        raw = torch.full(((count + 2 * GUARD) * dtype.itemsize,), 0x7F, dtype=torch.uint8, device=self.device)
        self.whole[name] = raw
        inner = raw[GUARD * dtype.itemsize : (GUARD + count) * dtype.itemsize]
        self.arrays[name] = inner.view(dtype).reshape(tuple(shape))
        return self.arrays[name]

    def read(self) -> dict[str, Tensor]:
        """Copies on the host. Asserts that nothing beside the outputs was written."""
        for name, raw in self.whole.items():
            edge = GUARD * self.arrays[name].dtype.itemsize
            assert bool((raw[:edge] == 0x7F).all()) and bool((raw[-edge:] == 0x7F).all()), f"{name}: written outside"
        return {name: array.cpu().clone() for name, array in self.arrays.items()}


def assert_close(name: str, found: Tensor, expected: Tensor, roundings: int = 1) -> None:
    """Within so many roundings of found's dtype (and SUM_ERROR of the largest) of the expected values."""
    assert found.shape == expected.shape, name
    epsilon = torch.finfo(found.dtype).eps / 2
    exact = expected.double()
    allowed = roundings * epsilon * exact.abs() + SUM_ERROR * max(1.0, float(exact.abs().max()))
    error = (found.double() - exact).abs()
    worst = int((error - allowed).argmax())
    assert bool((error <= allowed).all()), (
        f"{name}: {float(found.flatten()[worst])}, expected {float(exact.flatten()[worst])}"
    )


def assert_codes_close(name: str, found: Tensor, expected: Tensor) -> None:
    """Quantised codes: a rounding apart at most, and that seldom."""
    assert found.shape == expected.shape and found.dtype == expected.dtype, name
    apart = (found.float() - expected.float()).abs()
    # A step is 1 of int8; of E4M3 an eighth of the power of two below, or 2^-9 where there is no smaller one.
    step = torch.ones(()) if found.dtype == torch.int8 else (expected.float().abs() / 8).clamp(min=2**-9)
    assert bool((apart <= step).all()), name
    assert float((apart > 0).float().mean()) < 0.01, name


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], roundings: int) -> None:
    """Results by name: codes as codes, numbers within so many roundings."""
    assert found.keys() == expected.keys()
    for name, array in found.items():
        if array.dtype in LARGEST:
            assert_codes_close(name, array, expected[name])
        else:
            assert_close(name, array, expected[name], roundings)
