"""Reads selftest.npz, the recorded outputs of a bundle's parts, without trusting what it says about its own size.

Knows the file; nothing of what the outputs are of.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from animegamer_rt.bundle.files import read_bounded

MADE_OF = "bundle"
"""The member that says, as text, of which parts the outputs are."""
MAX_FILE_BYTES, MAX_MEMBER_BYTES, MAX_MEMBERS = 16 * 2**20, 2 * 2**20, 256
"""An output has 4096 float32 at most; the text is of some ten thousand characters of four bytes."""
_HEADER = re.compile(
    rb"\x93NUMPY(?:\x01\x00..|\x02\x00....)\{'descr': '(<f4|<U[1-9][0-9]{0,6})', 'fortran_order': False, "
    rb"'shape': \((?:([0-9]{1,9}),)?\), \} *\n",
    re.DOTALL,
)
"""numpy's format 1.0 or 2.0 of a row or of a single value; source: numpy.lib.format."""


def read_arrays(path: Path, made_of: str | None = None) -> tuple[str, dict[str, npt.NDArray[np.float32]]]:
    """The text under MADE_OF ("" without one) and the outputs by name, float32 and finite, one axis each.

    made_of: the text that is wanted; the outputs of another one are left out.

    Raises OSError where the file cannot be read, ValueError, in words, where it is not such a file.
    """
    content, text, outputs = read_bounded(path, MAX_FILE_BYTES), "", {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as held:
            names = sorted(held.namelist(), key=f"{MADE_OF}.npy".__ne__)
            if len(names) > MAX_MEMBERS:
                raise ValueError(f"it has {len(names)} members; expected at most {MAX_MEMBERS}")
            for name in names:
                array = _array(ascii(name), held.open(name))
                if name == f"{MADE_OF}.npy":
                    if array.dtype.kind != "U" or array.ndim:
                        raise ValueError(f"{MADE_OF} is not a text")
                    text = str(array)
                    if made_of not in (None, text):
                        return text, {}
                elif array.dtype != np.float32 or array.ndim != 1 or not np.isfinite(array).all():
                    raise ValueError(f"{ascii(name)} is not a row of finite float32")
                else:
                    outputs[name.removesuffix(".npy")] = array.astype(np.float32, copy=False)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    return text, outputs


def _array(name: str, member: IO[bytes]) -> npt.NDArray[np.generic]:
    """The array of an .npy file, of which no more is unpacked than it may have, whatever it says of its size.

    The header is Python source, which is matched here and never evaluated.
    """
    content = member.read(MAX_MEMBER_BYTES + 1)
    header = _HEADER.match(content)
    if len(content) > MAX_MEMBER_BYTES or header is None:
        raise ValueError(f"{name} is not an array of float32 or a text, of at most {MAX_MEMBER_BYTES} bytes")
    dtype, shape = np.dtype(header[1].decode()), () if header[2] is None else (int(header[2]),)
    if math.prod(shape) * dtype.itemsize != len(content) - header.end():
        raise ValueError(f"{name} has another size than it says")
    array: npt.NDArray[np.generic] = np.frombuffer(content, dtype, offset=header.end()).reshape(shape)
    return array
