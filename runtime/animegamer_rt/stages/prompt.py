"""Builds one turn's prompt: token ids, where earlier shots go in, and the rows for the readouts (MODEL.md section 2).

The two readouts are the same up to the first shot query. So they share the history, which can be prefilled before the
instruction is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sentencepiece

from animegamer_rt.backends.interface import IntArray, TokenBatch
from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import MAX_TOKEN_ID, Compatibility
from animegamer_rt.errors import BundleFileError, InstructionError
from animegamer_rt.state.game import NEUTRAL, STRENGTH_VALUES, STRENGTHS, GameState
from animegamer_rt.untrusted import short

STATE_TAGS = tuple(zip(STRENGTHS, ("ML", "SC", "ET", "ST"), strict=True))
"""Each strength and its tag, in the order of the prompt."""

REFERENCE_READOUT_SHIFT = 3
"""Quirk: the reference reads the last 226 positions, which are q3..q225, `</frame>`, `</img>`, `<ML>`."""

MAX_TOKENS_BYTES = 4 * 2**20
BUILD_AGAIN = "build the bundle again"

_NO_DUMMY_PREFIX = b"\x1a\x02\x18\x00"
"""A protobuf tail that merges `normalizer_spec { add_dummy_prefix: false }` into a sentencepiece model.

Text follows <TURN> directly, without a leading space mark (transformers' legacy=False)."""


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """One earlier turn in a prompt: caption text, strengths, and the shot fp16 [226, D]."""

    text: str
    game_state: GameState
    shot: npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One turn's prompt. `history`: what both readouts share, if anything; `turn`: the rest, in two rows."""

    history: TokenBatch | None
    turn: TokenBatch
    history_turns: int

    @property
    def runs(self) -> tuple[TokenBatch, ...]:
        """The prefills in order, each over the previous one's cache."""
        return (self.turn,) if self.history is None else (self.history, self.turn)


class PromptBuilder:
    """Builds prompts from text and history with one bundle's tokenizer. Thread-safe and stateless."""

    def __init__(
        self,
        model: Path,
        added_tokens: Path,
        compatibility: Compatibility,
        shot_width: int,
        window_tokens: int,
        bos: int = 1,
        shot_tokens: int = 226,
    ) -> None:
        self._words = open_sentencepiece(model)
        self._added = _read_added_tokens(added_tokens, shot_tokens)
        self._compatibility = compatibility
        self._shot_width, self._shot_tokens = shot_width, shot_tokens
        self._window_tokens, self._bos = window_tokens, bos
        self._first_query = self._added["<frame_00000>"]
        self._shot_block = [
            *self._ids("<img>", "<frame>"),
            *(self._added[f"<frame_{n:05d}>"] for n in range(shot_tokens)),
            *self._ids("</frame>", "</img>"),
        ]
        self.strength_ids = tuple(self._added[f"<Strength_{strength}>"] for strength in STRENGTH_VALUES)
        """Token ids of the eleven strengths, -5 first."""
        self.between_slots = tuple(
            tuple(self._ids(f"</{tag}>", f"<{next_tag}>"))
            for (_, tag), (_, next_tag) in zip(STATE_TAGS, STATE_TAGS[1:], strict=False)
        )
        """Fixed tokens between a chosen strength and the next slot."""

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> PromptBuilder:
        """The prompt builder of a bundle. Raises BundleFileError if its tokenizer cannot be read."""
        manifest, geometry = bundle.manifest, bundle.manifest.geometry
        return cls(
            bundle.path(manifest.tokenizer.model),
            bundle.path(manifest.tokenizer.added_tokens),
            manifest.compatibility,
            geometry.shot_width,
            geometry.window_tokens,
            manifest.tokenizer.bos,
            geometry.shot_tokens,
        )

    def encode_text(self, text: str) -> list[int]:
        """Token ids of plain text. Tags in it count as plain text: a player cannot insert control tokens."""
        return list(self._words.encode(text))

    def build(self, text: str, history: Sequence[HistoryTurn]) -> Prompt:
        """The prompt of an instruction after `history` (oldest first).

        Drops the oldest turns until the prompt fits the window; `Prompt.history_turns` is how many are left.
        Raises InstructionError if the instruction alone does not fit.
        """
        current = [self._added["<TURN>"], *self.encode_text(text)]
        tail = [*current, *self._shot_block, self._added[f"<{STATE_TAGS[0][1]}>"]]
        if 1 + len(tail) > self._window_tokens:
            raise InstructionError(
                "the instruction does not fit the model's window",
                found=f"{1 + len(tail)} tokens",
                expected=f"at most {self._window_tokens}",
                do="shorten it",
            )
        blocks = [self._history_block(turn) for turn in history]
        while 1 + sum(map(len, blocks)) + len(tail) > self._window_tokens:
            blocks.pop(0)
        return self._assemble(blocks, history[len(history) - len(blocks) :], tail, len(current) + 2)

    def _assemble(
        self, blocks: list[list[int]], history: Sequence[HistoryTurn], tail: list[int], queries_in_tail: int
    ) -> Prompt:
        ids = [self._bos]
        index: list[int] = [-1]
        for row, block in enumerate(blocks):
            first, count = row * self._shot_tokens, block.index(self._first_query)
            index += [-1] * count + list(range(first, first + self._shot_tokens))
            ids += block
            index += [-1] * (len(ids) - len(index))
        before, first_query = len(ids), len(ids) + queries_in_tail
        ids += tail
        index += [-1] * len(tail)
        shots = np.zeros((max(len(history), 1) * self._shot_tokens, self._shot_width), np.float32)
        for row, turn in enumerate(history):
            shots[row * self._shot_tokens : (row + 1) * self._shot_tokens] = turn.shot

        shared = self._compatibility.history_embeddings_in_state
        state_index = index if shared else [-1] * len(ids)
        shift = REFERENCE_READOUT_SHIFT if self._compatibility.readout == "reference" else 0
        return build_readouts(
            np.array(ids, np.int64),
            np.array([index, state_index], np.int64),
            shots,
            queries=range(first_query, first_query + self._shot_tokens),
            readout_start=first_query + shift,
            history_tokens=before if history and shared else 0,
            history_turns=len(history),
        )

    def _history_block(self, turn: HistoryTurn) -> list[int]:
        zero = self._compatibility.history_strengths == "zero"
        return [
            self._added["<TURN>"],
            *self.encode_text(turn.text),
            *self._shot_block,
            *self._state_block(NEUTRAL if zero else turn.game_state),
        ]

    def _state_block(self, game_state: GameState) -> list[int]:
        tokens: list[str] = []
        for name, tag in STATE_TAGS:
            tokens += [f"<{tag}>", f"<Strength_{getattr(game_state, name)}>", f"</{tag}>"]
        # Quirk: the published weights were trained with the doubled </ST>.
        return self._ids(*tokens, "</ST>", "</TURN>")

    def _ids(self, *tokens: str) -> list[int]:
        return [self._added[token] for token in tokens]


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
    """Both readouts of a prompt of L tokens: `queries` attend to each other in the shot's row; the state's is causal.

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


def open_sentencepiece(path: Path, space_first: bool = False) -> sentencepiece.SentencePieceProcessor:
    """A sentencepiece tokenizer; `space_first` puts a space mark before the text. Raises BundleFileError."""
    try:
        return sentencepiece.SentencePieceProcessor(
            model_proto=path.read_bytes() + (b"" if space_first else _NO_DUMMY_PREFIX)
        )
    except (OSError, RuntimeError) as error:
        raise BundleFileError("the tokenizer cannot be read", where=path, found=str(error), do=BUILD_AGAIN) from error


def _read_added_tokens(path: Path, shot_tokens: int) -> dict[str, int]:
    try:
        added = read_json(path, MAX_TOKENS_BYTES)
    except (OSError, ValueError) as error:
        raise BundleFileError(
            "the added tokens cannot be read", where=path, found=str(error), do=BUILD_AGAIN
        ) from error
    if not isinstance(added, dict):
        found, expected = type(added).__name__, "a JSON object of tokens and ids"
        raise BundleFileError("not a table of tokens", where=path, found=found, expected=expected, do=BUILD_AGAIN)
    wrong = [token for token, number in added.items() if type(number) is not int or not 0 <= number <= MAX_TOKEN_ID]
    if wrong:
        found, expected = f"{short(wrong[0])}: {added[wrong[0]]!r:.40}", f"a whole number from 0 to {MAX_TOKEN_ID}"
        raise BundleFileError("not a token id", where=path, found=found, expected=expected, do=BUILD_AGAIN)
    if len(set(added.values())) < len(added):
        raise BundleFileError("two added tokens have the same id", where=path, do=BUILD_AGAIN)
    needed = ["<TURN>", "</TURN>", "<img>", "</img>", "<frame>", "</frame>"]
    needed += [f"<{slash}{tag}>" for _, tag in STATE_TAGS for slash in ("", "/")]
    needed += [f"<Strength_{strength}>" for strength in STRENGTH_VALUES]
    needed += [f"<frame_{n:05d}>" for n in range(shot_tokens)]
    missing = [token for token in needed if token not in added]
    if missing:
        found = f"no id for {', '.join(missing[:5])}"
        raise BundleFileError("added tokens are missing", where=path, found=found, do=BUILD_AGAIN)
    table: dict[str, int] = added
    return table
