"""The shared library of the kernels: found, opened, and called with one argument struct.

It does not know what an operator computes. The library is what `make kernels` builds.
"""

from __future__ import annotations

import ctypes
import os
import sys
from enum import IntEnum
from pathlib import Path

from .errors import KernelError

PATH_VARIABLE = "ANIMEGAMER_KERNELS"
OFF = "off"
"""What that variable says where no library shall be found."""
FILE_NAME = "animegamer_kernels.dll" if sys.platform == "win32" else "libanimegamer_kernels.so"
OPERATORS = (
    "norm_modulate",
    "gate_residual",
    "epilogue",
    "unpack",
    "packed_product",
    "guided_step",
    "head_norm",
    "head_norm_int8",
    "attention_int8",
    "pixels",
    "spatial_norm",
)


class Code(IntEnum):
    """What an operator returns; from CUDA_ERROR on, the CUDA runtime's own code is added. animegamer_kernels.h."""

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
    BAD_OPTION = 10
    CUDA_ERROR = 1000


class Arguments(ctypes.Structure):
    """Base of every operator's argument struct: it begins with its own size, which the library checks."""

    struct_bytes: int


class Library:
    """An open library. Calls are safe from several threads; an error's text belongs to the thread of the call."""

    def __init__(self, path: Path) -> None:
        """Raises KernelError if the file is no library of ours."""
        try:
            self._library = ctypes.CDLL(str(path))
            self._functions = {
                name: (getattr(self._library, f"agk_{name}"), getattr(self._library, f"agk_{name}_host"))
                for name in OPERATORS
            }
            self._last_error, self._error_text = self._library.agk_last_error, self._library.agk_error_text
        except (OSError, AttributeError) as error:
            raise KernelError(
                "not a library of these kernels", where=path, found=error, do="build it anew: make kernels"
            ) from error
        self.path = path
        self._last_error.restype = self._error_text.restype = ctypes.c_char_p
        for device, host in self._functions.values():
            device.argtypes, host.argtypes = (ctypes.c_void_p, ctypes.c_void_p), (ctypes.c_void_p,)

    @property
    def has_cuda(self) -> bool:
        """Whether the operators for CUDA are inside, or only their references."""
        return bool(self._library.agk_has_cuda())

    @property
    def runs_here(self) -> bool:
        """Whether they run on the current CUDA device: built for it, and its driver is new enough."""
        return bool(self._library.agk_runs_here())

    def error_text(self, code: int) -> str:
        """What a code means."""
        text: bytes = self._error_text(code)
        return text.decode()

    def call(self, name: str, arguments: Arguments, stream: int | None) -> int:
        """Queues the operator on a CUDA stream, or with `stream` None runs its reference on host memory; its code."""
        arguments.struct_bytes = ctypes.sizeof(arguments)
        return self.call_as_is(name, arguments, stream)

    def call_as_is(self, name: str, arguments: Arguments, stream: int | None) -> int:
        """As `call`, with the struct's size as it was set."""
        device, host = self._functions[name]
        at = ctypes.addressof(arguments)
        return int(host(at) if stream is None else device(at, stream))

    def run(self, name: str, arguments: Arguments, stream: int | None) -> None:
        """As `call`. Raises KernelError with the library's words if the operator refuses or cannot be launched."""
        code = self.call(name, arguments, stream)
        if code != Code.OK:
            raise KernelError(self.last_error(), where=self.path.name, found=f"code {code}: {self.error_text(code)}")

    def workspace(self, name: str, arguments: ctypes.Structure) -> int:
        """Bytes of working memory that an operator wants for such arguments."""
        function = getattr(self._library, f"agk_{name}_workspace")
        function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_int64
        return int(function(ctypes.addressof(arguments)))

    def last_error(self) -> str:
        """The words of this thread's last failing call."""
        words: bytes = self._last_error()
        return words.decode()


def find_library() -> Path | None:
    """The library's file where ANIMEGAMER_KERNELS says, there or not; else beside this package or in build/kernels.

    None if there is none, or the variable says `off`.
    """
    named = os.environ.get(PATH_VARIABLE)
    if named:
        return None if named == OFF else Path(named)
    here = Path(__file__).resolve().parent
    found = (folder / FILE_NAME for folder in (here, here.parents[1] / "build" / "kernels"))
    return next((path for path in found if path.is_file()), None)


def open_library(path: Path | None = None) -> Library:
    """The library at `path`, or else the one that is found. Raises KernelError if there is none."""
    chosen = path or find_library()
    if chosen is None or not chosen.is_file():
        where = chosen or (PATH_VARIABLE if os.environ.get(PATH_VARIABLE) else FILE_NAME)
        do = f"build it: make kernels; or name its file: {PATH_VARIABLE}=FILE"
        raise KernelError("the kernels' library is not there", where=where, do=do)
    return Library(chosen)
