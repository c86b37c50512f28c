"""Writes a part tensor by tensor: each weight is made, rounded, written and freed before the next.

Weights of two or more axes are stored in the requested dtype, with a Cast to float32 in the graph; biases, norms and
tables stay float32. The result equals that of `onnx_io.write`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import onnx_ir as ir
import torch
from onnx_ir.passes.common import InlinePass
from torch import Tensor, nn

from animegamer_export.onnx_io.data_file import INLINE_BYTES, MADE_FROM
from animegamer_export.onnx_io.write import store_as, store_fp16, trace, write_models
from animegamer_rt.bundle.manifest import Part
from animegamer_rt.errors import CheckpointError

from .parts import StreamedPart

STORED: Mapping[str, torch.dtype] = MappingProxyType(
    {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
)
"""Precisions that only change the dtype; others are quantised from these files."""

TRANSPOSED = ".transposed"
_ONNX_TYPE: Mapping[torch.dtype, ir.DataType] = MappingProxyType(
    {torch.float32: ir.DataType.FLOAT, torch.float16: ir.DataType.FLOAT16, torch.bfloat16: ir.DataType.BFLOAT16}
)


def write_streamed(
    folder: Path, part: StreamedPart, precision: str, written: Callable[[int], None] = lambda _: None
) -> dict[str, Part]:
    """Writes `<name>.onnx` of each graph and their shared data file.

    written: called with the bytes of each weight. Peak memory is a few times the largest weight.
    """

    def models() -> Iterator[tuple[str, ir.Model]]:
        for graph in part.graphs:
            later = _LazyWeights(part, graph.module, STORED[precision])
            with torch.no_grad():
                model = trace(graph, later.attach)
            later.round(model)
            yield graph.name, model

    return write_models(folder, models(), part.weights_file, precision, written)


@dataclass(frozen=True, slots=True)
class _WeightRule:
    """How a stored weight is made: the module's weight, whether it is transposed, and the dtype it is rounded to."""

    name: str
    transposed: bool
    rounded_to: torch.dtype

    def tensor(self, part: StreamedPart) -> Tensor:
        """The rounded value. Raises CheckpointError if the dtype cannot represent it."""
        exact = part.value(self.name).detach()
        _require_finite(exact, self.rounded_to, f"{part.graphs[0].name}, {self.name}")
        value = exact.to(self.rounded_to)
        return (value.t() if self.transposed else value).contiguous()

    def later(self, part: StreamedPart, shape: Sequence[int], dtype: torch.dtype) -> ir.LazyTensor:
        """A tensor computed whenever its bytes are read."""

        def make() -> ir.TensorProtocol:
            tensor = self.tensor(part).to(dtype)
            assert tensor.shape == tuple(shape), f"{self.name}: made {tuple(tensor.shape)}, wanted {tuple(shape)}"
            if dtype == torch.bfloat16:
                bits = tensor.view(torch.uint16).numpy()
                return ir.Tensor(bits.view(ir.DataType.BFLOAT16.numpy()), dtype=ir.DataType.BFLOAT16)
            return ir.tensor(tensor.numpy())

        return ir.LazyTensor(make, _ONNX_TYPE[dtype], ir.Shape(shape), metadata_props={MADE_FROM: str(self)})


@dataclass(frozen=True, slots=True)
class _LazyWeights:
    """Replaces the placeholder weights of one graph by lazy tensors; `made`: rules by the key of each tensor."""

    part: StreamedPart
    module: nn.Module
    dtype: torch.dtype
    made: dict[str, _WeightRule] = field(default_factory=dict)

    def attach(self, model: ir.Model) -> None:
        """Replaces every placeholder parameter and buffer in the model by a lazy tensor.

        A matrix that is only read transposed is stored transposed; otherwise constant folding would compute each such
        matrix and keep it in memory.
        """
        InlinePass()(model)
        held = _module_tensors(self.module)
        for name, value in list(model.graph.initializers.items()):
            if name not in held:
                continue
            transposed = _only_transposed(value)
            made = _WeightRule(name, transposed, _stored_dtype(self.part, name, held[name], self.dtype))
            self.made[str(made)] = made
            shape = tuple(held[name].shape)
            if not transposed:
                value.const_value = made.later(self.part, shape, torch.float32)
                continue
            turned = ir.Value(
                name=name + TRANSPOSED,
                shape=ir.Shape(shape[::-1]),
                type=ir.TensorType(ir.DataType.FLOAT),
                const_value=made.later(self.part, shape[::-1], torch.float32),
            )
            model.graph.register_initializer(turned)
            for node in [usage.node for usage in value.uses()]:
                ir.convenience.replace_all_uses_with(node.outputs[0], turned)
                model.graph.remove(node, safe=True)
            del model.graph.initializers[name]

    def round(self, model: ir.Model) -> None:
        """Stores rounded weights in their dtype, followed by a Cast to float32."""
        if self.dtype == torch.float32:
            return
        suffix = next(name for name, dtype in STORED.items() if dtype == self.dtype)
        for name, value in list(model.graph.initializers.items()):
            tensor = value.const_value
            if tensor is None or tensor.nbytes < INLINE_BYTES:
                continue
            made = self.made.get(tensor.metadata_props.get(MADE_FROM, ""))
            if made is not None and made.rounded_to == self.dtype:
                stored = made.later(self.part, tensor.shape.numpy(), self.dtype)
                store_as(model, value, f"{name}.{suffix}", stored)
        if self.dtype == torch.float16:
            # Small weights and constants created by folding.
            store_fp16(model)


def _require_finite(value: Tensor, dtype: torch.dtype, where: str) -> None:
    largest = max(abs(float(end)) for end in torch.aminmax(value))
    if not largest < math.inf:
        raise CheckpointError(
            "a weight is not finite", where=where, do="use an earlier checkpoint, or the published one"
        )
    if largest > torch.finfo(dtype).max:
        name = next(name for name, stored in STORED.items() if stored == dtype)
        part = where.partition(",")[0].partition("_first")[0]
        raise CheckpointError(f"{largest:.4g} overflows {name}", where=where, do=f"use --precision {part}=bf16")


def _module_tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))


def _stored_dtype(part: StreamedPart, name: str, like: Tensor, dtype: torch.dtype) -> torch.dtype:
    """Weights of two axes and more are rounded, except the part's exact tables."""
    return dtype if like.ndim >= 2 and not name.endswith(part.exact or "\0") else torch.float32


def _only_transposed(value: ir.Value) -> bool:
    nodes = [usage.node for usage in value.uses()]
    return (
        bool(nodes)
        and value.shape is not None
        and len(value.shape) == 2
        and all(
            node.op_type == "Transpose" and list(node.attributes.get_ints("perm", [1, 0])) == [1, 0] for node in nodes
        )
    )
