"""One turn's two read-outs as one sequence: what they share once, then the shot's tail beside the state's.

Knows ids, positions and masks; no tokenizer and no network. The read-outs (MODEL.md section 2) differ from the first
shot query on, so a batch of two rows would compute most of a prompt twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tokens:
    """n tokens after a past of c: what one run of the predictor is given beside that past.

    ids, positions, history_index i64 [1, n] (index -1 = the token's own embedding, k >= 0 = row k of the resampled
    shots); mask bool [1, n, n] (True = may attend; the past is open to all); history_shots f32 [s, D], s >= 1;
    readout i64 [r]: where among the n the shot is read; kept i64 [k]: which of them later tokens see.
    """

    ids: IntArray
    positions: IntArray
    history_index: IntArray
    mask: npt.NDArray[np.bool_]
    history_shots: npt.NDArray[np.float32]
    readout: IntArray
    kept: IntArray

    @classmethod
    def plain(cls, ids: IntArray, start: int, shot_width: int) -> Tokens:
        """Text i64 [n] from position `start` on, causal and kept; its one shot row is read by nobody."""
        count = len(ids)
        return cls(
            ids=ids[None],
            positions=np.arange(start, start + count)[None],
            history_index=np.full((1, count), -1, np.int64),
            mask=np.tri(count, dtype=np.bool_)[None],
            history_shots=np.zeros((1, shot_width), np.float32),
            readout=np.zeros(1, np.int64),
            kept=np.arange(count),
        )


@dataclass(frozen=True, slots=True)
class Prompt:
    """One turn's prompt: the history, where both read-outs see it alike, then all that is left, packed (see `pack`)."""

    history: Tokens | None
    turn: Tokens
    history_turns: int

    @property
    def runs(self) -> tuple[Tokens, ...]:
        """What is read one after the other, each over the cache of the one before."""
        return (self.turn,) if self.history is None else (self.history, self.turn)


def pack(
    ids: IntArray,
    history_index: IntArray,
    history_shots: npt.NDArray[np.float32],
    *,
    queries: range,
    readout_start: int,
    history_tokens: int,
    history_turns: int = 0,
) -> Prompt:
    """Both read-outs of a prompt of L tokens as one sequence: what they share, the shot's tail, the state's tail.

    ids i64 [L]; history_index i64 [2, L], row 0 for the shot and row 1 for the state; history_shots f32 [s, D]. The
    shot's row opens `queries` to each other and ends with its last place read, the state's is causal to the end. Tails
    begin where the rows first differ, at the same position, and do not see each other. The first `history_tokens`, in
    which the rows must not differ, go apart: they are known before the instruction.
    """
    apart, length, end = history_tokens, len(ids), readout_start + len(queries)
    differ = np.flatnonzero(history_index[0] != history_index[1])
    shared = min([queries.start, *differ[:1].tolist()])
    assert apart <= shared, "the read-outs differ in what was to be read once"
    # Places in the prompt, in the order of the packed sequence.
    shot_row, state_tail = np.arange(apart, end), np.arange(shared, length)
    places = np.concatenate([shot_row, state_tail])
    split, first = len(shot_row), shared - apart
    mask = np.zeros((len(places), len(places)), np.bool_)
    mask[:split, :split] = np.tri(split, dtype=np.bool_)
    opened = slice(queries.start - apart, queries.stop - apart)
    mask[opened, opened] = True
    mask[split:, :first] = True
    mask[split:, split:] = np.tri(len(state_tail), dtype=np.bool_)
    injected = np.concatenate([history_index[0, apart:end], history_index[1, shared:]])
    turn = Tokens(
        ids=ids[places][None],
        positions=places[None],
        history_index=injected[None],
        mask=mask[None],
        history_shots=history_shots if (injected >= 0).any() else history_shots[:1],
        readout=np.arange(readout_start, end) - apart,
        kept=np.concatenate([np.arange(first), np.arange(split, len(places))]),
    )
    if not apart:
        return Prompt(None, turn, history_turns)
    history = Tokens.plain(ids[:apart], 0, history_shots.shape[1])
    history = replace(history, history_index=history_index[:1, :apart], history_shots=history_shots)
    return Prompt(history, turn, history_turns)
