"""Reads selftest.npz, the recorded outputs of a bundle's parts, without trusting what it says about its own size.

Knows the file; nothing of what the outputs are of.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from animegamer_rt.bundle.files import read_bounded

MADE_OF = "bundle"
"""The member that says, as text, of which parts the outputs are."""
MAX_FILE_BYTES, MAX_MEMBER_BYTES, MAX_MEMBERS = 16 * 2**20, 2 * 2**20, 256
"""An output has 4096 float32 at most; the text is of some ten thousand characters of four bytes."""


def read_arrays(path: Path) -> tuple[str, dict[str, npt.NDArray[np.float32]]]:
    """The text under MADE_OF ("" without one) and the outputs by name, float32 and finite, one axis each.

    Raises OSError where the file cannot be read, ValueError, in words, where it is not such a file.
    """
    members = _members(read_bounded(path, MAX_FILE_BYTES))
    made_of, outputs = "", {}
    for name, content in members.items():
        array = _array(name, content)
        if name == MADE_OF:
            if array.dtype.kind != "U" or array.ndim:
                raise ValueError(f"{name} is not a text")
            made_of = str(array)
        elif array.dtype != np.float32 or array.ndim != 1 or not np.isfinite(array).all():
            raise ValueError(f"{ascii(name)} is not a row of finite float32")
        else:
            outputs[name] = array
    return made_of, outputs


def _members(content: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as held:
            infos = held.infolist()
            if len(infos) > MAX_MEMBERS:
                raise ValueError(f"it has {len(infos)} members; expected at most {MAX_MEMBERS}")
            found = {}
            for info in infos:
                with held.open(info) as member:
                    # What a member says of its own size may be wrong: no more than this is ever unpacked.
                    data = member.read(MAX_MEMBER_BYTES + 1)
                if len(data) > MAX_MEMBER_BYTES:
                    raise ValueError(f"{ascii(info.filename)} has more than {MAX_MEMBER_BYTES} bytes")
                found[info.filename.removesuffix(".npy")] = data
            return found
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _array(name: str, content: bytes) -> npt.NDArray[np.generic]:
    file = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
            raise ValueError("its size is not the one that it says")
        file.seek(0)
        array: npt.NDArray[np.generic] = np.load(file, allow_pickle=False)
        return array
    except (ValueError, EOFError, OSError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise ValueError(f"{ascii(name)} is not an array: {str(error).partition(chr(10))[0][:200]}") from error
