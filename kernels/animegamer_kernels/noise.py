"""Normal numbers of a seed, a turn and a draw, and weighted sums of them; the same bits on every device.

It does not have the table: the caller passes it. Contract: kernels/csrc/animegamer_kernels.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod

from .arrays import Array, Dtype, SameDevice
from .library import Arguments, Library

NOISE_TABLE = 65536
"""Number of values in the table."""


class NoiseArguments(Arguments):
    """struct agk_noise_args."""

    _fields_ = [
        ("struct_bytes", ctypes.c_uint32),
        ("draws", ctypes.c_int32),
        *((name, ctypes.c_int64) for name in ("count", "first")),
        *((name, ctypes.c_void_p) for name in ("turn", "table", "weights", "out")),
    ]


def noise(
    library: Library, turn: Array, table: Array, first: int, weights: Sequence[float], out: Array, stream: int = 0
) -> None:
    """Writes the weighted sum of the draws `first`, `first` + 1, ..., one for each weight, to out, float32.

    turn: int64 [3], the bits of the seed's low and high half and of the turn, read when the kernel runs. table: float32
    [NOISE_TABLE]. weights: rounded to float32, copied by the call. Raises KernelError.
    """
    device, copied = SameDevice(out), (ctypes.c_float * len(weights))(*weights)
    arguments = NoiseArguments(
        0,
        len(weights),
        prod(out.shape),
        first,
        device.address("turn", turn, (3,), Dtype.I64),
        device.address("table", table, (NOISE_TABLE,), Dtype.F32),
        ctypes.addressof(copied),
        device.address("out", out, tuple(out.shape), Dtype.F32),
    )
    library.run("noise", arguments, device.stream(stream))
