"""Our kernels as PyTorch operators, so that CUDA graphs, dispatch modes and torch.compile can hold them.

`open_kernels` finds their library and decides whether to use it. Tensors on a GPU go to the kernels, on the current
stream, into memory that PyTorch allocates; tensors on the CPU go to the reference implementations, which are slow and
for tests. It knows no network. **No GPU has run the kernels yet.** See docs/KERNELS.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

import animegamer_kernels as operators
from animegamer_kernels import KernelError
from animegamer_kernels.library import Library, find_library, open_library
from animegamer_rt.errors import BackendError

from .rowwise_linear import MAX_VALUE

log = logging.getLogger(__name__)
Call = TypeVar("Call", bound=Callable[..., None])

KernelChoice = bool | Path | None
"""False: plain PyTorch. True or a library's file: the kernels, or an error. None: the kernels where a GPU has them."""


class Normed(NamedTuple):
    """The input of a matrix product: rows [B, S, D], and for FP8 and INT8 scales f32 [B, S]; value = rows * scales."""

    rows: Tensor
    scales: Tensor | None = None


class Modulation(NamedTuple):
    """Shift and scale, f32 [2, D], for shot tokens and for image tokens; None for a kind that has no tokens."""

    shot: Tensor | None
    image: Tensor | None


QUERY_GROUP, KEY_GROUP = 32, 64
"""Tokens that share a scale in 8-bit attention. Source: docs/LOG.md, "8-bit attention"."""

GEFORCE = ((8, 6), (8, 9), (12, 0), (12, 1))
"""Compute capabilities of RTX 30, 40, 50 and of GB10: 16-bit products with float32 sums run at half the rate of float16
sums. Workstation GPUs share some of these capabilities without that limit; there float16 sums cost one conversion."""

HOPPER = (9, 0)
"""The compute capability of H100 and H200, the only one with warpgroup instructions."""

PLAIN = Modulation(None, None)
"""No shift and no scale."""


class RowNorm(NamedTuple):
    """A LayerNorm as the kernels take it: weight and bias f32 [D]."""

    weight: Tensor
    bias: Tensor
    epsilon: float

    @classmethod
    def of(cls, layer: nn.LayerNorm) -> RowNorm:
        """Converts a layer's weight and bias to float32."""
        return cls(_float32(layer.weight), _float32(layer.bias), layer.eps)


@dataclass(frozen=True, slots=True)
class Kernels:
    """The operators of one library, by the path of its file. None of them waits for the device.

    Each raises BackendError with the library's message for shapes and dtypes that it does not support.
    """

    library: str

    def norm_modulate(
        self, x: Tensor, norm: RowNorm, modulation: Modulation, shot_tokens: int, out: torch.dtype
    ) -> Normed:
        """LayerNorm of x [B, S, D], then x (1 + scale) + shift by the kind of token, in the dtype `out`."""
        normed = _allocate_rows(x, out)
        _OPERATORS.norm_modulate(self.library, x, *norm, *modulation, shot_tokens, *normed)
        return normed

    def gate_residual(
        self,
        x: Tensor,
        branch: Tensor,
        gates: tuple[Tensor, Tensor],
        norm: RowNorm,
        modulation: Modulation,
        shot_tokens: int,
        out: torch.dtype,
    ) -> Normed:
        """x += branch * gate in place, x and branch [B, S, D]; then as `norm_modulate`. gates f32 [D]: shot, image."""
        normed = _allocate_rows(x, out)
        _OPERATORS.gate_residual(self.library, x, branch, *gates, *norm, *modulation, shot_tokens, *normed)
        return normed

    def epilogue(self, x: Tensor, out: torch.dtype, gelu: bool = False) -> Normed:
        """Rounds a product's output x [B, S, D] to FP8 or INT8, through GELU if `gelu`."""
        normed = _allocate_rows(x, out)
        _OPERATORS.epilogue(self.library, x, gelu, *normed)
        return normed

    def epilogue_of_sums(
        self, sums: Tensor, factors: tuple[Tensor, Tensor, Tensor], out: torch.dtype, gelu: bool = False
    ) -> Normed:
        """sums * row scale * column scale + bias for an INT8 product's sums i32 [B, S, D], through GELU if `gelu`.

        factors: row scales f32 [B, S], column scales and bias f32 [D]. out: FP8, INT8 or an activation dtype.
        """
        normed = _allocate_rows(sums, out)
        _OPERATORS.epilogue_of_sums(self.library, sums, *factors, gelu, *normed)
        return normed

    def unpack(self, codes: Tensor, scales: Tensor, four_bits: bool, out: torch.dtype) -> Tensor:
        """Dequantises a packed weight: codes and scales as in PackedLinear -> [N, K] in the dtype `out`."""
        width = codes.shape[1] * codes.shape[2] * (2 if four_bits else 1)
        weight = codes.new_empty((len(codes), width), dtype=out)
        _OPERATORS.unpack(self.library, codes, scales, four_bits, weight)
        return weight

    def packed_product(self, x: Tensor, codes: Tensor, scales: Tensor, four_bits: bool) -> Tensor:
        """x [R, K] times the transpose of a packed weight -> [R, N]; R is at most FEW_ROWS."""
        out = x.new_empty((len(x), len(codes)))
        _OPERATORS.packed_product(self.library, x, codes, scales, four_bits, out)
        return out

    def head_norm(self, qkv: Tensor, query: RowNorm, key: RowNorm) -> None:
        """LayerNorm of each head of queries and keys in place, qkv [B, S, 3, heads, d]."""
        _OPERATORS.head_norm(self.library, qkv, query.weight, query.bias, key.weight, key.bias, query.epsilon)

    def attention_int8(self, qkv: Tensor, query: RowNorm, key: RowNorm, mma: operators.MmaKind | None = None) -> Tensor:
        """Head norms, then attention over all tokens with INT8 scores.

        qkv f16 or bf16 [B, S, 3, heads, 64], not yet normalised -> [B, S, heads, 64]. mma: None chooses instructions
        that every GPU has; those of warpgroups are for `has_warpgroups` devices.
        """
        out = torch.empty_like(qkv[:, :, 2], memory_format=torch.contiguous_format)
        norms = query.weight, query.bias, key.weight, key.bias, query.epsilon
        _OPERATORS.attention_int8(self.library, qkv, *norms, int(_mma_kind(qkv.device) if mma is None else mma), out)
        return out

    def attention(self, qkv: Tensor) -> Tensor:
        """Attention over all tokens of normalised heads, f16 or bf16 [B, S, 3, heads, 64] -> [B, S, heads, 64].

        For `has_warpgroups` devices.
        """
        out = torch.empty_like(qkv[:, :, 2], memory_format=torch.contiguous_format)
        _OPERATORS.attention(self.library, qkv, out)
        return out

    def guided_step(self, patches: Tensor, state: Sequence[Tensor], noise: Tensor, coefficients: Tensor) -> None:
        """Guidance and solver from patches [B, P, 4 C] of v; updates latent, x0 and difference f32 [1, F, C, h, w]."""
        _OPERATORS.guided_step(self.library, patches.contiguous(), *state, noise, coefficients)

    def spatial_norm(
        self,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        norm: nn.GroupNorm,
        out: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """silu(group norm(x + bias) * scale + shift) into `out`; x [T, H, W, C], scale and shift [t, h, w, C]."""
        assert norm.weight is not None and norm.bias is not None
        out = torch.empty_like(x) if out is None else out
        weights = _float32(norm.weight), _float32(norm.bias)
        _OPERATORS.spatial_norm(self.library, x, scale, shift, *weights, out, norm.num_groups, norm.eps, bias)
        return out

    def pixels(self, rgb: Tensor, order: Sequence[int], flip: bool) -> Tensor:
        """rgb [T, H, W, 3] in about -1..1 -> u8 [T, H, W, len(order)]; order and flip as in interface.VaeEngine."""
        out = torch.empty((*rgb.shape[:3], len(order)), dtype=torch.uint8, device=rgb.device)
        _OPERATORS.pixels(self.library, rgb, list(order), flip, out)
        return out


def open_kernels(choice: KernelChoice, device: torch.device) -> tuple[Kernels | None, str]:
    """The kernels, or None for plain PyTorch, and a description of which.

    Raises BackendError where `choice` or ANIMEGAMER_KERNELS requires them and they are missing or do not run here.
    """
    on_gpu = device.type == "cuda"
    if choice is False or (choice is None and not on_gpu):
        return None, "plain operators"
    path = choice if isinstance(choice, Path) else find_library()
    if choice is None and path is None:
        return None, "plain operators, as no kernels were built or they are off"
    with _as_backend_error():
        library = open_library(path)
    if on_gpu and not library.has_cuda:
        raise BackendError(
            "the kernels' library was built without CUDA",
            where=library.path,
            do="build it where nvcc is installed (make kernels), or turn it off: ANIMEGAMER_KERNELS=off",
        )
    if on_gpu and not library.runs_here:
        if choice is None:
            instead = f"plain operators, as {library.path.name} was built for other GPUs or a newer driver"
            log.warning("%s; build it here: make kernels", instead)
            return None, instead
        raise BackendError(
            "the kernels do not run on this GPU: they were built for other GPUs or for a newer driver",
            where=library.path,
            do="build them here (make kernels), or turn them off: ANIMEGAMER_KERNELS=off",
        )
    kernels = Kernels(str(library.path))
    return kernels, f"{'kernels' if on_gpu else 'references'} of {library.path.name}"


@contextmanager
def _as_backend_error() -> Iterator[None]:
    """Raises a KernelError of the block or function as a BackendError with the same text."""
    try:
        yield
    except KernelError as error:
        raise BackendError(
            error.what, where=error.where, found=error.found, expected=error.expected, do=error.do
        ) from error


def _allocate_rows(x: Tensor, out: torch.dtype) -> Normed:
    """Uninitialised rows of x's shape in the dtype `out`, with scales where the dtype needs them."""
    quantised = out in MAX_VALUE
    scales = torch.empty(x.shape[:2], dtype=torch.float32, device=x.device) if quantised else None
    return Normed(torch.empty_like(x, dtype=out), scales)


def _float32(weight: Tensor) -> Tensor:
    """A float32 copy. Weights mapped from a file may be unaligned, and the kernels read 16 bytes at a time."""
    return weight.to(torch.float32, copy=True)


@cache
def _library(path: str) -> Library:
    return open_library(Path(path))


def _stream(x: Tensor) -> int:
    """The handle of PyTorch's current stream; 0 on the CPU."""
    return int(torch.cuda.current_stream(x.device).cuda_stream) if x.is_cuda else 0


_DEFINED = torch.library.Library("animegamer_rt", "DEF")
_OPERATORS = cast(Any, torch.ops.animegamer_rt)
_NORM = "Tensor weight, Tensor bias, float epsilon, Tensor? shot, Tensor? image, int shot_tokens"


def _operator(schema: str) -> Callable[[Call], Call]:
    """Registers a function as a PyTorch operator. It writes to the arguments marked (a!) and returns nothing."""

    def define(call: Call) -> Call:
        name = schema.partition("(")[0]
        _DEFINED.define(schema)
        # One function for every device, without gradients: the library looks where the tensors are.
        _DEFINED.impl(name, _as_backend_error()(call), "CompositeExplicitAutograd")
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


def has_warpgroups(device: torch.device) -> bool:
    """Whether the device has warpgroup instructions."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == HOPPER


def _mma_kind(device: torch.device) -> operators.MmaKind:
    """Which instructions attention uses: float16 sums of values where those run at twice the rate."""
    halves = device.type == "cuda" and torch.cuda.get_device_capability(device) in GEFORCE
    return operators.MmaKind.HALF_SUMS if halves else operators.MmaKind.WARPS


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
