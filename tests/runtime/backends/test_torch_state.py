"""The predictor's choices on the device, and its layers as one product: those of extending, and of each layer alone."""

from __future__ import annotations

import numpy as np
import torch
from torch_parts import engines, prompt, reference
from torch_tape import TapeDevice

from animegamer_rt.backends.interface import Engines, StateSlots
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.prompt import Prompt

SLOTS = StateSlots(options=(31, 7, 50, 62, 8), between=((3, 4), (5, 6), (3, 6)))


def chosen(part: Engines, given: Prompt) -> list[int]:
    """The numbers of the options with the largest logits, by extending from one slot to the next."""
    prefill = prefill_prompt(part.predictor, given)
    cache, choices = prefill.cache, [int(prefill.logits[list(SLOTS.options)].argmax())]
    for fixed in SLOTS.between:
        tokens = np.array([SLOTS.options[choices[-1]], *fixed], np.int64)
        logits, cache = part.predictor.extend(tokens, cache)
        choices.append(int(logits[list(SLOTS.options)].argmax()))
    return choices


def test_choices_on_the_device_are_those_of_extending_from_slot_to_slot() -> None:
    torch_device = TapeDevice()
    # Two buckets: 1524 tokens and the state's nine still fit into the first, 1530 do not.
    part, plain, seen = engines(torch_device, window=2000), reference(), set[tuple[int, ...]]()
    for history_turns, words, seed in ((0, 3, 1), (1, 5, 2), (2, 5, 3), (5, 24, 4), (5, 25, 5), (0, 4, 6)):
        given = prompt(history_turns, words, seed)
        first, *others = chosen(plain, given)
        choose = prefill_prompt(part.predictor, given).choose_next
        assert choose is not None
        for _ in range(2):
            np.testing.assert_array_equal(choose(SLOTS, first), others)
        seen.add((first, *others))
    assert len(seen) > 2, "the choices hardly depend on the prompt"
    # The cache grows for 1530 tokens, and the graphs before that are those of the smaller one.
    assert (torch_device.captured, torch_device.replayed) == (3, 9)


def test_choice_among_lost_logits_is_none() -> None:
    part, given = engines(), prompt(1)
    choose = prefill_prompt(part.predictor, given).choose_next
    assert choose is not None and np.isfinite(choose(SLOTS, 0)).all()
    with torch.no_grad():
        part.predictor.network.head.weight[SLOTS.options[2]] = torch.nan  # type: ignore[attr-defined]
    assert np.isnan(choose(SLOTS, 0)).all()
