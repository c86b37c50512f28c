"""The project's CUDA operators, called through their C interface.

Imports the standard library only. An array is anything with `data_ptr`, `shape`, `stride`, `dtype` and `device`, like a
torch.Tensor. docs/KERNELS.md lists what each operator computes and how to build the library.

- Arrays on a CUDA device go to the kernel, launched asynchronously on `stream` (a cudaStream_t as an integer, 0 for the
  default stream). The caller keeps the arrays alive until the stream has run it.
- Arrays in host memory go to the plain reference, which is synchronous and ignores `stream`.
- Arrays of the wrong shape, dtype, strides or device, and unsupported sizes, raise KernelError.
"""

from __future__ import annotations

from .denoiser import attention, epilogue, gate_residual, guided_step, head_norm, noise, norm_modulate
from .errors import KernelError
from .library import Library, open_library
from .packed import FEW_ROWS, packed_product, unpack
from .vae import GROUP_WORKSPACE, pixels, spatial_norm

__all__ = [
    "FEW_ROWS",
    "GROUP_WORKSPACE",
    "KernelError",
    "Library",
    "attention",
    "epilogue",
    "gate_residual",
    "guided_step",
    "head_norm",
    "noise",
    "norm_modulate",
    "open_library",
    "packed_product",
    "pixels",
    "spatial_norm",
    "unpack",
]
