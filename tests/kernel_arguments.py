"""Argument structs that every operator takes, with all pointers at some floats of the host; no tensor library in it."""

from __future__ import annotations

import ctypes

from animegamer_kernels.arrays import Dtype
from animegamer_kernels.attention import AttentionInt8Arguments
from animegamer_kernels.heads import HeadNormArguments, HeadNormInt8Arguments
from animegamer_kernels.library import OPERATORS, Arguments
from animegamer_kernels.packed import PackedProductArguments, UnpackArguments
from animegamer_kernels.rows import EpilogueArguments, GateResidualArguments, NormModulateArguments
from animegamer_kernels.step import GuidedStepArguments
from animegamer_kernels.vae import PixelsArguments, SpatialNormArguments

__all__ = ["AT", "OPERATORS", "valid"]

FLOATS = (ctypes.c_float * 8192)()
AT = -(-ctypes.addressof(FLOATS) // 16) * 16


def filled(arguments: Arguments) -> Arguments:
    """Every pointer at some floats."""
    for name, kind in arguments._fields_:
        if kind is ctypes.c_void_p:
            setattr(arguments, name, AT)
        elif isinstance(getattr(arguments, name), ctypes.Structure):
            filled(getattr(arguments, name))
    return arguments


def valid(name: str) -> Arguments:
    """The arguments of a small run of an operator."""
    if name == "guided_step":
        step = filled(GuidedStepArguments())
        step.batch, step.frames, step.channels, step.height, step.width = 1, 1, 2, 2, 2
        return step
    if name == "epilogue":
        epilogue = filled(EpilogueArguments())
        epilogue.rows, epilogue.width = 4, 8
        return epilogue
    if name in ("unpack", "packed_product"):
        packed = filled(UnpackArguments() if name == "unpack" else PackedProductArguments())
        packed.weight.outputs, packed.weight.inputs, packed.weight.block, packed.weight.bits = 3, 16, 8, 4
        if name == "packed_product":
            packed.rows = 2
        return packed
    if name in ("head_norm", "head_norm_int8"):
        heads = filled(HeadNormArguments() if name == "head_norm" else HeadNormInt8Arguments())
        shape = heads.shape
        shape.batch, shape.tokens, shape.heads, shape.head_width, shape.epsilon = 1, 3, 2, 8, 1e-6
        if name == "head_norm":
            heads.batch_stride, heads.token_stride, heads.head_stride = 48, 16, 8
        else:
            heads.query_group, heads.key_group, heads.workspace_bytes = 2, 3, 64
        return heads
    if name == "attention_int8":
        attention = filled(AttentionInt8Arguments())
        attention.dtype, attention.query_group, attention.key_group = Dtype.F16, 2, 64
        attention.batch, attention.tokens, attention.heads, attention.head_width = 1, 3, 2, 64
        attention.batch_stride, attention.token_stride, attention.head_stride = 1152, 384, 64
        return attention
    if name == "pixels":
        frames = filled(PixelsArguments())
        frames.frames, frames.height, frames.width, frames.out_channels = 1, 2, 8, 4
        return frames
    if name == "spatial_norm":
        norm = filled(SpatialNormArguments())
        norm.frames, norm.height, norm.width, norm.channels, norm.groups = 3, 2, 2, 8, 2
        norm.latent_frames, norm.latent_height, norm.latent_width = 2, 1, 2
        norm.epsilon, norm.workspace_bytes = 1e-6, 8208
        return norm
    rows = filled(NormModulateArguments() if name == "norm_modulate" else GateResidualArguments())
    rows.shape.rows, rows.shape.tokens, rows.shape.shot_tokens, rows.shape.width = 4, 2, 1, 8
    rows.norm.epsilon = 1e-5
    return rows
