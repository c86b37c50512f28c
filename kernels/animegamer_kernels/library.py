"""Finds, opens and calls the kernels' shared library, which `make kernels` builds."""

from __future__ import annotations

import ctypes
import os
import sys
from enum import IntEnum
from pathlib import Path

from .errors import KernelError

PATH_VARIABLE = "ANIMEGAMER_KERNELS"
OFF = "off"
"""Value of ANIMEGAMER_KERNELS that turns the kernels off."""
FILE_NAME = "animegamer_kernels.dll" if sys.platform == "win32" else "libanimegamer_kernels.so"
OPERATORS = (
    "norm_modulate",
    "gate_residual",
    "epilogue",
    "unpack",
    "packed_product",
    "guided_step",
    "noise",
    "head_norm",
    "attention",
    "pixels",
    "spatial_norm",
)


class Status(IntEnum):
    """enum agk_code. CUDA_ERROR + n is error n of the CUDA runtime."""

    OK = 0
    BAD_STRUCT = 1
    NULL_POINTER = 2
    UNALIGNED_POINTER = 3
    BAD_DTYPE = 4
    BAD_SHAPE = 5
    UNALIGNED_WIDTH = 6
    TOO_WIDE = 7
    NO_CUDA = 8
    SMALL_WORKSPACE = 9
    CUDA_ERROR = 1000


def integers(*names: str) -> list[tuple[str, type[ctypes.c_int64]]]:
    """Fields of an argument struct of type int64_t."""
    return [(name, ctypes.c_int64) for name in names]


def pointers(*names: str) -> list[tuple[str, type[ctypes.c_void_p]]]:
    """Fields of an argument struct that are addresses of arrays."""
    return [(name, ctypes.c_void_p) for name in names]


class Arguments(ctypes.Structure):
    """Base of the argument structs. The first field is the struct's size in bytes, which the library checks."""

    struct_bytes: int


class Library:
    """An open library. Thread-safe; `last_error` is per thread."""

    def __init__(self, path: Path) -> None:
        """Raises KernelError if the file is not a compatible kernel library."""
        try:
            self._library = ctypes.CDLL(str(path))
            self._functions = {
                name: (getattr(self._library, f"agk_{name}"), getattr(self._library, f"agk_{name}_host"))
                for name in OPERATORS
            }
            self._last_error, self._error_text = self._library.agk_last_error, self._library.agk_error_text
        except (OSError, AttributeError) as error:
            raise KernelError(
                "not a compatible kernel library", where=path, found=error, do="rebuild it: make kernels"
            ) from error
        self.path = path
        self._last_error.restype = self._error_text.restype = ctypes.c_char_p
        for device, host in self._functions.values():
            device.argtypes, host.argtypes = (ctypes.c_void_p, ctypes.c_void_p), (ctypes.c_void_p,)

    @property
    def has_cuda(self) -> bool:
        """Whether the library was built with the CUDA kernels, not the references only."""
        return bool(self._library.agk_has_cuda())

    @property
    def runs_here(self) -> bool:
        """Whether the kernels run on the current CUDA device: they were built for it and its driver is new enough."""
        return bool(self._library.agk_runs_here())

    def error_text(self, code: int) -> str:
        """Description of a status code."""
        text: bytes = self._error_text(code)
        return text.decode()

    def call(self, name: str, arguments: Arguments, stream: int | None) -> int:
        """Sets the struct's size, then queues the kernel on `stream`, or runs the reference if `stream` is None.

        Returns the status code.
        """
        arguments.struct_bytes = ctypes.sizeof(arguments)
        return self.call_unchecked(name, arguments, stream)

    def call_unchecked(self, name: str, arguments: Arguments, stream: int | None) -> int:
        """Like `call`, with the struct's size as the caller set it."""
        device, host = self._functions[name]
        at = ctypes.addressof(arguments)
        return int(host(at) if stream is None else device(at, stream))

    def run(self, name: str, arguments: Arguments, stream: int | None) -> None:
        """Like `call`, but raises KernelError with the library's text if the status is not OK."""
        code = self.call(name, arguments, stream)
        if code != Status.OK:
            raise KernelError(self.last_error(), where=self.path.name, found=f"code {code}: {self.error_text(code)}")

    def last_error(self) -> str:
        """Text of this thread's last failed call."""
        text: bytes = self._last_error()
        return text.decode()


def find_library() -> Path | None:
    """Path of the library: ANIMEGAMER_KERNELS, which may not exist, or a file in this package or build/kernels.

    None if no file is found or ANIMEGAMER_KERNELS is `off`.
    """
    named = os.environ.get(PATH_VARIABLE)
    if named:
        return None if named == OFF else Path(named)
    here = Path(__file__).resolve().parent
    found = (folder / FILE_NAME for folder in (here, here.parents[1] / "build" / "kernels"))
    return next((path for path in found if path.is_file()), None)


def open_library(path: Path | None = None) -> Library:
    """Opens the library at `path`, by default that of `find_library`. Raises KernelError."""
    chosen = path or find_library()
    if chosen is None or not chosen.is_file():
        where = chosen or (PATH_VARIABLE if os.environ.get(PATH_VARIABLE) else FILE_NAME)
        do = f"build it: make kernels; or set {PATH_VARIABLE}=FILE"
        raise KernelError("kernel library not found", where=where, do=do)
    return Library(chosen)
