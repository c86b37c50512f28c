"""Rewrites ONNX files with external data to another precision, with a few weights in memory at a time."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from animegamer_export.evaluate.metrics import relative_error
from animegamer_export.onnx_io.data_file import INLINE_BYTES, DataFile
from animegamer_export.onnx_io.read import open_graph
from animegamer_export.quantize.blocks import Array, Quantized, quantize_matrix
from animegamer_export.quantize.graph import FLOATS, Matrix, matrices
from animegamer_export.quantize.nodes import Ranges, convert
from animegamer_export.quantize.scheme import Scheme
from animegamer_rt.bundle.files import write_file
from animegamer_rt.errors import BundleError

Exclude = Callable[[str], bool]
TABLE_NAMES = re.compile(r"positions")
"""Position tables are not learned; they stay float32 in every precision."""
THREADS = 2
"""Weights quantised concurrently, besides the one being written. Each takes some 2 GB at full size."""


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """Result of a rewrite: relative error of each quantised weight, names of the others, bytes of graphs and data."""

    scheme: str
    errors: Mapping[str, float]
    kept: tuple[str, ...]
    bytes_before: int
    bytes_after: int

    @property
    def mean_error(self) -> float:
        """Mean relative error of the quantised weights; 0 if there are none."""
        return float(np.mean(list(self.errors.values()))) if self.errors else 0.0


def rewrite_files(
    sources: Sequence[Path],
    folder: Path,
    weights: str,
    scheme: Scheme,
    exclude: Exclude,
    ranges: Mapping[str, Ranges] | None = None,
    written: Callable[[int], None] = lambda _: None,
) -> RewriteReport:
    """Rewrites graphs that share weights to another folder, with one new data file. The sources are not changed.

    exclude: whether a weight (by its `graph.matrices` name) stays as it is; ignored for fp16 and bf16. ranges: by
    matrix name, required if `scheme.calibrated`. written: called with the bytes of each tensor. Each file appears only
    when complete, the data file first. Raises BundleError for an unreadable source and for missing ranges.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sources = [source.resolve() for source in sources]
    targets = [folder / source.name for source in sources]
    taken = set(sources) | {(source.parent / place).resolve() for source in sources for place in data_files(source)}
    if taken & {path.resolve() for path in (*targets, folder / weights)}:
        raise BundleError("source and target are the same folder", where=folder, do="choose another folder")
    errors: dict[str, float] = {}
    kept: dict[str, None] = {}
    partial = folder / f"{weights}.part"
    try:
        with partial.open("wb") as file:
            work = _Rewriter(scheme, exclude, ranges, DataFile(file, weights, written), errors, kept)
            models = [work.rewritten(source) for source in sources]
        os.replace(partial, folder / weights)
    finally:
        partial.unlink(missing_ok=True)
    for model, target in zip(models, targets, strict=True):
        write_file(target, ir.to_proto(model).SerializeToString())
    after = sum(path.stat().st_size for path in (*targets, folder / weights))
    before = sum(path.stat().st_size for path in taken)
    return RewriteReport(scheme.name, errors, tuple(kept), before, after)


def expected_bytes(sources: Sequence[Path], scheme: Scheme, exclude: Exclude) -> int:
    """An upper estimate of the bytes written by `rewrite_files`."""
    files = {place for source in sources for place in (source, *(source.parent / name for name in data_files(source)))}
    total = sum(path.stat().st_size for path in files)
    if scheme.form == "stored":
        return total
    found = {matrix.name: matrix for source in sources for matrix in matrices(open_graph(source))}
    for matrix in found.values():
        stored = matrix.weight.const_value
        if stored is not None and not exclude(matrix.name):
            total -= max(0, int(stored.nbytes - stored.size * scheme.bytes_a_weight))
    return total


def data_files(source: Path) -> list[str]:
    """Names of a graph's data files."""
    tensors = [value.const_value for value in open_graph(source).graph.initializers.values()]
    return sorted({str(tensor.location) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)})


def read_weight(matrix: Matrix) -> Array:
    """A matrix float32 [outputs, inputs], read from disk."""
    tensor = matrix.weight.const_value
    assert tensor is not None
    stored = tensor.numpy().astype(np.float32)
    if isinstance(tensor, ir.ExternalTensor):
        tensor.release()  # A mapping would keep every page read in memory.
    return np.ascontiguousarray(stored.T) if matrix.inputs_first else stored


@dataclass(frozen=True, slots=True)
class _Rewriter:
    scheme: Scheme
    exclude: Exclude
    ranges: Mapping[str, Ranges] | None
    data: DataFile
    errors: dict[str, float]
    kept: dict[str, None]

    def rewritten(self, source: Path) -> ir.Model:
        model = open_graph(source)
        found = matrices(model)
        if self.scheme.form == "stored":
            self.store(model, {matrix.weight: matrix.name for matrix in found})
        else:
            excluded = {matrix.name: None for matrix in found if self.exclude(matrix.name)}
            self.kept.update(excluded)
            wanted = [matrix for matrix in found if matrix.name not in excluded]
            for matrix, (made, error) in zip(wanted, self.quantized(wanted, source), strict=True):
                self.errors[matrix.name] = error
                convert(model.graph, matrix, made, self.scheme, self.data, self.range_of(matrix))
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            if tensor is not None and not _is_in(tensor, self.data):
                value.const_value = self.data.store(tensor, name)
        return model

    def quantized(self, wanted: Sequence[Matrix], source: Path) -> Iterator[tuple[Quantized, float]]:
        """Each matrix's codes and relative error, in order; other threads compute the next ones."""
        with ThreadPoolExecutor(THREADS) as pool:
            begun: deque[Future[tuple[Quantized, float]]] = deque()
            for matrix in wanted:
                begun.append(pool.submit(self.quantize, matrix, source))
                if len(begun) > THREADS:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()

    def quantize(self, matrix: Matrix, source: Path) -> tuple[Quantized, float]:
        found = self.range_of(matrix)
        if found is None and self.scheme.calibrated:
            raise BundleError(
                f"{self.scheme.name} needs the activation range of {matrix.name}", where=source, do="calibrate first"
            )
        weight = read_weight(matrix)
        factors = None if found is None else found.factors
        made = quantize_matrix(weight if factors is None else weight * factors, self.scheme)
        return made, relative_error(made.weight if factors is None else made.weight / factors, weight)

    def range_of(self, matrix: Matrix) -> Ranges | None:
        return (self.ranges or {}).get(matrix.name) if self.scheme.calibrated else None

    def store(self, model: ir.Model, names: Mapping[ir.Value, str]) -> None:
        """Casts all weights larger than a vector, including convolutions and embeddings."""
        wanted = ir.DataType.FLOAT16 if self.scheme.code == "fp16" else ir.DataType.BFLOAT16
        for stored, value in list(model.graph.initializers.items()):
            tensor = value.const_value
            if tensor is None or tensor.dtype not in FLOATS or tensor.dtype == wanted or tensor.nbytes < INLINE_BYTES:
                continue
            shape = tuple(tensor.shape.numpy())
            # Rotary frequencies are vectors with an axis of one; at 16 bits, late positions would be off by a radian.
            if sum(length > 1 for length in shape) < 2:
                continue
            name = names.get(value, stored.removesuffix(".fp16"))
            if TABLE_NAMES.search(name):
                self.kept[name] = None
                continue
            (node, _), *others = value.uses()
            read = node.outputs[0] if node.op_type == "Cast" and not others else value
            weight = tensor.numpy().astype(np.float32)
            made = quantize_matrix(weight, self.scheme)
            self.errors[name] = relative_error(made.weight, weight)
            convert(model.graph, Matrix(name, value, read, (), inputs_first=False), made, self.scheme, self.data)


def _is_in(tensor: ir.TensorProtocol, data: DataFile) -> bool:
    return isinstance(tensor, ir.ExternalTensor) and tensor.location == data.name and not tensor.base_dir
