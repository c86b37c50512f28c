"""Instruction and history -> shot and game state: the prompt read once, then constrained choices of the four strengths.

Knows prompts and the predictor part; nothing of the denoiser, the vae or the session. The state's text has a fixed
template, so only its four slots are free and each is chosen among the eleven strengths: no other answer can come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .backends.contract import FloatArray, PredictorPart, Prefill
from .errors import BackendError
from .prompt import STATE_TAGS, PastTurn, Prompter
from .readouts import Prompt
from .state import STRENGTHS, GameState, Instruction


@dataclass(frozen=True, slots=True)
class Prediction:
    """The next shot f32 [226, D], the game state, and how many history turns fitted the window."""

    shot: FloatArray
    game_state: GameState
    history_turns: int


class Predictor:
    """One bundle's predictor: its engine and its tokenizer."""

    def __init__(self, part: PredictorPart, prompter: Prompter) -> None:
        self._part = part
        self._prompter = prompter
        self._strength_ids = np.array(prompter.strength_ids, np.int64)

    def predict(self, history: Sequence[PastTurn], instruction: Instruction) -> Prediction:
        """Depends on its arguments only, so the same history gives the same shot, however often it is asked.

        Raises InstructionError when the instruction does not fit the window.
        """
        prompt = self._prompter.write(instruction.text, history)
        prefill = read(self._part, prompt)
        choices = [self._choose(prefill.logits)]
        cache = prefill.cache
        for fixed in self._prompter.between_slots:
            tokens = np.array([self._strength_ids[choices[-1]], *fixed], np.int64)
            logits, cache = self._part.extend(tokens, cache)
            choices.append(self._choose(logits))
        strengths = {name: STRENGTHS[choice] for (name, _), choice in zip(STATE_TAGS, choices, strict=True)}
        return Prediction(prefill.shot, GameState(**strengths), prompt.history_turns)

    def _choose(self, logits: FloatArray) -> int:
        allowed = logits[self._strength_ids]
        if np.isnan(allowed).any():
            raise BackendError("the predictor's logits are not numbers", do="verify the bundle: animegamer-rt info")
        return int(np.argmax(allowed))


def read(part: PredictorPart, prompt: Prompt) -> Prefill:
    """Both read-outs of a prompt: its history first, if that goes apart, then the turn over it."""
    past = None if prompt.history is None else part.prefill(prompt.history).cache
    return part.prefill(prompt.turn, past)
