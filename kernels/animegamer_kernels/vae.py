"""The VAE decoder's spatial norm with SiLU, and the conversion of decoded frames to bytes.

Source: MODEL.md section 6; kernels/csrc/animegamer_kernels.h has the contract.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from .arrays import Array, Dtype, SameDevice, dtype_of
from .errors import KernelError
from .library import Arguments, Library

RGB_CHANNELS = 3


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
        *((name, ctypes.c_void_p) for name in ("x", "scale", "shift", "weight", "bias", "x_bias")),
        *((name, ctypes.c_void_p) for name in ("out", "workspace")),
        ("workspace_bytes", ctypes.c_int64),
        ("epsilon", ctypes.c_float),
    ]


def pixels(
    library: Library, x: Array, out: Array, order: Sequence[int], flip: bool, interleaved: bool, stream: int = 0
) -> None:
    """Converts frames, about -1..1, to uint8 `out` [T, H, W, C] by truncation.

    x: [3, T, H, W]; or [T, H, W, 3] if `interleaved`. W must be a multiple of 8. order: the channel of each byte of a
    pixel, 3 or 4: 0 R, 1 G, 2 B, 3 A (always 255). flip: bottom row first. Raises KernelError.
    """
    sizes = tuple(x.shape)
    if len(sizes) != 4 or sizes[-1 if interleaved else 0] != RGB_CHANNELS:
        expected = "[T, H, W, 3]" if interleaved else "[3, T, H, W]"
        raise KernelError("wrong shape", where="x", found=sizes, expected=expected)
    frames, height, width = sizes[:3] if interleaved else sizes[1:]
    device = SameDevice(x)
    arguments = PixelsArguments(
        0,
        dtype_of(x),
        frames,
        height,
        width,
        device.address("x", x, sizes, dtype_of(x)),
        device.address("out", out, (frames, height, width, len(order)), Dtype.U8),
        interleaved,
        flip,
        len(order),
        (ctypes.c_int32 * 4)(*order),
    )
    library.run("pixels", arguments, device.stream(stream))


@dataclass(frozen=True, slots=True)
class SpatialNorm:
    """Arguments of `spatial_norm`.

    x, out: [T, H, W, C]. scale, shift: [t, h, w, C], the projections of the latent. All four have one dtype.
    weight, bias: float32 [C] of the GroupNorm. x_bias: float32 [C] added to x first, or None.
    workspace: uint8 [`spatial_norm_workspace(..)`], scratch memory.
    """

    x: Array
    scale: Array
    shift: Array
    weight: Array
    bias: Array
    out: Array
    groups: int
    epsilon: float
    x_bias: Array | None = None
    workspace: Array | None = None

    def arguments(self, device: SameDevice) -> SpatialNormArguments:
        """The C struct. Raises KernelError if the arrays do not match."""
        sizes, latent = tuple(self.x.shape), tuple(self.scale.shape)
        if len(sizes) != 4 or len(latent) != 4 or latent[3] != sizes[3]:
            raise KernelError("shapes differ", where="x, scale", found=(sizes, latent), expected="[T, H, W, C]")
        dtype, vector = dtype_of(self.x), (sizes[3],)
        x_bias, workspace = self.x_bias, self.workspace
        return SpatialNormArguments(
            0,
            dtype,
            *sizes,
            self.groups,
            *latent[:3],
            device.address("x", self.x, sizes, dtype),
            device.address("scale", self.scale, latent, dtype),
            device.address("shift", self.shift, latent, dtype),
            device.address("weight", self.weight, vector, Dtype.F32),
            device.address("bias", self.bias, vector, Dtype.F32),
            None if x_bias is None else device.address("x_bias", x_bias, vector, Dtype.F32),
            device.address("out", self.out, sizes, dtype),
            None if workspace is None else device.address("workspace", workspace, tuple(workspace.shape), Dtype.U8),
            0 if workspace is None else workspace.shape[0],
            self.epsilon,
        )


def spatial_norm_workspace(library: Library, norm: SpatialNorm) -> int:
    """Size of the workspace of `spatial_norm`, in bytes."""
    return library.workspace("spatial_norm", norm.arguments(SameDevice(norm.x)))


def spatial_norm(library: Library, norm: SpatialNorm, stream: int = 0) -> None:
    """out = silu(GroupNorm(x + x_bias) * scale + shift), statistics over all frames. out may be x.

    Raises KernelError.
    """
    device = SameDevice(norm.x)
    library.run("spatial_norm", norm.arguments(device), device.stream(stream))
