"""CUDA's error codes before anything is loaded: what happened, and what to do; and errors of our kernels.

Codes and names: cudaError_t in CUDA's driver_types.h. Used by the PyTorch and TensorRT backends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from animegamer_kernels import KernelError
from animegamer_rt.errors import BackendError, DeviceLostError

OUT_OF_MEMORY = 2
_OPENING: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        OUT_OF_MEMORY: (
            "the GPU's memory was full before anything was loaded",
            "close the programs that use it: nvidia-smi lists them",
        ),
        3: ("CUDA does not start", "restart the machine or its container"),
        35: (
            "there is no NVIDIA driver, or it is too old for this CUDA",
            "install or update the driver: CUDA 13 needs 580 or later, CUDA 12 needs 525",
        ),
        46: (
            "another program uses the GPU exclusively",
            "end it (nvidia-smi lists programs), or share the GPU: nvidia-smi -c DEFAULT",
        ),
        100: ("the driver finds no NVIDIA GPU", "check nvidia-smi -L and the variable CUDA_VISIBLE_DEVICES"),
        101: ("the driver finds no NVIDIA GPU", "check nvidia-smi -L and the variable CUDA_VISIBLE_DEVICES"),
        802: ("the machine's GPUs are not ready", "start their fabric manager: systemctl start nvidia-fabricmanager"),
        803: ("the driver was updated while its older module still runs", "restart the machine"),
        804: ("the driver is too old for this CUDA", "update the driver: this GPU has no compatibility package"),
        209: ("the GPU cannot run this code: it was built for other GPUs", "install a build for this GPU"),
        999: ("CUDA does not start", "restart the machine: the driver may need it after sleep"),
    }
)
"""Why CUDA does not start; later, the same codes (except memory) mean that the GPU is lost."""


def opening_error(code: int | None, found: str) -> BackendError:
    """The error for a code before any weight is read; code None: an error without one."""
    do = "check the driver with nvidia-smi, or use another --device"
    what, do = _OPENING.get(code or 0, ("no usable NVIDIA GPU", do))
    return BackendError(what, found=found, do=do)


def lost(found: str) -> DeviceLostError:
    """The error of a GPU that no longer answers this process."""
    return DeviceLostError("this process has lost the GPU", found=found, do="restart the program")


@contextmanager
def as_backend_error() -> Iterator[None]:
    """Raises a KernelError of the block or function as a BackendError with the same text."""
    try:
        yield
    except KernelError as error:
        raise BackendError(
            error.what, where=error.where, found=error.found, expected=error.expected, do=error.do
        ) from error
