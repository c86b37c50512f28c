"""One turn's prompt as the predictor reads it: the history once, then a row for each read-out over that.

Knows ids, masks and places; no tokenizer and no network. The read-outs (MODEL.md section 2) differ from the first shot
query on, so all that lies before the turn is the past of both, and is known before the instruction is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from animegamer_rt.backends.interface import IntArray, TokenBatch


@dataclass(frozen=True, slots=True)
class Prompt:
    """One turn's prompt: the history, where both read-outs see it alike, then all that is left, in two rows."""

    history: TokenBatch | None
    turn: TokenBatch
    history_turns: int

    @property
    def runs(self) -> tuple[TokenBatch, ...]:
        """What is read one after the other, each over the cache of the one before."""
        return (self.turn,) if self.history is None else (self.history, self.turn)


def build_readouts(
    ids: IntArray,
    history_index: IntArray,
    history_shots: npt.NDArray[np.float32],
    *,
    queries: range,
    readout_start: int,
    history_tokens: int,
    history_turns: int = 0,
) -> Prompt:
    """Both read-outs of a prompt of L tokens: the shot's row opens `queries` to each other, the state's is causal.

    ids i64 [L]; history_index i64 [2, L], row 0 for the shot and row 1 for the state; history_shots f32 [s, D]. The
    first `history_tokens`, in which the rows must not differ, go apart.
    """
    apart, length = history_tokens, len(ids)
    assert apart <= queries.start and (history_index[0, :apart] == history_index[1, :apart]).all()
    masks = np.broadcast_to(np.tri(length - apart, dtype=np.bool_), (2, length - apart, length - apart)).copy()
    opened = slice(queries.start - apart, queries.stop - apart)
    masks[0, opened, opened] = True
    injects = (history_index[:, apart:] >= 0).any()
    turn = TokenBatch(
        ids=ids[None, apart:],
        history_index=history_index[:, apart:],
        masks=masks,
        history_shots=history_shots if injects else np.zeros_like(history_shots[:1]),
        readout=np.arange(readout_start, readout_start + len(queries)) - apart,
    )
    if not apart:
        return Prompt(None, turn, history_turns)
    history = TokenBatch.text(ids[:apart], history_shots.shape[1])
    history = replace(history, history_index=history_index[:1, :apart], history_shots=history_shots)
    return Prompt(history, turn, history_turns)
