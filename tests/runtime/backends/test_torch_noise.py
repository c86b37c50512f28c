"""PyTorch draws noise with its own integers as numpy does, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.noise import Philox
from animegamer_rt.noise import Noise, load_table

WEIGHTS = np.random.default_rng(3).standard_normal(7).astype(np.float32)


@pytest.mark.parametrize(
    ("seed", "turn", "first", "draws", "count"),
    [(7, 1, 3, 1, 432_000), (2**127 + 3, 2**40, 1, 7, 17_281), (2**128 - 1, 2, 0, 4, 33), (7, 1, 50, 0, 40)],
)
def test_integers_of_pytorch_give_the_bits_of_numpy(seed: int, turn: int, first: int, draws: int, count: int) -> None:
    noise = Noise(seed, turn, first, WEIGHTS[:draws], (count,))
    key, table = torch.from_numpy(noise.key.view(np.int64)), torch.tensor(load_table())
    found = Philox(TorchDevice()).sum_draws(key, table, first, noise.weights.tolist(), count)
    np.testing.assert_array_equal(found.numpy(), noise.array())
