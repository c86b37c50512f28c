"""The project's own CUDA operators, called through their C interface.

Knows no tensor library: arrays are told apart by `data_ptr`, `shape`, `stride`, `dtype` and `device`, as PyTorch's have
them. docs/KERNELS.md says what each operator computes and how to build the library.
"""

from __future__ import annotations

from .library import Library, open_library
from .rows import Norm, gate_residual, norm_modulate
from .step import StepOutputs, guided_step

__all__ = ["Library", "Norm", "StepOutputs", "gate_residual", "guided_step", "norm_modulate", "open_library"]
