"""Our kernels as PyTorch operators, so that CUDA graphs, dispatch modes and torch.compile can hold them.

Operators take the path of the kernels' library, and write into tensors that they are given. `kernels` has the calls
that allocate them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

import animegamer_kernels as operators
from animegamer_kernels.library import Library, open_library
from animegamer_rt.backends.cuda_errors import as_backend_error

Call = TypeVar("Call", bound=Callable[..., None])

QUERY_GROUP, KEY_GROUP = 32, 64
"""Tokens that share a scale in 8-bit attention. Source: docs/LOG.md, "8-bit attention"."""


@cache
def _library(path: str) -> Library:
    return open_library(Path(path))


def _stream(x: Tensor) -> int:
    """The handle of PyTorch's current stream; 0 on the CPU."""
    return int(torch.cuda.current_stream(x.device).cuda_stream) if x.is_cuda else 0


_DEFINED = torch.library.Library("animegamer_rt", "DEF")
OPERATORS = cast(Any, torch.ops.animegamer_rt)
_NORM = "Tensor weight, Tensor bias, float epsilon, Tensor? shot, Tensor? image, int shot_tokens"


def _operator(schema: str) -> Callable[[Call], Call]:
    """Registers a function as a PyTorch operator. It writes to the arguments marked (a!) and returns nothing."""

    def define(call: Call) -> Call:
        name = schema.partition("(")[0]
        _DEFINED.define(schema)
        # One function for every device, without gradients: the library checks where the tensors are.
        _DEFINED.impl(name, as_backend_error()(call), "CompositeExplicitAutograd")
        torch.library.register_fake(f"animegamer_rt::{name}", lambda *given: None, lib=_DEFINED)
        return call

    return define


@_operator(f"norm_modulate(str library, Tensor x, {_NORM}, Tensor(a!) out, Tensor(b!)? scales) -> ()")
def _norm_modulate(library: str, x: Tensor, *norm: Any) -> None:
    normed, shot_tokens = _norm(*norm)
    operators.norm_modulate(_library(library), x, normed, shot_tokens, _stream(x))


@_operator(
    "gate_residual(str library, Tensor(a!) x, Tensor branch, Tensor shot_gate, Tensor image_gate, "
    f"{_NORM}, Tensor(b!) out, Tensor(c!)? scales) -> ()"
)
def _gate_residual(library: str, x: Tensor, branch: Tensor, shot_gate: Tensor, image_gate: Tensor, *norm: Any) -> None:
    normed, shot_tokens = _norm(*norm)
    operators.gate_residual(_library(library), x, branch, image_gate, shot_gate, x, shot_tokens, normed, _stream(x))


def _norm(
    weight: Tensor,
    bias: Tensor,
    epsilon: float,
    shot: Tensor | None,
    image: Tensor | None,
    shot_tokens: int,
    out: Tensor,
    scales: Tensor | None,
) -> tuple[operators.Norm, int]:
    shot_shift, shot_scale = (None, None) if shot is None else shot.unbind(0)
    image_shift, image_scale = (None, None) if image is None else image.unbind(0)
    modulation = image_shift, image_scale, shot_shift, shot_scale
    return operators.Norm(out, epsilon, scales, weight, bias, *modulation), shot_tokens


@_operator("epilogue(str library, Tensor x, bool gelu, Tensor(a!) out, Tensor(b!)? scales) -> ()")
def _epilogue(library: str, x: Tensor, gelu: bool, out: Tensor, scales: Tensor | None) -> None:
    operators.epilogue(_library(library), *_flat(x, out, scales), gelu=gelu, stream=_stream(x))


@_operator(
    "epilogue_of_sums(str library, Tensor x, Tensor row_scales, Tensor column_scales, Tensor bias, bool gelu, "
    "Tensor(a!) out, Tensor(b!)? scales) -> ()"
)
def _epilogue_of_sums(
    library: str,
    x: Tensor,
    row_scales: Tensor,
    column_scales: Tensor,
    bias: Tensor,
    gelu: bool,
    out: Tensor,
    scales: Tensor | None,
) -> None:
    sums = operators.Int32Sums(row_scales.flatten(), column_scales, bias)
    operators.epilogue(_library(library), *_flat(x, out, scales), sums, gelu, _stream(x))


def _flat(x: Tensor, out: Tensor, scales: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The rows of all batch entries as one axis."""
    return x.flatten(0, 1), out.flatten(0, 1), None if scales is None else scales.flatten()


@_operator("unpack(str library, Tensor codes, Tensor scales, bool four_bits, Tensor(a!) out) -> ()")
def _unpack(library: str, codes: Tensor, scales: Tensor, four_bits: bool, out: Tensor) -> None:
    operators.unpack(_library(library), _packed(codes, scales, four_bits), out, _stream(out))


@_operator("packed_product(str library, Tensor x, Tensor codes, Tensor scales, bool four_bits, Tensor(a!) out) -> ()")
def _packed_product(library: str, x: Tensor, codes: Tensor, scales: Tensor, four_bits: bool, out: Tensor) -> None:
    operators.packed_product(_library(library), _packed(codes, scales, four_bits), x, out, _stream(x))


def _packed(codes: Tensor, scales: Tensor, four_bits: bool) -> operators.Packed:
    return operators.Packed(codes, scales.squeeze(2), 4 if four_bits else 8)


@_operator(
    "head_norm(str library, Tensor(a!) qkv, Tensor query_weight, Tensor query_bias, Tensor key_weight, "
    "Tensor key_bias, float epsilon) -> ()"
)
def _head_norm(library: str, qkv: Tensor, *norms: Any) -> None:
    query, key, _ = qkv.unbind(2)
    operators.head_norm(_library(library), operators.Heads(qkv, *norms), query, key, None, _stream(qkv))


@_operator(
    "attention_int8(str library, Tensor qkv, Tensor query_weight, Tensor query_bias, Tensor key_weight, "
    "Tensor key_bias, float epsilon, int mma, Tensor(a!) out) -> ()"
)
def _attention_int8(library: str, qkv: Tensor, *given: Any) -> None:
    opened, (*norms, mma, out) = _library(library), given
    heads, groups, stream = operators.Heads(qkv, *norms), (QUERY_GROUP, KEY_GROUP), _stream(qkv)
    batch, tokens, _, count, width = qkv.shape
    codes = qkv.new_empty((2, batch, count, tokens, width), dtype=torch.int8)
    query_scales, key_scales = (
        qkv.new_empty((batch, count, -(-tokens // group)), dtype=torch.float32) for group in groups
    )
    mean = qkv.new_empty((batch, count, width), dtype=torch.float32)
    workspace = qkv.new_empty(operators.int8_workspace(opened, heads), dtype=torch.uint8)
    rounded = operators.Int8Outputs(codes[0], codes[1], query_scales, key_scales, mean, workspace)
    operators.head_norm_int8(opened, heads, rounded, *groups, stream)
    operators.attention_int8(opened, rounded, qkv[:, :, 2], out, *groups, operators.MmaKind(mma), stream)


@_operator("attention(str library, Tensor qkv, Tensor(a!) out) -> ()")
def _attention(library: str, qkv: Tensor, out: Tensor) -> None:
    query, key, value = qkv.unbind(2)
    operators.attention(_library(library), query, key, value, out, _stream(qkv))


@_operator(
    "guided_step(str library, Tensor patches, Tensor(a!) latent, Tensor(b!) x0, Tensor(c!) difference, "
    "Tensor noise, Tensor coefficients) -> ()"
)
def _guided_step(
    library: str, patches: Tensor, latent: Tensor, x0: Tensor, difference: Tensor, noise: Tensor, coefficients: Tensor
) -> None:
    out = operators.StepOutputs(latent, x0, difference)
    given = patches, latent, x0, noise, difference, coefficients
    operators.guided_step(_library(library), *given, out, _stream(latent))


@_operator("noise(str library, Tensor turn, Tensor table, int first, float[] weights, Tensor(a!) out) -> ()")
def _noise(library: str, turn: Tensor, table: Tensor, first: int, weights: list[float], out: Tensor) -> None:
    operators.noise(_library(library), turn, table, first, weights, out, _stream(out))


@_operator(
    "spatial_norm(str library, Tensor x, Tensor scale, Tensor shift, Tensor weight, Tensor bias, Tensor(a!) out, "
    "int groups, float epsilon, Tensor? x_bias) -> ()"
)
def _spatial_norm(library: str, x: Tensor, *given: Any) -> None:
    opened, norm = _library(library), operators.SpatialNorm(x, *given)
    # Allocated by PyTorch, so that a graph keeps it alive.
    workspace = torch.empty(operators.spatial_norm_workspace(opened, norm), dtype=torch.uint8, device=x.device)
    operators.spatial_norm(opened, replace(norm, workspace=workspace), _stream(x))


@_operator("pixels(str library, Tensor rgb, int[] order, bool flip, Tensor(a!) out) -> ()")
def _pixels(library: str, rgb: Tensor, order: list[int], flip: bool, out: Tensor) -> None:
    operators.pixels(_library(library), rgb, out, order, flip, True, _stream(rgb))
