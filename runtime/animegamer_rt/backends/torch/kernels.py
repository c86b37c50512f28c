"""Our kernels as the torch backend calls them: `open_kernels` finds their library and decides whether to use it.

Tensors on a GPU go to the kernels, on the current stream, into memory that PyTorch allocates; tensors on the CPU go to
the reference implementations, which are slow and for tests. It knows no network. See docs/KERNELS.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from animegamer_kernels import GROUP_WORKSPACE
from animegamer_kernels.library import PATH_VARIABLE, find_library, open_library
from animegamer_rt.backends.cuda_errors import as_backend_error
from animegamer_rt.bundle.files import sha256
from animegamer_rt.errors import BackendError

from .custom_ops import OPERATORS
from .rowwise_linear import MAX_VALUE

log = logging.getLogger(__name__)

KernelChoice = bool | Path | None
"""False: plain PyTorch. True or a library's file: the kernels, or an error. None: the kernels if a GPU has them."""


class Normed(NamedTuple):
    """The input of a matrix product: rows [B, S, D], and for FP8 and INT8 scales f32 [B, S]; value = rows * scales."""

    rows: Tensor
    scales: Tensor | None = None


class Modulation(NamedTuple):
    """Shift and scale, f32 [2, D], for shot tokens and for image tokens; None for a kind that has no tokens."""

    shot: Tensor | None
    image: Tensor | None


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

    @property
    def hash(self) -> str:
        """Short hash of the library's file."""
        return sha256(Path(self.library))[:12]

    def norm_modulate(
        self, x: Tensor, norm: RowNorm, modulation: Modulation, shot_tokens: int, out: torch.dtype
    ) -> Normed:
        """LayerNorm of x [B, S, D], then x (1 + scale) + shift by the kind of token, in the dtype `out`."""
        normed = _allocate_rows(x, out)
        OPERATORS.norm_modulate(self.library, x, *norm, *modulation, shot_tokens, *normed)
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
        OPERATORS.gate_residual(self.library, x, branch, *gates, *norm, *modulation, shot_tokens, *normed)
        return normed

    def epilogue(
        self, x: Tensor, out: torch.dtype, gelu: bool = False, factors: Sequence[Tensor | None] = (None, None, None)
    ) -> Normed:
        """A product's output x [B, S, D], through GELU if `gelu`, in the dtype `out`.

        factors, of an INT8 product's sums i32: row scales f32 [B, S], column scales and bias f32 [D].
        """
        normed = _allocate_rows(x, out)
        OPERATORS.epilogue(self.library, x, *factors, gelu, *normed)
        return normed

    def unpack(self, codes: Tensor, scales: Tensor, four_bits: bool, out: torch.dtype) -> Tensor:
        """Dequantises a packed weight: codes and scales as in PackedLinear -> [N, K] in the dtype `out`."""
        width = codes.shape[1] * codes.shape[2] * (2 if four_bits else 1)
        weight = codes.new_empty((len(codes), width), dtype=out)
        OPERATORS.unpack(self.library, codes, scales, four_bits, weight)
        return weight

    def packed_product(self, x: Tensor, codes: Tensor, scales: Tensor, four_bits: bool) -> Tensor:
        """x [R, K] times the transpose of a packed weight -> [R, N]; R is at most FEW_ROWS."""
        out = x.new_empty((len(x), len(codes)))
        OPERATORS.packed_product(self.library, x, codes, scales, four_bits, out)
        return out

    def head_norm(self, qkv: Tensor, query: RowNorm, key: RowNorm) -> None:
        """LayerNorm of each head of queries and keys in place, qkv [B, S, 3, heads, d]."""
        OPERATORS.head_norm(self.library, qkv, query.weight, query.bias, key.weight, key.bias, query.epsilon)

    def attention(self, qkv: Tensor) -> Tensor:
        """Attention over all tokens of normalised heads, f16 or bf16 [B, S, 3, heads, 64] -> [B, S, heads, 64].

        On a GPU for `has_warpgroups` devices.
        """
        out = torch.empty_like(qkv[:, :, 2], memory_format=torch.contiguous_format)
        OPERATORS.attention(self.library, qkv, out)
        return out

    def guided_step(self, patches: Tensor, state: Sequence[Tensor], noise: Tensor, coefficients: Tensor) -> None:
        """Guidance and solver from patches [B, P, 4 C] of v; updates latent, x0 and difference f32 [1, F, C, h, w]."""
        OPERATORS.guided_step(self.library, patches.contiguous(), *state, noise, coefficients)

    def noise(self, turn: Tensor, table: Tensor, first: int, weights: Sequence[float], out: Tensor) -> None:
        """The weighted sum of a turn's draws from `first` on into out f32. turn: i64 [3], as `noise.Noise.key`."""
        OPERATORS.noise(self.library, turn, table, first, weights, out)

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
        weights, groups = (_float32(norm.weight), _float32(norm.bias)), norm.num_groups
        # Allocated by PyTorch, so that a graph keeps it alive.
        workspace = x.new_empty(groups * GROUP_WORKSPACE, dtype=torch.uint8)
        OPERATORS.spatial_norm(self.library, x, scale, shift, *weights, bias, groups, norm.eps, workspace, out)
        return out

    def pixels(self, rgb: Tensor, order: Sequence[int], flip: bool) -> Tensor:
        """rgb [T, H, W, 3] in about -1..1 -> u8 [T, H, W, len(order)]; order and flip as in interface.VaeEngine."""
        out = torch.empty((*rgb.shape[:3], len(order)), dtype=torch.uint8, device=rgb.device)
        OPERATORS.pixels(self.library, rgb, list(order), flip, out)
        return out


def open_kernels(choice: KernelChoice, device: torch.device) -> tuple[Kernels | None, str]:
    """The kernels, or None for plain PyTorch, and a description of which.

    Raises BackendError if `choice` or ANIMEGAMER_KERNELS requires them and they are missing or do not run here.
    """
    on_gpu = device.type == "cuda"
    if choice is False or (choice is None and not on_gpu):
        return None, "plain operators"
    path = choice if isinstance(choice, Path) else find_library()
    asked_for = choice is not None or bool(os.environ.get(PATH_VARIABLE))
    if choice is None and path is None:
        return None, "plain operators, as no kernels were built or they are turned off"
    with as_backend_error():
        library = open_library(path)
    if on_gpu and not library.has_cuda:
        raise BackendError(
            "the kernels' library was built without CUDA",
            where=library.path,
            do="build it where nvcc is installed (make kernels), or turn it off: ANIMEGAMER_KERNELS=off",
        )
    if on_gpu and not library.runs_here:
        if not asked_for:
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


def has_warpgroups(device: torch.device) -> bool:
    """Whether the device has warpgroup instructions."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == HOPPER


def _allocate_rows(x: Tensor, out: torch.dtype) -> Normed:
    """Uninitialised rows of x's shape in the dtype `out`, with scales where the dtype needs them."""
    quantised = out in MAX_VALUE
    scales = torch.empty(x.shape[:2], dtype=torch.float32, device=x.device) if quantised else None
    return Normed(torch.empty_like(x, dtype=out), scales)


def _float32(weight: Tensor) -> Tensor:
    """A float32 copy. Weights mapped from a file may be unaligned, and the kernels read 16 bytes at a time."""
    return weight.to(torch.float32, copy=True)
