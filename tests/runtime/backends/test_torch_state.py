"""The predictor's choices on the device, and its layers as one product: those of extending, and of each layer alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch_parts import close, engines, prompt, reference
from torch_tape import TapeDevice

from animegamer_rt.backends.interface import Engines, StateSlots
from animegamer_rt.backends.torch.merged_linear import merge
from animegamer_rt.backends.torch.packed_linear import PackedLinear
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.readouts import Prompt

SLOTS = StateSlots(options=(31, 7, 50, 62, 8), between=((3, 4), (5, 6), (3, 6)))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


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


def test_layers_of_one_input_are_one_product_and_are_held_once() -> None:
    x, codes = torch.randn(2, 3, 32), torch.randint(-7, 8, (6, 32), dtype=torch.int8)
    plain = [nn.Linear(32, outputs, bias=False).requires_grad_(False) for outputs in (8, 4, 4)]
    packed = PackedLinear.pack(codes, torch.rand(6, 2), four_bits=True)
    for layers, alike in ((plain, True), ([plain[0], packed], False)):
        expected = [layer(x) for layer in layers]
        for found, exact in zip(merge(layers)(x), expected, strict=True):
            close(found.numpy(), exact.numpy())
        storages = {next(iter(layer.state_dict().values())).untyped_storage().data_ptr() for layer in layers}
        assert len(storages) == (1 if alike else 2)
        for layer, exact in zip(layers, expected, strict=True):
            torch.testing.assert_close(layer(x), exact)
