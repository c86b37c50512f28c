"""Argument structs that every operator takes, with all pointers at some floats of the host; no tensor library in it."""

from __future__ import annotations

import ctypes

from animegamer_kernels.library import OPERATORS, Arguments
from animegamer_kernels.rows import GateResidualArguments, NormModulateArguments
from animegamer_kernels.step import GuidedStepArguments

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
    if name == "guided_step":
        step = filled(GuidedStepArguments())
        step.batch, step.frames, step.channels, step.height, step.width = 1, 1, 2, 2, 2
        return step
    rows = filled(NormModulateArguments() if name == "norm_modulate" else GateResidualArguments())
    rows.shape.rows, rows.shape.tokens, rows.shape.shot_tokens, rows.shape.width = 4, 2, 1, 8
    rows.norm.epsilon = 1e-5
    return rows
