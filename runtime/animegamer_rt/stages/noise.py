"""Standard normal values of a seed: several threads draw them, and they are those that one numpy generator gives.

Knows numpy's Philox; nothing of plans and engines. The stream is cut at fixed places. Philox can be entered anywhere,
so each thread draws a piece as if a value began at its first word. That is wrong for 1 piece in 50, as some values take
more than one word of 32 bits; such a piece is drawn again from where the one before it ended. So the values are right
by construction, whatever a value takes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from animegamer_rt.backends.interface import FloatArray
from animegamer_rt.profiling.host import available_cores

BLOCK_WORDS = 8
"""Philox gives four numbers of 64 bits a block, and float32 values take halves of them."""
PIECE_WORDS = 2**17
"""Words a piece: 1.4 ms of a core; reading and setting positions takes some 0.05 ms of it."""
MAX_THREADS = 8
Piece = tuple[FloatArray, int, int]
"""Values, the word that the first begins at, and the word that the one behind the last begins at."""


def normal_arrays(
    seeds: Sequence[int], shape: tuple[int, ...], count: int, *, piece_words: int = PIECE_WORDS
) -> Iterator[FloatArray]:
    """`count` arrays f32 of `shape`, as `Generator(Philox(SeedSequence(seeds))).standard_normal` gives them in turn.

    piece_words: how much a thread draws at a time, a multiple of BLOCK_WORDS.
    """
    size = math.prod(shape)
    pieces, rest = _pieces(seeds, size * count, piece_words), np.empty(0, np.float32)
    for _ in range(count):
        values, filled = np.empty(size, np.float32), 0
        while filled < size:
            rest = rest if len(rest) else next(pieces)
            some, rest = rest[: size - filled], rest[size - filled :]
            values[filled : filled + len(some)] = some
            filled += len(some)
        yield values.reshape(shape)


def _pieces(seeds: Sequence[int], count: int, piece_words: int) -> Iterator[FloatArray]:
    """At least `count` values of the stream, in pieces; threads are some pieces ahead."""
    threads = min(MAX_THREADS, available_cores())
    piece_words = min(piece_words, math.ceil(count / BLOCK_WORDS) * BLOCK_WORDS)
    ahead: deque[Future[Piece]] = deque()
    first, word = 0, 0
    pool = ThreadPoolExecutor(threads, "noise")
    try:
        while count > 0:
            # A piece has at most as many values as words, so none is begun that is not needed.
            while len(ahead) < 2 * threads and len(ahead) * piece_words < count:
                ahead.append(pool.submit(_draw, seeds, first, first + piece_words))
                first += piece_words
            values, begins, ends = ahead.popleft().result()
            if begins != word:  # a value of the piece before reaches into this one
                values, _, ends = _draw(seeds, word, begins + piece_words)
            word, count = ends, count - len(values)
            yield values
    finally:  # all are drawn, or the turn stopped early
        pool.shutdown(wait=False, cancel_futures=True)


def _draw(seeds: Sequence[int], begins: int, until: int) -> Piece:
    """The values that begin at words `begins` to `until` - 1, if one begins at the first of them."""
    bits = np.random.Philox(np.random.SeedSequence(seeds))
    bits.advance(begins // BLOCK_WORDS)
    generator = np.random.Generator(bits)
    generator.integers(2**32, size=begins % BLOCK_WORDS, dtype=np.uint32)  # a word each
    values, filled, word = np.empty(until - begins, np.float32), 0, begins  # a value takes at least a word
    while word < until:
        before, count = bits.state, (until - word) * 7 // 8 or 1
        generator.standard_normal(dtype=np.float32, out=values[filled : filled + count])
        if _position(bits) > until and count > 1:  # the last of them may begin beyond the end
            bits.state, count = before, 1
            generator.standard_normal(dtype=np.float32, out=values[filled : filled + 1])
        word, filled = _position(bits), filled + count
    return values[:filled], begins, word


def _position(bits: np.random.Philox) -> int:
    """How many words the generator has used."""
    state = bits.state
    blocks = int(state["state"]["counter"][0])  # begun ones
    return BLOCK_WORDS * (blocks - 1) + 2 * int(state["buffer_pos"]) - int(state["has_uint32"])
