"""CUDA's error codes where nothing is loaded yet, in words: what happened, and what to do.

Codes and names: cudaError_t in CUDA's driver_types.h. Knows no library; PyTorch's and TensorRT's backends use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from animegamer_rt.errors import BackendError, DeviceLostError

OUT_OF_MEMORY = 2
_OPENING: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        OUT_OF_MEMORY: (
            "the GPU's memory is full before anything was loaded",
            "close the programs that fill it: nvidia-smi lists them",
        ),
        3: ("CUDA does not start", "restart the machine or its container"),
        35: (
            "there is no NVIDIA driver, or it is too old for this CUDA",
            "install or update the driver: CUDA 13 needs 580 or later, CUDA 12 needs 525",
        ),
        46: (
            "another program has the GPU to itself",
            "end it (nvidia-smi lists programs), or let several use the GPU: nvidia-smi -c DEFAULT",
        ),
        100: ("the driver finds no NVIDIA GPU", "look at nvidia-smi -L and at the variable CUDA_VISIBLE_DEVICES"),
        101: ("the driver finds no NVIDIA GPU", "look at nvidia-smi -L and at the variable CUDA_VISIBLE_DEVICES"),
        802: ("the machine's GPUs are not ready", "start their fabric manager: systemctl start nvidia-fabricmanager"),
        803: ("the driver was updated while its older module still runs", "restart the machine"),
        804: ("the driver is too old for this CUDA", "update the driver: this GPU takes no compatibility package"),
        209: ("the GPU cannot run this code: it was built for other GPUs", "install a build for this GPU"),
        999: ("CUDA does not start", "restart the machine: after a sleep the driver may need it"),
    }
)
"""What keeps CUDA from starting; once it runs, the same codes (but for memory) mean that the GPU is gone."""


def opening_error(code: int | None, found: str) -> BackendError:
    """The error for a code before any weight is read; None for an error without a code."""
    do = "check the driver with nvidia-smi, or use another --device"
    what, do = _OPENING.get(code or 0, ("no usable NVIDIA GPU", do))
    return BackendError(what, found=found, do=do)


def lost(found: str) -> DeviceLostError:
    """The error of a GPU that no longer answers this process."""
    return DeviceLostError("the GPU is lost to this process", found=found, do="start the program again")
