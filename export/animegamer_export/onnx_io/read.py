"""Opens ONNX graphs with weights left on disk; adds weights to them.

Installers and `cp -l` make hard links, which onnx-ir rejects, because a link may point to a foreign file. A bundle's
files are verified by sha256, so this module only checks that the name stays in the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx_ir as ir
from google.protobuf.message import DecodeError

from animegamer_rt.errors import BundleError

REPAIR_HINT = "restore the file, or make the bundle again"


def open_graph(source: Path) -> ir.Model:
    """Opens a graph; its weights are read on access. Raises BundleError if the file is not a readable ONNX file."""
    try:
        model = ir.load(source)
    except (OSError, ValueError, DecodeError) as error:
        raise BundleError("not a readable ONNX file", where=source, found=str(error), do=REPAIR_HINT) from error
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value = _hard_linked(value.const_value, source)
    return model


def add_weight(graph: ir.Graph, array: npt.NDArray[Any], name: str, dtype: ir.DataType | None = None) -> ir.Value:
    """A new initializer of an opened graph, in the array's dtype unless another is given."""
    tensor = ir.tensor(array, dtype=dtype, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


class _HardLinkedTensor(ir.ExternalTensor):
    """A weight whose data file may be a hard link."""

    def _check_path_containment(self) -> None:
        """Replaced by the check in `_hard_linked`, which allows hard links."""


def _hard_linked(tensor: ir.ExternalTensor, source: Path) -> _HardLinkedTensor:
    location = str(tensor.location)
    if location != Path(location).name or (source.parent / location).is_symlink():
        raise BundleError(
            "the graph refers to weights outside its folder", where=source, found=repr(location), do=REPAIR_HINT
        )
    return _HardLinkedTensor(
        location,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name or "",
        doc_string=tensor.doc_string,
        metadata_props=tensor.metadata_props,
        base_dir=tensor.base_dir,
    )
