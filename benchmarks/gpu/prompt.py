"""Length of the benchmark's prompt: a full history and the turn. Source: MODEL.md section 2."""

from __future__ import annotations

from collections.abc import Sequence

HISTORY_TURNS = 4
"""History window of bundles, in turns."""
CAPTION_TOKENS = 20
"""Assumed for an instruction; pocket's examples have 18 to 32."""
SHOT_BLOCK = 230
"""Tokens of a shot's queries with their start and end tokens."""
STATE_TOKENS = 14
"""Tokens of a past turn's game state."""


def prompt_tokens(captions: Sequence[int]) -> tuple[int, int]:
    """(history, turn) tokens, given each instruction's tokens; the last is the turn's."""
    *past, current = captions
    history = 1 + sum(1 + caption + SHOT_BLOCK + STATE_TOKENS for caption in past)
    return history, 1 + current + SHOT_BLOCK + 1


FULL_PROMPT = prompt_tokens([CAPTION_TOKENS] * (HISTORY_TURNS + 1))
"""(history, turn) tokens of a full history, for this project and for its peers."""
