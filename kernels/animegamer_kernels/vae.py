"""The vae's spatial norm with its activation, and decoded frames to bytes, as calls on arrays.

It does not know the decoder. Source: MODEL.md section 6; kernels/csrc/animegamer_kernels.h has the contract.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from .arrays import Array, Dtype, Room, dtype_of
from .errors import KernelError
from .library import Arguments, Library

COLOURS = 3


class PixelsArguments(Arguments):
    """struct agk_pixels_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("frames", "height", "width")),
        ("x", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("interleaved", "flip", "out_channels")),
        ("order", ctypes.c_int32 * 4),
    ]


class SpatialNormArguments(Arguments):
    """struct agk_spatial_norm_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("frames", "height", "width", "channels", "groups")),
        *((name, ctypes.c_int64) for name in ("latent_frames", "latent_height", "latent_width")),
        *((name, ctypes.c_void_p) for name in ("x", "scale", "shift", "weight", "bias", "out", "workspace")),
        ("workspace_bytes", ctypes.c_int64),
        ("epsilon", ctypes.c_float),
    ]


def pixels(
    library: Library, x: Array, out: Array, order: Sequence[int], flip: bool, interleaved: bool, stream: int = 0
) -> None:
    """Frames about -1..1 to uint8 `out` [T, H, W, C], cut off, not rounded; C is 3 or 4, W a multiple of 8.

    x is [3, T, H, W], or interleaved [T, H, W, 3]. order: for each of C, which of R, G, B, A (255) it is, as in
    contract.PIXEL_FORMATS; flip: bottom row first. Raises KernelError. Streams: norm_modulate.
    """
    sizes = tuple(x.shape)
    if len(sizes) != 4 or sizes[-1 if interleaved else 0] != COLOURS:
        expected = "[T, H, W, 3]" if interleaved else "[3, T, H, W]"
        raise KernelError("an array of another shape", where="x", found=sizes, expected=expected)
    frames, height, width = sizes[:3] if interleaved else sizes[1:]
    room = Room(x)
    arguments = PixelsArguments(
        0,
        dtype_of(x),
        frames,
        height,
        width,
        room.address("x", x, sizes, dtype_of(x)),
        room.address("out", out, (frames, height, width, len(order)), Dtype.U8),
        interleaved,
        flip,
        len(order),
        (ctypes.c_int32 * 4)(*order),
    )
    library.run("pixels", arguments, room.stream(stream))


@dataclass(frozen=True, slots=True)
class SpatialNorm:
    """x [T, H, W, C] and out the same; scale, shift [t, h, w, C] are the latent's projections, all of one dtype.

    weight, bias float32 [C] of the GroupNorm; workspace: bytes, as `spatial_norm_workspace` says.
    """

    x: Array
    scale: Array
    shift: Array
    weight: Array
    bias: Array
    out: Array
    groups: int
    epsilon: float
    workspace: Array | None = None

    def arguments(self, room: Room) -> SpatialNormArguments:
        """Raises KernelError if the arrays do not fit each other."""
        sizes, latent = tuple(self.x.shape), tuple(self.scale.shape)
        if len(sizes) != 4 or len(latent) != 4 or latent[3] != sizes[3]:
            raise KernelError(
                "arrays of other shapes", where="x, scale", found=(sizes, latent), expected="[T, H, W, C]"
            )
        dtype, vector = dtype_of(self.x), (sizes[3],)
        workspace = self.workspace
        return SpatialNormArguments(
            0,
            dtype,
            *sizes,
            self.groups,
            *latent[:3],
            room.address("x", self.x, sizes, dtype),
            room.address("scale", self.scale, latent, dtype),
            room.address("shift", self.shift, latent, dtype),
            room.address("weight", self.weight, vector, Dtype.F32),
            room.address("bias", self.bias, vector, Dtype.F32),
            room.address("out", self.out, sizes, dtype),
            None if workspace is None else room.address("workspace", workspace, tuple(workspace.shape), Dtype.U8),
            0 if workspace is None else workspace.shape[0],
            self.epsilon,
        )


def spatial_norm_workspace(library: Library, given: SpatialNorm) -> int:
    """Bytes of working memory of `spatial_norm`."""
    return library.workspace("spatial_norm", given.arguments(Room(given.x)))


def spatial_norm(library: Library, given: SpatialNorm, stream: int = 0) -> None:
    """silu(GroupNorm(x) * scale + shift) into out, which may be x; statistics over all of x. Raises KernelError.

    Streams: norm_modulate.
    """
    room = Room(given.x)
    library.run("spatial_norm", given.arguments(room), room.stream(stream))
