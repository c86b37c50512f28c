"""The project's own CUDA operators, called through their C interface.

Knows no tensor library: arrays are told apart by `data_ptr`, `shape`, `stride`, `dtype` and `device`, as PyTorch's have
them. docs/KERNELS.md says what each operator computes and how to build the library.
"""

from __future__ import annotations

from .attention import Products, attention_int8
from .errors import KernelError
from .heads import Heads, Int8Outputs, head_norm, head_norm_int8, int8_workspace
from .library import Library, open_library
from .packed import FEW_ROWS, Packed, packed_product, unpack
from .rows import Norm, Sums, epilogue, gate_residual, norm_modulate
from .step import StepOutputs, guided_step
from .vae import SpatialNorm, pixels, spatial_norm, spatial_norm_workspace

__all__ = [
    "FEW_ROWS",
    "Heads",
    "Int8Outputs",
    "KernelError",
    "Library",
    "Norm",
    "Packed",
    "Products",
    "SpatialNorm",
    "StepOutputs",
    "Sums",
    "attention_int8",
    "epilogue",
    "gate_residual",
    "guided_step",
    "head_norm",
    "head_norm_int8",
    "int8_workspace",
    "norm_modulate",
    "open_library",
    "packed_product",
    "pixels",
    "spatial_norm",
    "spatial_norm_workspace",
    "unpack",
]
