"""The project's CUDA operators, called through their C interface.

Imports the standard library only. An array is anything with `data_ptr`, `shape`, `stride`, `dtype` and `device`, like a
torch.Tensor. docs/KERNELS.md lists what each operator computes and how to build the library.

- Arrays on a CUDA device go to the kernel, launched asynchronously on `stream` (a cudaStream_t as an integer, 0 for the
  default stream). The caller keeps the arrays alive until the stream has run it.
- Arrays in host memory go to the plain reference, which is synchronous and ignores `stream`.
- Arrays of the wrong shape, dtype, strides or device, and unsupported sizes, raise KernelError.
"""

from __future__ import annotations

from .attention import MmaKind, attention, attention_int8
from .errors import KernelError
from .heads import Heads, Int8Outputs, head_norm, head_norm_int8, int8_workspace
from .library import Library, open_library
from .noise import NOISE_TABLE, noise
from .packed import FEW_ROWS, Packed, packed_product, unpack
from .rows import Int32Sums, Norm, epilogue, gate_residual, norm_modulate
from .step import StepOutputs, guided_step
from .vae import SpatialNorm, pixels, spatial_norm, spatial_norm_workspace

__all__ = [
    "FEW_ROWS",
    "Heads",
    "Int8Outputs",
    "Int32Sums",
    "KernelError",
    "Library",
    "MmaKind",
    "NOISE_TABLE",
    "Norm",
    "Packed",
    "SpatialNorm",
    "StepOutputs",
    "attention",
    "attention_int8",
    "epilogue",
    "gate_residual",
    "guided_step",
    "head_norm",
    "head_norm_int8",
    "int8_workspace",
    "noise",
    "norm_modulate",
    "open_library",
    "packed_product",
    "pixels",
    "spatial_norm",
    "spatial_norm_workspace",
    "unpack",
]
