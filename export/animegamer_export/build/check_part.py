"""Checks an exported part: valid graphs, complete data files, and weights equal to their source.

Recomputes and compares a few weights; no network is run. `animegamer-rt verify` compares outputs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from animegamer_export.onnx_io.read import open_graph
from animegamer_export.parts.streamed.parts import StreamedPart
from animegamer_export.parts.streamed.write import recompute_weights
from animegamer_rt.errors import BundleError

COMPARED_WEIGHTS = 8
"""Weights compared per graph, spread over the graph."""


def check_part(folder: Path, part: StreamedPart, precision: str | None) -> int:
    """Checks a part's files and returns the number of weights compared: 0 for precision None (quantised).

    Raises BundleError.
    """
    compared = 0
    for graph in part.graphs:
        path = folder / f"{graph.name}.onnx"
        try:
            onnx.checker.check_model(str(path))
        except onnx.checker.ValidationError as error:
            first = str(error).strip().splitlines()[0]
            raise BundleError("not a valid ONNX file", where=path, found=first, do="export the part again") from error
        model = open_graph(path)
        _check_data(model, path)
        if precision is None:
            continue
        makers = recompute_weights(part, model, precision)
        for name in list(makers)[:: max(1, len(makers) // COMPARED_WEIGHTS)]:
            stored = model.graph.initializers[name].const_value
            assert stored is not None
            found, rounded = stored.numpy().astype(np.float32), makers[name]().float().numpy()
            if found.shape != rounded.shape or not np.array_equal(found, rounded):
                raise BundleError(
                    "a weight differs from its source", where=path, found=name, do="export the part again"
                )
            compared += 1
    return compared


def _check_data(model: ir.Model, path: Path) -> None:
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if not isinstance(tensor, ir.ExternalTensor):
            continue
        data = path.parent / tensor.location
        end = (tensor.offset or 0) + (tensor.length or tensor.nbytes)
        size = data.stat().st_size if data.is_file() else 0
        if size < end:
            raise BundleError(
                f"the weight {value.name} is truncated",
                where=data,
                found=f"{size} bytes",
                expected=f"at least {end}",
                do="export the part again",
            )
