"""noise against the runtime's own generator: the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernel_results import Operators, Outputs

from animegamer_kernels import noise
from animegamer_rt.noise import Noise, load_table

WEIGHTS = np.random.default_rng(3).standard_normal(7).astype(np.float32)


@pytest.mark.parametrize(
    ("seed", "turn", "first", "draws", "count"),
    [
        (7, 1, 3, 1, 480),
        (2**64 + 5, 2**40, 1, 7, 17281),
        (2**128 - 1, 2, 0, 4, 33),
        (3, 9, 49, 2, 31),
        (0, 1, 5, 2, 1),
        (7, 1, 50, 0, 40),
    ],
)
def test_noise_has_the_bits_of_the_runtimes(
    operators: Operators, seed: int, turn: int, first: int, draws: int, count: int
) -> None:
    expected = Noise(seed, turn, first, WEIGHTS[:draws], (count,))
    out, device = Outputs(operators.device), operators.device
    found = out.new("noise", (count,), torch.float32)
    key = torch.from_numpy(expected.key.view(np.int64)).to(device)
    table = torch.tensor(load_table(), device=device)
    noise(operators.library, key, table, first, expected.weights.tolist(), found)
    np.testing.assert_array_equal(out.read()["noise"].numpy(), expected.array())
