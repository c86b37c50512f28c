"""Arrays as the kernels see them: an address, a dtype's code and sizes that fit.

It does not know who owns the memory or keeps it alive while a stream works: the caller does.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

from .errors import KernelError


class Dtype(IntEnum):
    """enum agk_dtype; U8 (pixels, working memory) and I32 (sums) are of arrays whose dtype an operator knows."""

    F32 = 0
    F16 = 1
    BF16 = 2
    E4M3 = 3
    I8 = 4
    U8 = 5
    I32 = 6


DTYPES = {
    "float32": Dtype.F32,
    "float16": Dtype.F16,
    "bfloat16": Dtype.BF16,
    "float8_e4m3fn": Dtype.E4M3,
    "int8": Dtype.I8,
    "uint8": Dtype.U8,
    "int32": Dtype.I32,
}


class Array(Protocol):
    """What is asked of an array; a torch.Tensor has it."""

    @property
    def shape(self) -> Sequence[int]:
        """Its sizes."""
        ...

    @property
    def dtype(self) -> Any:
        """Its dtype, whose name ends as in DTYPES."""
        ...

    @property
    def device(self) -> Any:
        """Where it is; `device.type` is "cpu" or "cuda"."""
        ...

    def data_ptr(self) -> int:
        """Its address."""
        ...

    def stride(self) -> Sequence[int]:
        """Elements from one index to the next, for every axis."""
        ...


def dtype_of(array: Array) -> Dtype:
    """Raises KernelError for a dtype that no operator takes."""
    name = str(array.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise KernelError("a dtype that no kernel takes", found=name, expected=", ".join(DTYPES))
    return DTYPES[name]


def dense(array: Array) -> bool:
    """Whether the elements lie one after the other, the last axis innermost."""
    expected = 1
    for size, stride in zip(reversed(array.shape), reversed(array.stride()), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


class Room:
    """The device of a call's first array, which all its others must be on."""

    def __init__(self, first: Array) -> None:
        self.device = first.device

    def stream(self, stream: int) -> int | None:
        """The stream for Library.run: None, and so the reference, for host memory."""
        return stream if self.device.type == "cuda" else None

    def address(self, what: str, array: Array | None, shape: Sequence[int], *dtypes: Dtype) -> int | None:
        """Of a dense array of that shape and one of those dtypes; None for None. Raises KernelError otherwise."""
        if array is None:
            return None
        self._check(what, array, dtypes)
        if tuple(array.shape) != tuple(shape) or not dense(array):
            found = f"{tuple(array.shape)}, strides {tuple(array.stride())}"
            raise KernelError("an array of another shape", where=what, found=found, expected=f"{tuple(shape)}, dense")
        return array.data_ptr()

    def strided(self, what: str, array: Array | None, shape: Sequence[int], dtype: Dtype) -> int | None:
        """As `address`, with whatever strides the array has."""
        if array is None:
            return None
        self._check(what, array, (dtype,))
        if tuple(array.shape) != tuple(shape):
            raise KernelError("an array of another shape", where=what, found=tuple(array.shape), expected=tuple(shape))
        return array.data_ptr()

    def rows(self, what: str, array: Array | None, batch: int, width: int) -> tuple[int | None, int]:
        """Address of a float32 vector [width] or [batch, width], and the elements between batch entries (0 for one)."""
        if array is None:
            return None, 0
        self._check(what, array, (Dtype.F32,))
        strides = tuple(array.stride())
        shared = tuple(array.shape) == (width,)
        if not (shared or tuple(array.shape) == (batch, width)) or strides[-1] != 1:
            found = f"{tuple(array.shape)}, strides {strides}"
            raise KernelError(
                "an array of another shape", where=what, found=found, expected=f"[{width}] or [{batch}, {width}]"
            )
        return array.data_ptr(), 0 if shared or batch == 1 else strides[0]

    def _check(self, what: str, array: Array, dtypes: Sequence[Dtype]) -> None:
        if array.device != self.device:
            raise KernelError("an array on another device", where=what, found=array.device, expected=self.device)
        if dtype_of(array) not in dtypes:
            expected = " or ".join(dtype.name for dtype in dtypes)
            raise KernelError("an array of another dtype", where=what, found=array.dtype, expected=expected)
