"""Writes the external data file of ONNX graphs, with equal tensors stored once."""

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
MADE_FROM = "made_from"
"""Metadata key of a lazy tensor: tensors with the same value are computed and stored once."""


@dataclass(slots=True)
class DataFile:
    """An open data file.

    name: as the graphs refer to it. written: called with the number of bytes after each write. by_content, by_source:
    (offset, length) of stored tensors, by the sha256 of their bytes and by `MADE_FROM`.
    """

    file: BinaryIO
    name: str
    written: Callable[[int], None] = lambda _: None
    by_content: dict[str, tuple[int, int]] = field(default_factory=dict)
    by_source: dict[str, tuple[int, int]] = field(default_factory=dict)

    def move(self, model: ir.Model) -> None:
        """Moves a model's larger weights to this file, one at a time."""
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            if tensor is not None and tensor.nbytes >= INLINE_BYTES:
                value.const_value = self.store(tensor, name)

    def store(self, tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
        """Stores a tensor and returns a reference; a small tensor is returned in memory instead."""
        if tensor.nbytes < INLINE_BYTES:
            return ir.tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=name)
        offset, length = self._place(tensor)
        shape = ir.Shape(tensor.shape.numpy())
        return ir.ExternalTensor(self.name, offset, length, tensor.dtype, name=name, shape=shape)

    def _place(self, tensor: ir.TensorProtocol) -> tuple[int, int]:
        made_from = tensor.metadata_props.get(MADE_FROM)
        if made_from is not None and made_from in self.by_source:
            return self.by_source[made_from]
        raw = tensor.tobytes()
        content = hashlib.sha256(raw).hexdigest()
        if content not in self.by_content:
            self.file.write(bytes(-self.file.tell() % ALIGNMENT))
            self.by_content[content] = self.file.tell(), len(raw)
            self.file.write(raw)
            self.written(len(raw))
        if made_from is not None:
            self.by_source[made_from] = self.by_content[content]
        return self.by_content[content]

    def value(self, array: npt.NDArray[Any], name: str, dtype: ir.DataType | None = None) -> ir.Value:
        """Stores an array and returns an initializer for a graph."""
        tensor = self.store(ir.tensor(array, dtype=dtype, name=name), name)
        shape = ir.Shape(array.shape)
        return ir.Value(name=name, shape=shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
