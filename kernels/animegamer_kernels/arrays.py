"""Checks arrays and returns their addresses for the argument structs. The caller keeps the arrays alive."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

from .errors import KernelError


class Dtype(IntEnum):
    """enum agk_dtype. U8, I32 and I64 are not in the C enum: the C interface fixes the dtype of those arrays."""

    F32 = 0
    F16 = 1
    BF16 = 2
    E4M3 = 3
    I8 = 4
    U8 = 5
    I32 = 6
    I64 = 7


DTYPES = {
    "float32": Dtype.F32,
    "float16": Dtype.F16,
    "bfloat16": Dtype.BF16,
    "float8_e4m3fn": Dtype.E4M3,
    "int8": Dtype.I8,
    "uint8": Dtype.U8,
    "int32": Dtype.I32,
    "int64": Dtype.I64,
}


QUANTISED = (Dtype.E4M3, Dtype.I8)


class Array(Protocol):
    """The array interface that operators use. A torch.Tensor has it."""

    @property
    def shape(self) -> Sequence[int]:
        """Size of each axis."""
        ...

    @property
    def dtype(self) -> Any:
        """Its str() is a key of DTYPES, with or without "torch."."""
        ...

    @property
    def device(self) -> Any:
        """`device.type` is "cpu" or "cuda"."""
        ...

    def data_ptr(self) -> int:
        """Address of the first element."""
        ...

    def stride(self) -> Sequence[int]:
        """Stride of each axis, in elements."""
        ...


def dtype_of(array: Array) -> Dtype:
    """The Dtype of an array. Raises KernelError for an unsupported dtype."""
    name = str(array.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise KernelError("unsupported dtype", found=name, expected=", ".join(DTYPES))
    return DTYPES[name]


def sizes_of(what: str, array: Array, axes: str) -> tuple[int, ...]:
    """The array's sizes. axes: such as "[B, S, D]". Raises KernelError for another number of axes."""
    sizes = tuple(array.shape)
    if len(sizes) != len(axes.split(",")):
        raise KernelError("wrong shape", where=what, found=sizes, expected=axes)
    return sizes


def is_contiguous(array: Array) -> bool:
    """Whether the array is contiguous in row-major order. Strides of axes of size 1 do not matter."""
    expected = 1
    for size, stride in zip(reversed(array.shape), reversed(array.stride()), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


class SameDevice:
    """Checks that all arrays of a call are on the first one's device."""

    def __init__(self, first: Array) -> None:
        self.device = first.device

    def stream(self, stream: int) -> int | None:
        """The stream to pass to Library.run: None, which selects the reference, if the arrays are in host memory."""
        return stream if self.device.type == "cuda" else None

    def address(self, what: str, array: Array | None, shape: Sequence[int], *dtypes: Dtype) -> int | None:
        """Address of a contiguous array of this shape and one of these dtypes; None if `array` is None.

        Raises KernelError, which names the argument `what`.
        """
        if array is None:
            return None
        if array.device != self.device:
            raise KernelError("on a different device", where=what, found=array.device, expected=self.device)
        if dtype_of(array) not in dtypes:
            expected = " or ".join(dtype.name for dtype in dtypes)
            raise KernelError("wrong dtype", where=what, found=array.dtype, expected=expected)
        if tuple(array.shape) != tuple(shape) or not is_contiguous(array):
            found = f"{tuple(array.shape)}, strides {tuple(array.stride())}"
            raise KernelError("wrong shape", where=what, found=found, expected=f"{tuple(shape)}, contiguous")
        return array.data_ptr()
