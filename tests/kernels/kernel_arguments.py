"""Valid argument structs of every operator, for calls of the C interface without a tensor library."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from animegamer_kernels.arrays import Dtype
from animegamer_kernels.denoiser import (
    NOISE_TABLE,
    AttentionArguments,
    EpilogueArguments,
    GateResidualArguments,
    GuidedStepArguments,
    HeadNormArguments,
    NoiseArguments,
    NormModulateArguments,
)
from animegamer_kernels.library import Arguments
from animegamer_kernels.packed import PackedProductArguments, UnpackArguments
from animegamer_kernels.vae import PixelsArguments, SpatialNormArguments

MEMORY = (ctypes.c_float * (NOISE_TABLE + 4))()
ADDRESS = -(-ctypes.addressof(MEMORY) // 16) * 16
"""A valid array for every pointer: 256 KiB of host memory at a multiple of 16."""

ROWS = {"shape.rows": 4, "shape.tokens": 2, "shape.shot_tokens": 1, "shape.width": 8, "norm.epsilon": 1e-5}
WEIGHT = {"weight.outputs": 3, "weight.inputs": 16, "weight.block": 8, "weight.bits": 4}
HEADS = {"batch": 1, "tokens": 3, "heads": 2}
SIZES: Mapping[str, tuple[type[Arguments], Mapping[str, float]]] = {
    "norm_modulate": (NormModulateArguments, ROWS),
    "gate_residual": (GateResidualArguments, ROWS),
    "epilogue": (EpilogueArguments, {"rows": 4, "width": 8}),
    "unpack": (UnpackArguments, WEIGHT),
    "packed_product": (PackedProductArguments, {**WEIGHT, "rows": 2}),
    "guided_step": (GuidedStepArguments, {"batch": 1, "frames": 1, "channels": 2, "height": 2, "width": 2}),
    "noise": (NoiseArguments, {"draws": 1, "count": 33, "first": 0}),
    "head_norm": (HeadNormArguments, {**HEADS, "head_width": 8, "epsilon": 1e-6}),
    "attention": (AttentionArguments, {**HEADS, "dtype": Dtype.BF16, "head_width": 64}),
    "pixels": (PixelsArguments, {"frames": 1, "height": 2, "width": 8, "out_channels": 4}),
    "spatial_norm": (
        SpatialNormArguments,
        {"frames": 3, "height": 2, "width": 2, "channels": 8, "groups": 2, "epsilon": 1e-6, "workspace_bytes": 8208}
        | {"latent_frames": 2, "latent_height": 1, "latent_width": 2},
    ),
}


def set_field(arguments: ctypes.Structure, path: str, value: object) -> None:
    """Sets a field; "shape.rows" is `rows` of the struct `shape`."""
    *outer, last = path.split(".")
    for name in outer:
        arguments = getattr(arguments, name)
    setattr(arguments, last, value)


def valid_arguments(operator: str) -> Arguments:
    """Small valid arguments of an operator, every pointer at ADDRESS."""
    kind, sizes = SIZES[operator]
    arguments = kind()
    _set_pointers(arguments)
    for path, value in sizes.items():
        set_field(arguments, path, value)
    return arguments


def _set_pointers(arguments: ctypes.Structure) -> None:
    for name, kind, *_ in arguments._fields_:
        if kind is ctypes.c_void_p:
            setattr(arguments, name, ADDRESS)
        elif isinstance(getattr(arguments, name), ctypes.Structure):
            _set_pointers(getattr(arguments, name))
