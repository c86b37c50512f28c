"""Claims about codes and scales, and about rewritten graphs, on small products in the forms that our exports have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
from project import with_newer_onnxruntime

from animegamer_export.evaluate.metrics import relative_error
from animegamer_export.onnx_io.read import open_graph
from animegamer_export.onnx_io.sessions import open_plain
from animegamer_export.quantize import blocks, ranges
from animegamer_export.quantize.blocks import quantize_matrix
from animegamer_export.quantize.graph import matrices
from animegamer_export.quantize.nodes import Ranges
from animegamer_export.quantize.scheme import SCHEMES, scheme
from animegamer_export.quantize.smoothing import activation_ranges
from animegamer_export.quantize.weights import data_files, read_weight, rewrite_files
from animegamer_rt.errors import BundleError

Array = npt.NDArray[Any]
WIDTH, INNER, ROWS = 64, 128, 200
RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((ROWS, WIDTH), np.float32)
# Outliers in a few inputs, as language models have them: what smoothing is for.
SPIKED = X * np.where(np.arange(WIDTH) % 16 == 0, 30, 1).astype(np.float32)
WEIGHTS = {
    "first.weight": RANDOM.standard_normal((INNER, WIDTH)).astype(np.float16) / np.float16(8),
    "second.weight": RANDOM.standard_normal((WIDTH, INNER)).astype(np.float16) / np.float16(16),
    "table": RANDOM.standard_normal((WIDTH, WIDTH)).astype(np.float16),
    "val_9": RANDOM.standard_normal((INNER, WIDTH)).astype(np.float16) / np.float16(8),
}
BIAS = RANDOM.standard_normal(INNER).astype(np.float32)


def keep_table(name: str) -> bool:
    return name == "table"


def write(path: Path, weights: Mapping[str, Array] = WEIGHTS) -> Path:
    """y = gelu(x first^T + bias) second^T; z = gelu(x first^T + bias) val_9 + the table's mean."""

    def initializer(name: str, array: Array) -> ir.Value:
        tensor = ir.tensor(array, name=name)
        return ir.Value(name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)

    def value(name: str, *shape: int | str) -> ir.Value:
        return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))

    held = [initializer(f"{name}.fp16", weights[name]) for name in WEIGHTS]
    bias, x = initializer("bias", BIAS), value("x", "rows", WIDTH)
    casts = [ir.node("Cast", [weight], {"to": ir.DataType.FLOAT}) for weight in held]
    for cast, weight in zip(casts, held, strict=True):
        cast.outputs[0].dtype, cast.outputs[0].shape = ir.DataType.FLOAT, weight.shape
    first, second, table, last = (cast.outputs[0] for cast in casts)
    inner = ir.node("Gemm", [x, first, bias], {"transB": 1}, outputs=[value("inner", "rows", INNER)])
    bent = ir.node("Gelu", [inner.outputs[0]], outputs=[value("bent", "rows", INNER)])
    down = ir.node("Gemm", [bent.outputs[0], second], {"transB": 1}, outputs=[value("y", "rows", WIDTH)])
    other = ir.node("MatMul", [bent.outputs[0], last], outputs=[value("product", "rows", WIDTH)])
    mean = ir.node("ReduceMean", [table], {"keepdims": 0}, outputs=[value("mean")])
    z = ir.node("Add", [other.outputs[0], mean.outputs[0]], outputs=[value("z", "rows", WIDTH)])
    graph = ir.Graph(
        [x],
        [down.outputs[0], z.outputs[0]],
        nodes=[*casts, inner, bent, down, other, mean, z],
        initializers=[*held, bias],
        opset_imports={"": 23},
        name="small",
    )
    ir.save(ir.Model(graph, ir_version=10), path, external_data=f"{path.stem}.weights")
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("source") / "small.onnx")


def run(path: Path, x: Array = X) -> list[Array]:
    return list(open_plain(path).run(["y", "z"], {"x": x}))


def measured(source: Path, name: str, x: Array = X) -> dict[str, Ranges]:
    found = ranges.record_activations(source, [{"x": x}], keep_table)
    return {
        one.name: activation_ranges(read_weight(one), found[one.name], scheme(name))
        for one in matrices(open_graph(source))
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=with_newer_onnxruntime if scheme(name).calibrated else ()) for name in SCHEMES]
)
def test_rewritten_graph_computes_with_the_weights_that_were_made(name: str, source: Path, tmp_path: Path) -> None:
    chosen = scheme(name)
    found = measured(source, name) if chosen.calibrated else None
    report = rewrite_files([source], tmp_path / "new", "small.weights", chosen, keep_table, found)
    assert data_files(tmp_path / "new" / "small.onnx") == ["small.weights"]
    true = dict(WEIGHTS)
    for one in matrices(open_graph(source)):
        key = "val_9" if one.name == "head.output.weight" else one.name
        made = quantize_matrix(read_weight(one), chosen).weight
        true[key] = made.T.copy() if one.inputs_first else made
    # Where activations are rounded too, only the order of the error is known.
    most = 0.06 if chosen.calibrated else 1e-3
    for found_output, expected in zip(
        run(tmp_path / "new" / "small.onnx"), run(write(tmp_path / "true.onnx", true)), strict=True
    ):
        assert relative_error(found_output, expected) < most
    everything = {"first.weight", "second.weight", "head.output.weight"}
    changed = {"fp16": set(), "bf16": {*everything, "table"}}.get(name, everything)
    assert report.errors.keys() == changed


def test_a_part_is_not_rewritten_over_its_own_weights(source: Path) -> None:
    with pytest.raises(BundleError, match="same folder"):
        rewrite_files([source], source.parent, "new.weights", scheme("int4-qdq"), keep_table)


def test_activations_that_were_not_measured_are_asked_for(source: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"needs the activation range.*calibrate"):
        rewrite_files([source], tmp_path, "small.weights", scheme("w8a8"), keep_table)
    assert list(tmp_path.iterdir()) == [], "nothing half-written is left"


@with_newer_onnxruntime
def test_smoothed_graph_is_nearer_on_outliers(source: Path, tmp_path: Path) -> None:
    found = measured(source, "w8a8", SPIKED)
    plain = {name: Ranges((max(run.scales),)) for name, run in measured(source, "w8a8", X * 30).items()}
    errors = []
    for number, by in enumerate((found, plain)):
        rewrite_files([source], tmp_path / str(number), "small.weights", scheme("w8a8"), keep_table, by)
        errors.append(relative_error(run(tmp_path / str(number) / "small.onnx", SPIKED)[0], run(source, SPIKED)[0]))
    assert errors[0] < errors[1]


# Of normal weights, in blocks of 64 or a scale a channel of 256; a tenth above what was measured.
MOST_ERROR = {
    "fp16": 3e-4,
    "bf16": 2e-3,
    "int8-qdq": 0.008,
    "int4-qdq": 0.110,
    "fp8": 0.030,
    "w8a8": 0.008,
}


def normal(outputs: int, inputs: int, seed: int = 0) -> blocks.Array:
    return np.random.default_rng(seed).standard_normal((outputs, inputs), np.float32) * np.float32(0.02)


def test_error_of_normal_weights_is_what_the_scheme_promises() -> None:
    weight = normal(48, 256)
    for name in SCHEMES:
        made = quantize_matrix(weight, scheme(name))
        assert made.weight.shape == weight.shape
        assert 0 < relative_error(made.weight, weight) < MOST_ERROR[name], name


@pytest.mark.parametrize(
    ("weight", "name", "said"),
    [
        (np.full((2, 64), 7e4, np.float32), "fp16", "overflows fp16.*bf16"),
        (np.full((2, 64), np.nan, np.float32), "int4-qdq", "NaN"),
        (normal(2, 80), "int4-qdq", "not a multiple of the block size 64"),
    ],
)
def test_weight_that_a_scheme_cannot_hold_is_refused(weight: blocks.Array, name: str, said: str) -> None:
    with pytest.raises(BundleError, match=said):
        quantize_matrix(weight, scheme(name))
