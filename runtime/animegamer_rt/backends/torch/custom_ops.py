"""Our kernels as PyTorch operators, so that dispatch modes can hold them.

Each operator takes the path of the kernels' library, then the arguments of the function of `animegamer_kernels` with
its name, and writes into tensors that it is given. `kernels` has the calls that allocate them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

import animegamer_kernels as operators
from animegamer_kernels.library import Library, open_library
from animegamer_rt.backends.cuda_errors import as_backend_error

OPERATORS = cast(Any, torch.ops.animegamer_rt)
_DEFINED = torch.library.Library("animegamer_rt", "DEF")
_NORM = (
    "Tensor weight, Tensor bias, float epsilon, Tensor? shot, Tensor? image, int shot_tokens, "
    "Tensor(b!) out, Tensor(c!)? scales"
)
_SCHEMAS = (
    f"norm_modulate(Tensor x, {_NORM})",
    f"gate_residual(Tensor(a!) x, Tensor branch, Tensor shot_gate, Tensor image_gate, {_NORM})",
    "epilogue(Tensor x, Tensor? row_scales, Tensor? column_scales, Tensor? bias, bool gelu, Tensor(a!) out, "
    "Tensor(b!)? scales)",
    "unpack(Tensor codes, Tensor scales, bool four_bits, Tensor(a!) out)",
    "packed_product(Tensor x, Tensor codes, Tensor scales, bool four_bits, Tensor(a!) out)",
    "head_norm(Tensor(a!) qkv, Tensor query_weight, Tensor query_bias, Tensor key_weight, Tensor key_bias, "
    "float epsilon)",
    "attention(Tensor qkv, Tensor(a!) out)",
    "guided_step(Tensor patches, Tensor(a!) latent, Tensor(b!) x0, Tensor(c!) difference, Tensor noise, "
    "Tensor coefficients)",
    "noise(Tensor turn, Tensor table, int first, float[] weights, Tensor(a!) out)",
    "spatial_norm(Tensor x, Tensor scale, Tensor shift, Tensor weight, Tensor bias, Tensor? x_bias, int groups, "
    "float epsilon, Tensor(a!) workspace, Tensor(b!) out)",
    "pixels(Tensor rgb, int[] order, bool flip, Tensor(a!) out)",
)


@cache
def opened(path: str) -> Library:
    """The library of this path."""
    return open_library(Path(path))


def _define(schema: str) -> None:
    """Registers the operator of a schema. It writes to the arguments marked (a!) and returns nothing."""
    name, _, arguments = schema.partition("(")
    operator: Callable[..., None] = getattr(operators, name)

    @as_backend_error()
    def call(library: str, first: Tensor, *given: Any) -> None:
        stream = torch.cuda.current_stream(first.device).cuda_stream if first.is_cuda else 0
        operator(opened(library), first, *given, stream=stream)

    _DEFINED.define(f"{name}(str library, {arguments} -> ()")
    # One function for every device, without gradients: the library checks where the tensors are.
    _DEFINED.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"animegamer_rt::{name}", lambda *given: None, lib=_DEFINED)


for _schema in _SCHEMAS:
    _define(_schema)
