"""Instruction and history -> shot and game state: one prefill, then constrained decoding of the four strengths.

The state's text has a fixed template with four slots. Each is filled with one of the eleven strengths, so the model
cannot produce anything else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from animegamer_rt.backends.interface import (
    FloatArray,
    OutputCheck,
    PredictorEngine,
    Prefill,
    StateSlots,
    TokenBatch,
)
from animegamer_rt.bundle.roles import PREDICTOR
from animegamer_rt.state.game import STRENGTH_VALUES, STRENGTHS, GameState, Instruction

from .prompt import HistoryTurn, Prompt, PromptBuilder


@dataclass(frozen=True, slots=True)
class Prediction:
    """The next shot f32 [226, D], the game state, the history turns that fit the window, and the seconds it took."""

    shot: FloatArray
    game_state: GameState
    history_turns: int
    seconds: float


class Predictor:
    """One bundle's predictor: engine and tokenizer. Calls from several threads run one at a time.

    precision: the engine's, for errors.
    """

    def __init__(self, engine: PredictorEngine, prompt_builder: PromptBuilder, precision: str = "") -> None:
        self._engine = engine
        self._check = OutputCheck(PREDICTOR, precision)
        self._prompt_builder = prompt_builder
        self._slots = StateSlots(prompt_builder.strength_ids, prompt_builder.between_slots)
        self._prepared: tuple[TokenBatch, object] | None = None
        # A prompt's cache stays in the engine's memory until its state is decoded.
        self._lock = threading.Lock()

    def prepare(self, history: Sequence[HistoryTurn]) -> None:
        """Prefills a history ahead of time, for the next `predict`.

        `predict` uses the cache if its history is the same, else it prefills its own; the result is the same.
        """
        tokens = self._prompt_builder.build("", history).history
        if tokens is None:
            return
        with self._lock:
            cache = self._take(tokens)
            self._prepared = tokens, self._engine.prefill(tokens).cache if cache is None else cache

    def predict(self, history: Sequence[HistoryTurn], instruction: Instruction) -> Prediction:
        """The shot and state of a turn; the same arguments give the same result.

        Raises InstructionError if the instruction does not fit the window, UnusableOutputError for a shot or logits
        that are not finite.
        """
        with self._lock:
            started = time.perf_counter()
            prompt = self._prompt_builder.build(instruction.text, history)
            prefill = prefill_prompt(self._engine, prompt, self._take(prompt.history))
            shot, first = self._check.numbers("shot", prefill.shot), self._choose(prefill.logits)
            if prefill.choose_next is None:
                others = self._extend(prefill.cache, first)
            else:
                others = map(int, self._check.numbers("state's choices", prefill.choose_next(self._slots, first)))
            choices = zip(STRENGTHS, (first, *others), strict=True)
            state = GameState(**{name: STRENGTH_VALUES[choice] for name, choice in choices})
            return Prediction(shot, state, prompt.history_turns, time.perf_counter() - started)

    def _extend(self, cache: object, choice: int) -> Iterator[int]:
        """The choices after the first one, each from the logits after the previous one."""
        for fixed in self._slots.between:
            tokens = np.array([self._slots.options[choice], *fixed], np.int64)
            logits, cache = self._engine.extend(tokens, cache)
            choice = self._choose(logits)
            yield choice

    def _take(self, history: TokenBatch | None) -> object | None:
        """The prepared cache, if it is for this history. It can be used once: the next prefill may reuse its memory."""
        prepared, self._prepared = self._prepared, None
        if history is None or prepared is None or not prepared[0].same_as(history):
            return None
        return prepared[1]

    def _choose(self, logits: FloatArray) -> int:
        return int(np.argmax(self._check.numbers("state's logits", logits[list(self._slots.options)])))


def prefill_prompt(engine: PredictorEngine, prompt: Prompt, past: object | None = None) -> Prefill:
    """Prefills a prompt: its history, if separate, then the turn over the history's cache.

    past: the history's cache, if it was prefilled before.
    """
    if past is None and prompt.history is not None:
        past = engine.prefill(prompt.history).cache
    return engine.prefill(prompt.turn, past)
