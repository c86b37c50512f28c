"""The VAE decoder's spatial norm with SiLU, and the conversion of decoded frames to bytes.

Source: MODEL.md section 6; kernels/csrc/animegamer_kernels.h has the contract.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from .arrays import Array, Dtype, SameDevice, dtype_of, sizes_of
from .library import Arguments, Library, integers, pointers

GROUP_WORKSPACE = 4104
"""Bytes of `spatial_norm`'s workspace for each group. Source: AGK_GROUP_WORKSPACE."""


class PixelsArguments(Arguments):
    """struct agk_pixels_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *integers("frames", "height", "width"),
        *pointers("x", "out"),
        *((name, ctypes.c_int32) for name in ("flip", "out_channels")),
        ("order", ctypes.c_int32 * 4),
    ]


class SpatialNormArguments(Arguments):
    """struct agk_spatial_norm_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *integers("frames", "height", "width", "channels", "groups"),
        *integers("latent_frames", "latent_height", "latent_width"),
        *pointers("x", "scale", "shift", "weight", "bias", "x_bias", "out", "workspace"),
        *integers("workspace_bytes"),
        ("epsilon", ctypes.c_float),
    ]


def pixels(library: Library, x: Array, order: Sequence[int], flip: bool, out: Array, stream: int = 0) -> None:
    """Converts frames [T, H, W, 3], about -1..1, to uint8 `out` [T, H, W, C] by truncation.

    W must be a multiple of 8. order: the channel of each byte of a pixel, 3 or 4: 0 R, 1 G, 2 B, 3 A (always 255).
    flip: bottom row first. Raises KernelError.
    """
    device, (frames, height, width, _) = SameDevice(x), sizes_of("x", x, "[T, H, W, 3]")
    arguments = PixelsArguments(
        0,
        dtype_of(x),
        frames,
        height,
        width,
        device.address("x", x, (frames, height, width, 3), dtype_of(x)),
        device.address("out", out, (frames, height, width, len(order)), Dtype.U8),
        flip,
        len(order),
        (ctypes.c_int32 * 4)(*order),
    )
    library.run("pixels", arguments, device.stream(stream))


def spatial_norm(
    library: Library,
    x: Array,
    scale: Array,
    shift: Array,
    weight: Array,
    bias: Array,
    x_bias: Array | None,
    groups: int,
    epsilon: float,
    workspace: Array,
    out: Array,
    stream: int = 0,
) -> None:
    """out = silu(GroupNorm(x + x_bias) * scale + shift), statistics over all frames. out may be x.

    x, out: [T, H, W, C]. scale, shift: [t, h, w, C], the projections of the latent. All four have one dtype.
    weight, bias: float32 [C] of the GroupNorm. x_bias: float32 [C] added to x first, or None.
    workspace: uint8 [groups * GROUP_WORKSPACE], scratch memory. Raises KernelError.
    """
    sizes, latent = sizes_of("x", x, "[T, H, W, C]"), (*sizes_of("scale", scale, "[t, h, w, C]")[:3], x.shape[3])
    device, dtype, vector = SameDevice(x), dtype_of(x), (x.shape[3],)
    arguments = SpatialNormArguments(
        0,
        dtype,
        *sizes,
        groups,
        *latent[:3],
        device.address("x", x, sizes, dtype),
        device.address("scale", scale, latent, dtype),
        device.address("shift", shift, latent, dtype),
        device.address("weight", weight, vector, Dtype.F32),
        device.address("bias", bias, vector, Dtype.F32),
        device.address("x_bias", x_bias, vector, Dtype.F32),
        device.address("out", out, sizes, dtype),
        device.address("workspace", workspace, tuple(workspace.shape), Dtype.U8),
        workspace.shape[0],
        epsilon,
    )
    library.run("spatial_norm", arguments, device.stream(stream))
