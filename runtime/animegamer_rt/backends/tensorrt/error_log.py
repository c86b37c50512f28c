"""Keeps what TensorRT says about a failure: its functions return only None or False."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from animegamer_rt.errors import AnimeGamerError, BackendError, EngineStaleError

OTHER_BUILD = re.compile(r"version|magic tag|incompatible|expecting compute|rebuild", re.IGNORECASE)
"""Messages about an engine that was built by another version, or for another GPU."""
NO_MEMORY = re.compile(r"out of memory|OutOfMemory|MemoryAllocation|allocation failure", re.IGNORECASE)


def error_log(library: Any) -> Any:
    """A logger of TensorRT that collects its errors in `errors`."""

    class Errors(library.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            library.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity <= library.ILogger.ERROR:
                self.errors.append(message.strip())

    return Errors()


def unloadable(what: str, path: Path, said: str) -> AnimeGamerError:
    """The error for an engine that cannot be loaded, by what the library said."""
    if NO_MEMORY.search(said):
        do = "close other programs that use the GPU, or build the engines of a smaller precision"
        return BackendError(f"{what} has too little GPU memory for the engine", where=path, found=said, do=do)
    if OTHER_BUILD.search(said):
        do = "run: animegamer-rt build-engines for this GPU and library"
        return EngineStaleError(f"{what} cannot load the engine of another build", where=path, found=said, do=do)
    do = "check the driver with nvidia-smi, then restart the program"
    return BackendError(f"{what} cannot load the engine", where=path, found=said or "no reason given", do=do)
