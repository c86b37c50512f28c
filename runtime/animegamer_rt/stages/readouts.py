"""One turn's prompt as tensors: the history once, then one row for each read-out.

Knows ids, masks and positions; no tokenizer and no network. The two read-outs (MODEL.md section 2) are the same up to
the first shot query. So the history is shared by both, and can be prefilled before the instruction is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from animegamer_rt.backends.interface import IntArray, TokenBatch


@dataclass(frozen=True, slots=True)
class Prompt:
    """One turn's prompt. `history`: what both read-outs share, if anything; `turn`: the rest, in two rows."""

    history: TokenBatch | None
    turn: TokenBatch
    history_turns: int

    @property
    def runs(self) -> tuple[TokenBatch, ...]:
        """The prefills in order, each over the cache of the one before."""
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
    """Both read-outs of a prompt of L tokens: `queries` attend to each other in the shot's row; the state's is causal.

    ids i64 [L]; history_index i64 [2, L], row 0 for the shot and row 1 for the state; history_shots f32 [s, D]. The
    first `history_tokens` are shared: the rows must not differ there.
    """
    shared, length = history_tokens, len(ids)
    assert shared <= queries.start and (history_index[0, :shared] == history_index[1, :shared]).all()
    masks = np.broadcast_to(np.tri(length - shared, dtype=np.bool_), (2, length - shared, length - shared)).copy()
    bidirectional_span = slice(queries.start - shared, queries.stop - shared)
    masks[0, bidirectional_span, bidirectional_span] = True
    has_history_embeddings = (history_index[:, shared:] >= 0).any()
    turn = TokenBatch(
        ids=ids[None, shared:],
        history_index=history_index[:, shared:],
        masks=masks,
        history_shots=history_shots if has_history_embeddings else np.zeros_like(history_shots[:1]),
        readout=np.arange(readout_start, readout_start + len(queries)) - shared,
    )
    if not shared:
        return Prompt(None, turn, history_turns)
    history = TokenBatch.text(ids[:shared], history_shots.shape[1])
    history = replace(history, history_index=history_index[:1, :shared], history_shots=history_shots)
    return Prompt(history, turn, history_turns)
