"""The denoiser's noise: normal numbers that depend on seed, turn and draw alone, the same bits in every implementation.

Philox4x64-10 gives 64-bit words from a key (the seed) and a counter (block, draw, turn, version). 16 bits select one of
65536 values of a table, and the sum and the difference of two values are two numbers. Tails, moments and correlations
were tested on 10^9 numbers; they end at 6.2. Words of numpy's bit generators never change, unlike its normal numbers.
This file is the reference; kernels/csrc/noise.cu and backends/torch/noise.py give the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import prod

import numpy as np
import numpy.typing as npt

from .errors import BackendError

FloatArray = npt.NDArray[np.float32]

VERSION = 2
"""Of the noise of new turns. Turns stored without a version have 1: numpy's own normal numbers."""
SEEDS = 2**128
"""Number of different seeds: a seed is Philox's key."""
TABLE_SHA256 = "a3e4c33d34253f8f76a0ebfb2789483312c4b27ebbed9f7fc57d19686fb37440"
WORD_VALUES = 4
"""Table values from one word: its 16-bit parts, the lowest first."""
BLOCK_VALUES = 4 * WORD_VALUES
"""Table values from a block, Philox's four words."""
PIECE = 1688
"""Blocks drawn at a time: 27008 numbers, whose words, table and sums stay in a core's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """A weighted sum of a turn's draws `first`, `first` + 1, ..., one for each of the `weights` f32 [n].

    Draw 0 is the turn's initial latent. The sum of no draws is zero. seed: 0 to SEEDS - 1.
    """

    seed: int
    turn: int
    first: int
    weights: FloatArray
    shape: tuple[int, ...]

    @property
    def key(self) -> npt.NDArray[np.uint64]:
        """u64 [3]: the seed's low and high half, and the turn."""
        seed = int(self.seed)
        return np.array([seed % 2**64, seed >> 64, self.turn], np.uint64)

    def array(self) -> FloatArray:
        """The numbers, f32 of `shape`."""
        count = prod(self.shape)
        blocks = -(-count // (2 * BLOCK_VALUES))
        halves = np.empty((2, blocks * BLOCK_VALUES), np.float32)
        philox = np.random.Philox(key=self.key[:2])
        for start in range(0, blocks, PIECE):
            size = min(PIECE, blocks - start)
            piece = slice(start * BLOCK_VALUES, (start + size) * BLOCK_VALUES)
            one, other = self._sum(philox, start, size), self._sum(philox, blocks + start, size)
            np.add(one, other, out=halves[0, piece])
            np.subtract(one, other, out=halves[1, piece])
        return halves.reshape(-1)[:count].reshape(self.shape)

    def _sum(self, philox: np.random.Philox, block: int, size: int) -> FloatArray:
        """The weighted table values of `size` blocks, added in ascending order of the draws."""
        table, state = load_table(), philox.state
        total = np.zeros(size * BLOCK_VALUES, np.float32)
        for draw, weight in enumerate(self.weights, self.first):
            # numpy adds 1 before it takes a block. A new generator would take twenty times as long as a new state.
            state["state"]["counter"][:] = block, draw, self.turn, VERSION
            philox.state = state
            words = philox.random_raw(size * 4)
            values = table.take(words.astype("<u8", copy=False).view("<u2"))
            values *= weight
            total = values if draw == self.first else np.add(total, values, out=total)
        return total


AnyNoise = Noise | FloatArray
"""What an engine is given: draws, which it may make where it runs, or numbers."""


def draw_turn(
    seed: int, turn: int, weights: Sequence[FloatArray], shape: tuple[int, ...], version: int = VERSION
) -> Iterator[AnyNoise]:
    """A turn's noise: the initial latent, then the weighted sum of the next draws for each of `weights` f32 [n]."""
    if version == 1:
        yield from _draw_version_1(seed, turn, weights, shape)
        return
    first = 0
    for of_step in (np.ones(1, np.float32), *weights):
        yield Noise(seed, turn, first, of_step, shape)
        first += len(of_step)


def _draw_version_1(
    seed: int, turn: int, weights: Sequence[FloatArray], shape: tuple[int, ...]
) -> Iterator[FloatArray]:
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, turn])))
    noise = generator.standard_normal(shape, np.float32)
    yield noise
    for of_step in weights:
        noise = np.zeros(shape, np.float32) if len(of_step) else noise
        for weight in of_step:
            noise += weight * generator.standard_normal(shape, np.float32)
        yield noise


def as_array(noise: AnyNoise) -> FloatArray:
    """The numbers of noise, for an engine that does not draw them itself."""
    return noise.array() if isinstance(noise, Noise) else noise


@cache
def load_table() -> FloatArray:
    """The table, f32 [65536]: the means of as many equally likely parts of the normal distribution, times sqrt(1/2).

    The file holds its upper half; the lower is its mirror image. Raises BackendError for a file that was changed.
    """
    path = files("animegamer_rt").joinpath("noise_table.f32")
    upper = np.frombuffer(path.read_bytes(), "<f4").astype(np.float32)
    table = np.concatenate([-upper[::-1], upper])
    found = hashlib.sha256(table.astype("<f4", copy=False).tobytes()).hexdigest()
    if found != TABLE_SHA256:
        raise BackendError(
            "the table of the noise is damaged", where=path, found=found, expected=TABLE_SHA256, do="install again"
        )
    return table
