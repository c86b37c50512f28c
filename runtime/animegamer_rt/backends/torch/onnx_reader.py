"""Reads weights from an ONNX file and its data file: initializers by name, and the operators that use them, in order.

It parses only the fields of onnx.proto that it needs, so that playing needs no onnx package. `weight_names` maps each
weight to a network's parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from animegamer_rt.bundle.protobuf import fields, varint
from animegamer_rt.errors import BackendError

DTYPES: Mapping[int, torch.dtype] = MappingProxyType(
    {
        1: torch.float32,
        2: torch.uint8,
        3: torch.int8,
        7: torch.int64,
        9: torch.bool,
        10: torch.float16,
        16: torch.bfloat16,
    }
)
"""TensorProto.DataType of the weights that export writes."""
INT4 = 22
"""TensorProto.DataType of 4-bit codes: two per byte, the first in the low half."""
EXTERNAL = 1

Bytes = memoryview


@dataclass(frozen=True, slots=True)
class Weight:
    """One initializer and where its bytes are: `inline` in the ONNX file, or in `file` at `offset`.

    scales: for a weight behind DequantizeLinear, one scale for each index of `axis`, or for each block if they have two
    axes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: int
    inline: Bytes = field(repr=False)
    file: Path | None = None
    offset: int = 0
    length: int = 0
    scales: Weight | None = None
    axis: int = 0

    @property
    def is_float(self) -> bool:
        """Whether it can be a parameter: of a float dtype, or quantised."""
        kind = DTYPES.get(self.dtype)
        return self.scales is not None or kind is not None and kind.is_floating_point

    def tensor(self) -> Tensor:
        """Its value on the host in the stored dtype; 4-bit codes as int8.

        Raises BackendError for an unknown dtype or where bytes are missing.
        """
        if self.dtype not in DTYPES and self.dtype != INT4:
            raise BackendError(
                "a weight has a dtype that export does not write", found=f"{self.name}: type {self.dtype}"
            )
        if self.file is None:
            raw = np.frombuffer(self.inline, np.uint8).copy()
        else:
            raw = np.fromfile(self.file, np.uint8, count=self.length, offset=self.offset)
        dtype, count = DTYPES.get(self.dtype, torch.int8), int(np.prod(self.shape, dtype=np.int64))
        expected = (count + 1) // 2 if self.dtype == INT4 else count * dtype.itemsize
        if len(raw) != expected:
            raise BackendError(
                "a weight's bytes are missing",
                where=self.file,
                found=f"{self.name}: {len(raw)} bytes",
                expected=f"{expected} bytes",
                do="verify the bundle: animegamer-rt info",
            )
        found = torch.from_numpy(raw).view(dtype)
        if self.dtype == INT4:
            found = torch.stack([found << 4 >> 4, found >> 4], dim=1).flatten()[:count]
        return found.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a weight by an operator, ignoring a Cast or DequantizeLinear between them."""

    operator: str
    weight: Weight


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of one ONNX file, and their uses in the order of the graph's nodes."""

    path: Path
    by_name: Mapping[str, Weight]
    uses: tuple[Use, ...]


def read_weights(path: Path) -> Weights:
    """Reads names, locations and uses; `Weight.tensor` reads values. Raises BackendError where it is not ONNX."""
    try:
        graph = next(value for number, value in _fields(Bytes(path.read_bytes())) if number == 7)
        assert isinstance(graph, Bytes)
        parts = list(_fields(graph))
        found = [_weight(value, path.parent) for number, value in parts if number == 5 and isinstance(value, Bytes)]
        nodes = [_node(value) for number, value in parts if number == 1 and isinstance(value, Bytes)]
    except (OSError, IndexError, StopIteration, ValueError) as error:
        raise BackendError("the part cannot be read as ONNX", where=path, found=repr(error)) from error
    by_name = {weight.name: weight for weight in found}
    by_value, uses = dict(by_name), []
    for operator, inputs, outputs, numbers in nodes:
        if operator == "Cast" and inputs[0] in by_name:
            by_value[outputs[0]] = by_name[inputs[0]]
        elif operator == "DequantizeLinear" and set(inputs) <= set(by_name) and len(inputs) == 2:
            by_value[outputs[0]] = replace(by_name[inputs[0]], scales=by_name[inputs[1]], axis=numbers.get("axis", 1))
        else:
            uses += [Use(operator, by_value[name]) for name in inputs if name in by_value]
    return Weights(path, MappingProxyType(by_name), tuple(uses))


def _weight(message: Bytes, folder: Path) -> Weight:
    shape: list[int] = []
    name, dtype, inline, external, entries = "", 0, Bytes(b""), False, {}
    for number, value in _fields(message):
        if number == 1:
            shape += [value] if isinstance(value, int) else _varints(value)
        elif number == 2 and isinstance(value, int):
            dtype = value
        elif number == 8:
            name = _text(value)
        elif number == 9 and isinstance(value, Bytes):
            inline = value
        elif number == 13 and isinstance(value, Bytes):
            entry = {key: _text(content) for key, content in _fields(value)}
            entries[entry[1]] = entry[2]
        elif number == 14:
            external = value == EXTERNAL
    if not external:
        return Weight(name, tuple(shape), dtype, inline)
    file = folder / entries["location"]
    return Weight(name, tuple(shape), dtype, inline, file, int(entries.get("offset", 0)), int(entries["length"]))


def _node(message: Bytes) -> tuple[str, list[str], list[str], dict[str, int]]:
    """(operator, inputs, outputs, attributes that are whole numbers) of a NodeProto."""
    operator, inputs, outputs, numbers = "", [], [], {}
    for number, value in _fields(message):
        if number == 1:
            inputs.append(_text(value))
        elif number == 2:
            outputs.append(_text(value))
        elif number == 4:
            operator = _text(value)
        elif number == 5 and isinstance(value, Bytes):
            attribute = dict(_fields(value))
            if isinstance(whole := attribute.get(3), int):
                numbers[_text(attribute[1])] = whole
    return operator, inputs, outputs, numbers


def _fields(message: Bytes) -> Iterator[tuple[int, int | Bytes]]:
    for number, value, first, last in fields(message, 0, len(message)):
        yield number, message[first:last] if value is None else value


def _varints(packed: Bytes) -> list[int]:
    values, at = [], 0
    while at < len(packed):
        value, at = varint(packed, at, len(packed))
        values.append(value)
    return values


def _text(value: int | Bytes) -> str:
    assert isinstance(value, Bytes)
    return bytes(value).decode("utf-8")
