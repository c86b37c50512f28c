"""Reads selftest.npz, the recorded outputs of a bundle's parts, without trusting what it says about its own size.

Knows the file; nothing of what the outputs are of.
"""

from __future__ import annotations

import io
import re
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
    members = _members(read_bounded(path, MAX_FILE_BYTES))
    found, outputs = _text(members.pop(MADE_OF, None)), {}
    if made_of not in (None, found):
        return found, {}
    for name, content in members.items():
        array = _array(name, content)
        if array.dtype != np.float32 or array.ndim != 1 or not np.isfinite(array).all():
            raise ValueError(f"{ascii(name)} is not a row of finite float32")
        outputs[name] = array.astype(np.float32, copy=False)
    return found, outputs


def _text(content: bytes | None) -> str:
    if content is None:
        return ""
    array = _array(MADE_OF, content)
    if array.dtype.kind != "U" or array.ndim:
        raise ValueError(f"{MADE_OF} is not a text")
    return str(array)


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
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _array(name: str, content: bytes) -> npt.NDArray[np.generic]:
    """The array of an .npy file. Its header is Python source, which is matched here and never evaluated."""
    found = _HEADER.match(content)
    if found is None:
        raise ValueError(f"{ascii(name)} is not an array of float32 or a text")
    dtype, length = np.dtype(found[1].decode()), found[2]
    count = 1 if length is None else int(length)
    if count * dtype.itemsize != len(content) - found.end():
        raise ValueError(f"{ascii(name)} has another size than it says")
    array: npt.NDArray[np.generic] = np.frombuffer(content, dtype, count, found.end())
    return array.reshape(() if length is None else (count,))
