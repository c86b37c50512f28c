"""Checks, before any weight is read, that PyTorch can use this machine's GPU and that a bundle's weights fit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import PLAY_ROLES, PlanParts
from animegamer_rt.errors import BackendError

from ..cuda_errors import OUT_OF_MEMORY, opening_error
from .device import TorchDevice

_CODES = {"no nvidia driver": 35, "too old": 35, "no cuda gpus": 100}
"""Words in PyTorch's reasons (c10/cuda/CUDAFunctions.cpp) -> CUDA's error code."""


def check_gpu() -> None:
    """Raises BackendError with the reason if PyTorch has no GPU."""
    if torch.cuda.is_available():
        return
    about = f"torch {torch.__version__}, built for CUDA {torch.version.cuda}"
    said = _why_cuda_does_not_start()
    code = next((code for words, code in _CODES.items() if words in said.lower()), None)
    raise opening_error(code, f"{about}: {said}" if said else about)


def _why_cuda_does_not_start() -> str:
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0].partition(". ")[0]
    return ""


@contextlib.contextmanager
def opening() -> Iterator[None]:
    """Raises CUDA's errors in this block as BackendError: nothing is loaded yet, so the GPU cannot have been lost."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise opening_error(OUT_OF_MEMORY, _first_line(error)) from error
    except torch.AcceleratorError as error:
        raise opening_error(getattr(error, "error_code", None), _first_line(error)) from error


def try_kernel(torch_device: TorchDevice) -> None:
    """Runs one small kernel: a GPU that PyTorch was not built for, or that is full, fails here."""
    torch.ones(1, device=torch_device.device).add_(1).item()


def check_memory(bundle: Bundle, torch_device: TorchDevice, parts: PlanParts) -> None:
    """Raises BackendError if the bundle's weights alone exceed the GPU's free memory.

    `profiling.host_memory` checks the CPU's.
    """
    if torch_device.device.type != "cuda":
        return
    manifest, free = bundle.manifest, torch_device.free_bytes()
    first = [parts.graphs(role)[0] for role in PLAY_ROLES]  # a part's other graphs share its weights
    files = {file for name in first if name in manifest.parts for file in manifest.parts[name].files}
    weights = sum(manifest.files[file].bytes for file in files)
    if weights <= free:
        return
    raise BackendError(
        "the GPU has too little free memory for the bundle's weights",
        where=bundle.folder,
        found=f"{free / 2**30:.1f} GiB free",
        expected=f"more than {weights / 2**30:.1f} GiB",
        do="close the programs that nvidia-smi lists, or use a bundle of lower precision (doctor lists what fits)",
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
