"""Writes torch modules as ONNX files with a shared data file, and checks them in onnxruntime.

Weights that float16 represents exactly are stored as float16 with a Cast to float32 in the graph, which onnxruntime
folds at load. Other weights stay float32. `round_to_fp16` decides which weights are rounded.
"""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime
import torch
from torch import Tensor, nn

from animegamer_rt.bundle.manifest import Part
from animegamer_rt.errors import AnimeGamerError, BundleError

from .data_file import INLINE_BYTES, DataFile

OPSET = 23
"""The first opset with an Attention operator (hence onnxruntime >= 1.23)."""

# Every export warns that torchvision is missing, which is not needed here.
logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)

Precision = Literal["fp16", "fp32"]
Array = npt.NDArray[Any]
Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Graph:
    """A module to export: example inputs by name, in the order of its forward, and its output names.

    dynamic: {input: {axis: name}} of dynamic axes; their length in the example must be at least 2.
    """

    name: str
    module: nn.Module
    inputs: Mapping[str, Tensor]
    outputs: Sequence[str]
    dynamic: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of one check and torch's outputs, by name."""

    name: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The manifest's entries of the parts written, and the largest absolute error of each check in onnxruntime."""

    parts: Mapping[str, Part]
    max_error: Mapping[str, float]

    def report(self) -> str:
        """One line per check."""
        return "\n".join(f"{name:42s} max error {error:.1e}" for name, error in self.max_error.items())


def round_to_fp16(module: Module) -> Module:
    """A copy in evaluation mode with weights of two or more axes rounded to float16; biases and norms stay exact."""
    rounded = copy.deepcopy(module).eval()
    with torch.no_grad():
        for weight in rounded.parameters():
            if weight.ndim >= 2:
                weight.copy_(weight.half().float())
    return rounded


def export_copy(module: Module, precision: Precision) -> Module:
    """A copy of the module in evaluation mode, rounded by `round_to_fp16` if the precision is fp16."""
    return round_to_fp16(module) if precision == "fp16" else copy.deepcopy(module).eval()


def write(folder: Path, graphs: Sequence[Graph], weights: str, precision: Precision = "fp16") -> dict[str, Part]:
    """Writes `<name>.onnx` per graph and one file `weights` with the larger weights of all graphs, deduplicated."""

    def models() -> Iterator[tuple[str, ir.Model]]:
        for graph in graphs:
            model = trace(graph)
            if precision == "fp16":
                store_fp16(model)
            yield graph.name, model

    return write_models(folder, models(), weights, precision)


def write_models(
    folder: Path,
    models: Iterable[tuple[str, ir.Model]],
    weights: str,
    precision: str,
    written: Callable[[int], None] = lambda _: None,
) -> dict[str, Part]:
    """Writes (name, model) pairs and their file `weights`; `written` is called with the bytes of each weight."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    with (folder / weights).open("wb") as file:
        data = DataFile(file, weights, written)
        for name, model in models:
            strip_metadata(model)
            data.move(model)
            ir.save(model, folder / f"{name}.onnx")
            shapes = _shapes(model.graph.inputs), _shapes(model.graph.outputs)
            parts[name] = Part(f"{name}.onnx", precision, (weights,), *shapes)
    if data.by_content:
        return parts
    (folder / weights).unlink()
    return {name: replace(part, data_files=()) for name, part in parts.items()}


def check_outputs(folder: Path, cases: Sequence[tuple[str, Case]], tolerance: float) -> dict[str, float]:
    """Runs each (part, case) in onnxruntime on the CPU; returns the largest absolute errors by "part: case".

    The tolerance applies to float32 outputs, relative to the largest expected value if that is above 1; uint8 outputs
    may differ by one. Raises BundleError at a mismatch.
    """
    sessions = {part: _open(folder / f"{part}.onnx") for part in dict.fromkeys(part for part, _ in cases)}
    errors = {}
    for part, case in cases:
        feeds = {name: value.numpy() for name, value in case.inputs.items()}
        found = dict(zip(case.outputs, sessions[part].run(list(case.outputs), feeds), strict=True))
        key = f"{part}: {case.name}"
        errors[key] = 0.0
        for name, expected in case.outputs.items():
            error, allowed = _error(found[name], expected.numpy(), tolerance)
            errors[key] = max(errors[key], error)
            if not error <= allowed:
                raise BundleError(
                    f"outputs of onnxruntime and torch differ: {name}, {case.name}",
                    where=folder / f"{part}.onnx",
                    found=f"max error {error:.2e}",
                    expected=f"at most {allowed:.2e}",
                )
    return errors


def _error(found: Array, expected: Array, tolerance: float) -> tuple[float, float]:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return float("inf"), tolerance
    error = float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0.0))
    if expected.dtype == np.uint8:
        return error, 1.0
    return error, tolerance * max(1.0, float(np.abs(expected).max(initial=0.0)))


def _open(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def trace(graph: Graph, before_folding: Callable[[ir.Model], None] | None = None) -> ir.Model:
    """Traces a graph to an ONNX model and folds constants; `before_folding` may replace values first."""
    dynamic = [dict.fromkeys(graph.dynamic.get(name, {}), torch.export.Dim.DYNAMIC) or None for name in graph.inputs]
    with warnings.catch_warnings():
        # Deprecation warnings inside torch itself (torch 2.13).
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        program = torch.onnx.export(
            graph.module.eval(),
            tuple(graph.inputs.values()),
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=_for_forward(graph.module, dynamic),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
            optimize=False,
        )
    assert program is not None
    if before_folding is not None:
        before_folding(program.model)
    parameters = dict(graph.module.named_parameters(remove_duplicate=False))
    weights = {name: value for name, value in program.model.graph.initializers.items() if name in parameters}
    readers = {name: [(use.node, use.idx) for use in value.uses()] for name, value in weights.items()}
    try:
        program.optimize()
    except ir.passes.PassError as error:
        # It reads small weights, and wraps their errors.
        cause: BaseException | None = error
        while isinstance(cause, ir.passes.PassError):
            cause = cause.__cause__
        if isinstance(cause, AnimeGamerError):
            raise cause from None
        raise
    model: ir.Model = program.model
    _restore_equal(model, weights, readers)
    _name_axes(model, graph.dynamic)
    return model


def _restore_equal(
    model: ir.Model, weights: Mapping[str, ir.Value], readers: Mapping[str, Sequence[tuple[ir.Node, int]]]
) -> None:
    """Restores names of weights that the optimiser merged with equal ones: the PyTorch backend reads them by name."""
    held = model.graph.initializers
    for name in [name for name in weights if name not in held]:
        for node, index in readers[name]:
            now = node.inputs[index] if node.graph is not None and index < len(node.inputs) else None
            if now is not None and now.name in weights and now.name != name and now.name in held:
                if name not in held:
                    model.graph.register_initializer(weights[name])
                node.replace_input_with(index, weights[name])


def _name_axes(model: ir.Model, dynamic: Mapping[str, Mapping[int, str]]) -> None:
    """Replaces the tracer's axis names (s27, s69) by ours, also in expressions of output axes."""
    names = {}
    for value in model.graph.inputs:
        for axis, name in dynamic.get(value.name or "", {}).items():
            assert value.shape is not None
            names[str(value.shape[axis])] = name
    for value in [*model.graph.inputs, *model.graph.outputs]:
        assert value.shape is not None
        for axis, length in enumerate(value.shape):
            if not isinstance(length, int):
                named = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), str(length))
                value.shape[axis] = ir.SymbolicDim(named)


def _for_forward(module: nn.Module, dynamic: list[Any]) -> tuple[Any, ...]:
    """The shapes in the form of forward's arguments, with those of *args in a tuple."""
    code = module.forward.__code__
    named = code.co_argcount - 1
    return (*dynamic[:named], tuple(dynamic[named:])) if len(dynamic) > named else tuple(dynamic)


def store_fp16(model: ir.Model) -> None:
    """Stores as float16 each large weight of two or more axes that float16 represents exactly."""
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.dtype != ir.DataType.FLOAT or len(tensor.shape) < 2 or tensor.nbytes < INLINE_BYTES:
            continue
        full = tensor.numpy()
        half = full.astype(np.float16)
        # Position tables are not rounded and stay float32.
        if not np.array_equal(half.astype(np.float32), full):
            continue
        store_as(model, value, f"{name}.fp16", ir.tensor(half))


def store_as(model: ir.Model, value: ir.Value, name: str, tensor: ir.TensorProtocol) -> None:
    """Replaces a float32 weight by a tensor of another type, followed by a Cast to float32."""
    stored = ir.Value(name=name, shape=value.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
    cast = ir.node("Cast", [stored], {"to": ir.DataType.FLOAT})
    cast.outputs[0].dtype, cast.outputs[0].shape = ir.DataType.FLOAT, value.shape
    ir.convenience.replace_all_uses_with(value, cast.outputs[0])
    assert value.name is not None
    del model.graph.initializers[value.name]
    model.graph.register_initializer(stored)
    model.graph.insert_before(model.graph[0], cast)


def strip_metadata(model: ir.Model) -> None:
    """Removes the tracer's source paths, which differ between machines."""
    model.metadata_props.clear()
    model.doc_string = None
    model.producer_name, model.producer_version = "animegamer-export", None
    for graph in model.graphs():
        graph.metadata_props.clear()
        graph.doc_string = None
        for value in [*graph.inputs, *graph.initializers.values()]:
            value.metadata_props.clear()
            value.doc_string = None
        for node in graph:
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
                value.doc_string = None


def _shapes(values: Sequence[ir.Value]) -> dict[str, Any]:
    return {value.name or "": {"dtype": _dtype(value), "shape": list(_axes(value))} for value in values}


def _dtype(value: ir.Value) -> str:
    assert value.dtype is not None
    return str(value.dtype.numpy())


def _axes(value: ir.Value) -> Iterator[int | str]:
    assert value.shape is not None
    for axis in value.shape:
        yield axis if isinstance(axis, int) else str(axis)
