"""Unpatchify, guidance and solver update of one denoising step.

Source: MODEL.md section 5.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from .arrays import Array, Dtype, SameDevice, dtype_of
from .errors import KernelError
from .library import Arguments, Library

PATCH = 2
COEFFICIENTS = 8


class GuidedStepArguments(Arguments):
    """struct agk_guided_step_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("dtype", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("batch", "frames", "channels", "height", "width")),
        *((name, ctypes.c_void_p) for name in ("patches", "latent", "x0_prev", "noise", "difference", "coefficients")),
        *((name, ctypes.c_void_p) for name in ("next_latent", "x0", "next_difference", "next_patches")),
    ]


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """Outputs of `guided_step`.

    next_latent, x0, next_difference: float32 [1, F, C, h, w]; each may alias the input of the same meaning.
    next_patches: [1, P, C * 4] in the dtype of the input patches, or None.
    """

    next_latent: Array
    x0: Array
    next_difference: Array
    next_patches: Array | None = None


def guided_step(
    library: Library,
    patches: Array,
    latent: Array,
    x0_prev: Array,
    noise: Array,
    difference: Array,
    coefficients: Array,
    out: StepOutputs,
    stream: int = 0,
) -> None:
    """Guidance and solver update from the denoiser's output `patches` [B, P, C * 4] to `out`.

    B is 1 (conditional row only) or 2 (unconditional row first). latent, x0_prev, noise, difference: float32
    [1, F, C, h, w]. coefficients: float32 [8] on the same device, read when the kernel runs; their order is in
    animegamer_kernels.h. out.next_patches, if given, is next_latent as patches for the next step. Raises KernelError.
    """
    if len(latent.shape) != 5 or latent.shape[0] != 1:
        raise KernelError("wrong shape", where="latent", found=tuple(latent.shape), expected="[1, F, C, h, w]")
    sizes = tuple(latent.shape)
    _, frames, channels, height, width = sizes
    dtype = dtype_of(patches)
    flat = (frames * (height // PATCH) * (width // PATCH), channels * PATCH * PATCH)
    device = SameDevice(latent)

    def picture(what: str, array: Array) -> int | None:
        return device.address(what, array, sizes, Dtype.F32)

    arguments = GuidedStepArguments(
        0,
        dtype,
        patches.shape[0],
        *sizes[1:],
        device.address("patches", patches, (patches.shape[0], *flat), dtype),
        picture("latent", latent),
        picture("x0_prev", x0_prev),
        picture("noise", noise),
        picture("difference", difference),
        device.address("coefficients", coefficients, (COEFFICIENTS,), Dtype.F32),
        picture("next_latent", out.next_latent),
        picture("x0", out.x0),
        picture("next_difference", out.next_difference),
        device.address("next_patches", out.next_patches, (1, *flat), dtype),
    )
    library.run("guided_step", arguments, device.stream(stream))
