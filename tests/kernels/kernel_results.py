"""Guarded outputs, and comparison of results with tolerances by dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from animegamer_kernels import Library

GUARD = 64
SUM_ERROR = 1e-5
"""Allowed on top of rounding, relative to the largest value: the order of float32 sums of some thousand terms."""
MAX_VALUE = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}


@dataclass(frozen=True)
class Operators:
    """A library, and the device of the arrays that its operators are called with."""

    library: Library
    device: str


def case_id(case: Any) -> str:
    """The test id of a dataclass (its values in order, and the names of flags that are set) or of a value."""
    if is_dataclass(case):
        values = ((each.name, getattr(case, each.name)) for each in fields(case))
        return "-".join(
            name if value is True else case_id(value) for name, value in values if value not in (None, False)
        )
    return case.name.lower() if isinstance(case, Enum) else str(case).removeprefix("torch.")


@dataclass
class Outputs:
    """Named outputs on one device, filled with 0x7F, each between two guard regions."""

    device: str
    arrays: dict[str, Tensor] = field(default_factory=dict)
    memory: dict[str, Tensor] = field(default_factory=dict)

    def new(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        edge, size = GUARD * dtype.itemsize, prod(shape) * dtype.itemsize
        memory = torch.full((size + 2 * edge,), 0x7F, dtype=torch.uint8, device=self.device)
        self.memory[name] = memory
        self.arrays[name] = memory[edge : edge + size].view(dtype).reshape(tuple(shape))
        return self.arrays[name]

    def read(self) -> dict[str, Tensor]:
        """Copies on the host. Asserts that the guards are intact."""
        for name, memory in self.memory.items():
            edge = GUARD * self.arrays[name].dtype.itemsize
            assert bool((memory[:edge] == 0x7F).all() and (memory[-edge:] == 0x7F).all()), (
                f"{name}: written out of bounds"
            )
        return {name: array.cpu().clone() for name, array in self.arrays.items()}


def assert_close(name: str, found: Tensor, expected: Tensor, roundings: int = 1) -> None:
    """Asserts a difference of at most `roundings` of found's dtype, plus SUM_ERROR of the largest value."""
    assert found.shape == expected.shape, name
    exact = expected.double()
    rounding = torch.finfo(found.dtype).eps / 2
    allowed = roundings * rounding * exact.abs() + SUM_ERROR * max(1.0, float(exact.abs().max()))
    error = (found.double() - exact).abs()
    worst = int((error - allowed).argmax())
    assert bool((error <= allowed).all()), f"{name}: {found.flatten()[worst]}, expected {exact.flatten()[worst]}"


def assert_codes_close(name: str, found: Tensor, expected: Tensor) -> None:
    """Asserts that quantised codes differ by at most one code, and in less than 1 % of the elements."""
    assert found.shape == expected.shape and found.dtype == expected.dtype, name
    error = (found.float() - expected.float()).abs()
    # A step is 1 for int8; for E4M3 an eighth of the power of two below, at least 2^-9.
    step = torch.ones(()) if found.dtype == torch.int8 else (expected.float().abs() / 8).clamp(min=2**-9)
    assert bool((error <= step).all()), name
    assert float((error > 0).float().mean()) < 0.01, name


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], roundings: int) -> None:
    """Compares results by name: FP8 and INT8 as codes, other dtypes within `roundings`."""
    assert found.keys() == expected.keys()
    for name, array in found.items():
        if array.dtype in MAX_VALUE:
            assert_codes_close(name, array, expected[name])
        else:
            assert_close(name, array, expected[name], roundings)


def quantise_rows(values: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Codes and scales [..] of rows [.., D], the largest magnitude of a row at the largest code."""
    scales = values.abs().amax(dim=-1) / MAX_VALUE[dtype]
    codes = values / scales[..., None]
    return (codes.round() if dtype == torch.int8 else codes).to(dtype), scales


def relative_error(found: Tensor | np.ndarray, expected: Tensor | np.ndarray) -> float:
    """|found - expected| / |expected|, Euclidean norms in float64."""
    first, second = (torch.as_tensor(array).double() for array in (found, expected))
    return float((first - second).norm() / second.norm())
