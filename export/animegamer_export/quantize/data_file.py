"""The file beside ONNX graphs that holds their larger tensors, written one after the other, equal bytes once.

Knows bytes and where they lie; nothing of what they mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

INLINE_BYTES = 1024
"""Smaller tensors stay inside the ONNX file."""
ALIGNMENT = 64


@dataclass(slots=True)
class DataFile:
    """An open file, its name as the graphs will know it, and where which bytes are (by sha256).

    `written` is told how many bytes were added.
    """

    file: BinaryIO
    name: str
    written: Callable[[int], None] = lambda _: None
    held: dict[str, int] = field(default_factory=dict)

    def keep(self, tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
        """A tensor that names the place in this file; a small one comes back as it is, read into memory."""
        if tensor.nbytes < INLINE_BYTES:
            return ir.tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=name)
        raw = tensor.tobytes()
        key = hashlib.sha256(raw).hexdigest()
        if key not in self.held:
            self.file.write(bytes(-self.file.tell() % ALIGNMENT))
            self.held[key] = self.file.tell()
            self.file.write(raw)
            self.written(len(raw))
        shape = ir.Shape(tensor.shape.numpy())
        return ir.ExternalTensor(self.name, self.held[key], len(raw), tensor.dtype, name=name, shape=shape)

    def value(self, array: npt.NDArray[Any], name: str, dtype: ir.DataType | None = None) -> ir.Value:
        """A graph's initializer of an array; the array itself is not held."""
        tensor = self.keep(ir.tensor(array, dtype=dtype, name=name), name)
        shape = ir.Shape(array.shape)
        return ir.Value(name=name, shape=shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
