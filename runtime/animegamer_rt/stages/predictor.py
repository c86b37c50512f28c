"""Instruction and history -> shot and game state: the prompt read once, then constrained choices of the four strengths.

Knows prompts and the predictor part; nothing of the denoiser, the vae or the session. The state's text has a fixed
template, so only its four slots are free and each is chosen among the eleven strengths: no other answer can come out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from animegamer_rt.backends.interface import FloatArray, PredictorEngine, Prefill, TokenBatch
from animegamer_rt.errors import BackendError
from animegamer_rt.state.game import STRENGTHS, GameState
from animegamer_rt.state.instruction import Instruction

from .prompt import STATE_TAGS, HistoryTurn, PromptBuilder
from .readouts import Prompt


@dataclass(frozen=True, slots=True)
class Prediction:
    """The next shot f32 [226, D], the game state, how many history turns fitted the window, and the seconds it took."""

    shot: FloatArray
    game_state: GameState
    history_turns: int
    seconds: float


class Predictor:
    """One bundle's predictor: its engine and its tokenizer. One call at a time runs; other threads wait for it."""

    def __init__(self, part: PredictorEngine, prompt_builder: PromptBuilder) -> None:
        self._part = part
        self._prompt_builder = prompt_builder
        self._strength_ids = np.array(prompt_builder.strength_ids, np.int64)
        self._prepared: tuple[TokenBatch, object] | None = None
        # A prompt's cache lives in the part's memory until its answer is read.
        self._alone = threading.Lock()

    def prepare(self, history: Sequence[HistoryTurn]) -> None:
        """Reads a history while nobody waits, for the next `predict`.

        `predict` uses it if its history is the same, and otherwise reads its own: either way the answer is the same.
        """
        tokens = self._prompt_builder.build("", history).history
        if tokens is None:
            return
        with self._alone:
            cache = self._take(tokens)
            self._prepared = tokens, self._part.prefill(tokens).cache if cache is None else cache

    def predict(self, history: Sequence[HistoryTurn], instruction: Instruction) -> Prediction:
        """Depends on its arguments only, so the same history gives the same shot, however often it is asked.

        Raises InstructionError when the instruction does not fit the window.
        """
        with self._alone:
            return self._predict(history, instruction)

    def _predict(self, history: Sequence[HistoryTurn], instruction: Instruction) -> Prediction:
        started = time.perf_counter()
        prompt = self._prompt_builder.build(instruction.text, history)
        prefill = read(self._part, prompt, self._take(prompt.history))
        choices = [self._choose(prefill.logits)]
        cache = prefill.cache
        for fixed in self._prompt_builder.between_slots:
            tokens = np.array([self._strength_ids[choices[-1]], *fixed], np.int64)
            logits, cache = self._part.extend(tokens, cache)
            choices.append(self._choose(logits))
        strengths = {name: STRENGTHS[choice] for (name, _), choice in zip(STATE_TAGS, choices, strict=True)}
        seconds = time.perf_counter() - started
        return Prediction(prefill.shot, GameState(**strengths), prompt.history_turns, seconds)

    def _take(self, history: TokenBatch | None) -> object | None:
        """The prepared cache, if it is of this history; it serves once, as what is read next may take its memory."""
        prepared, self._prepared = self._prepared, None
        if history is None or prepared is None or not prepared[0].same_as(history):
            return None
        return prepared[1]

    def _choose(self, logits: FloatArray) -> int:
        allowed = logits[self._strength_ids]
        if np.isnan(allowed).any():
            raise BackendError("the predictor's logits are not numbers", do="run: animegamer-rt selftest")
        return int(np.argmax(allowed))


def read(part: PredictorEngine, prompt: Prompt, past: object | None = None) -> Prefill:
    """Both read-outs of a prompt: its history first, if that goes apart, then the turn over it.

    past: the history's cache, where that was read before.
    """
    if past is None and prompt.history is not None:
        past = part.prefill(prompt.history).cache
    return part.prefill(prompt.turn, past)
