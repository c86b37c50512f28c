"""Records activation ranges by running a part in onnxruntime with additional outputs.

The graph itself computes the largest magnitudes and samples a few rows, so the additional outputs are small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from animegamer_export.onnx_io.read import add_weight, open_graph
from animegamer_export.onnx_io.sessions import Feeds, open_model

from .blocks import Array
from .graph import Matrix, input_of, matrices
from .weights import Exclude

ROW_STEP = 61
"""One row in this many is recorded, to choose the smoothing; a prime, to avoid following image columns."""
MAX_ROWS = 512


@dataclass(frozen=True, slots=True)
class Activation:
    """Inputs of a matrix: the largest magnitude per product and input channel [uses, K], and sample rows [R, K]."""

    largest: Array
    rows: Array


def record_activations(source: Path, runs: Iterable[Feeds], exclude: Exclude) -> dict[str, Activation]:
    """The inputs of a part's matrices in these runs, by matrix name, without the excluded ones."""
    model = open_graph(source)
    chosen = [matrix for matrix in matrices(model) if not exclude(matrix.name)]
    inputs = {input_of(node).name or "": (input_of(node), matrix) for matrix in chosen for node in matrix.uses}
    for name, (value, matrix) in inputs.items():
        if value.dtype is None:
            value.dtype = matrix.dtype
        _add_largest(model, value, f"largest {name}", matrix.width)
        _add_rows(model, value, f"rows {name}", matrix.width)
    largest: dict[str, Array] = {}
    rows: dict[str, list[Array]] = {name: [] for name in inputs}
    for outputs in _run(model, source, runs):
        for name in inputs:
            peak = outputs[f"largest {name}"].astype(np.float32)
            largest[name] = np.maximum(largest[name], peak) if name in largest else peak
            rows[name].append(outputs[f"rows {name}"].astype(np.float32))
    return {matrix.name: _of_matrix(matrix, largest, rows) for matrix in chosen}


def _of_matrix(matrix: Matrix, largest: Mapping[str, Array], rows: Mapping[str, list[Array]]) -> Activation:
    names = [input_of(node).name or "" for node in matrix.uses]
    seen = np.concatenate([block for name in dict.fromkeys(names) for block in rows[name]])
    thin = max(1, len(seen) // MAX_ROWS)
    return Activation(np.stack([largest[name] for name in names]), seen[::thin][:MAX_ROWS])


def _run(model: ir.Model, source: Path, runs: Iterable[Feeds]) -> Iterable[dict[str, npt.NDArray[Any]]]:
    session = open_model(model, source.parent)
    wanted = [value.name for value in session.get_outputs() if value.name.startswith(("largest ", "rows "))]
    for feeds in runs:
        yield dict(zip(wanted, session.run(wanted, dict(feeds)), strict=True))


def _add_largest(model: ir.Model, value: ir.Value, name: str, width: int) -> None:
    """Adds an output: the largest magnitude of each of `width` channels."""
    magnitude = ir.node("Abs", [value])
    flat = ir.node("Reshape", [magnitude.outputs[0], _constant(model, -1, width)])
    largest = ir.node("ReduceMax", [flat.outputs[0], _constant(model, 0)], {"keepdims": 0})
    _append(model, [magnitude, flat, largest], value, name)


def _add_rows(model: ir.Model, value: ir.Value, name: str, width: int) -> None:
    flat = ir.node("Reshape", [value, _constant(model, -1, width)])
    first, last, step = (_constant(model, number) for number in (0, 2**62, ROW_STEP))
    _append(model, [flat, ir.node("Slice", [flat.outputs[0], first, last, first, step])], value, name)


def _append(model: ir.Model, nodes: list[ir.Node], value: ir.Value, name: str) -> None:
    out = nodes[-1].outputs[0]
    out.name, out.type = name, value.type
    model.graph.extend(nodes)
    model.graph.outputs.append(out)


def _constant(model: ir.Model, *numbers: int) -> ir.Value:
    name = f"calibrate {numbers}"
    if name not in model.graph.initializers:
        add_weight(model.graph, np.array(numbers, np.int64), name)
    return model.graph.initializers[name]
