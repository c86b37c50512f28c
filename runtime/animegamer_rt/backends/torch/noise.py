"""Draws a turn's noise where the denoiser's tensors are: by our kernel, or else by PyTorch's integers.

Both give the bits of `animegamer_rt.noise`, which describes the numbers. Without a GPU that file's own code is faster.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from animegamer_rt.noise import VERSION, AnyNoise, Noise, as_array, load_table

from .device import TorchDevice
from .kernels import Kernels

LOW = 0xFFFFFFFF


class NoiseSource:
    """Writes noise into tensors of one device, without waiting for it."""

    def __init__(self, torch_device: TorchDevice, kernels: Kernels | None = None) -> None:
        self._device, self._kernels, self._key = torch_device, kernels, b""
        self._table = torch_device.to_device(load_table())
        self._turn = torch_device.zeros((3,), torch.int64)
        self._philox = Philox(torch_device)

    def fill(self, out: Tensor, noise: AnyNoise) -> None:
        """Writes noise to `out` f32 of the same shape. Waits for a copy only for an array and a turn's first noise."""
        on_gpu = self._device.device.type == "cuda"
        if not isinstance(noise, Noise) or (self._kernels is None and not on_gpu):
            out.copy_(torch.from_numpy(as_array(noise)))
            return
        if noise.key.tobytes() != self._key:
            self._turn.copy_(torch.from_numpy(noise.key.view(np.int64)))
            self._key = noise.key.tobytes()
        weights = noise.weights.tolist()
        if self._kernels is not None:
            self._kernels.noise(self._turn, self._table, noise.first, weights, out)
        else:
            out.copy_(self._philox.sum_draws(self._turn, self._table, noise.first, weights, out.numel()).view_as(out))


class Philox:
    """The weighted sums by operators of 64-bit integers, about 200 a call; products wrap, and halves give the rest."""

    def __init__(self, torch_device: TorchDevice) -> None:
        def pair(*values: int) -> Tensor:
            return torch_device.to_device(np.array(values, np.uint64).view(np.int64)).view(2, 1, 1)

        self._multipliers = pair(0xD2E7470EE14C6C93, 0xCA5A826395121157)
        self._low, self._high = self._multipliers & LOW, self._multipliers >> 32 & LOW
        self._key_step = pair(0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
        self._shifts = torch_device.to_device(np.arange(0, 64, 16))

    def sum_draws(self, turn: Tensor, table: Tensor, first: int, weights: list[float], count: int) -> Tensor:
        """The first `count` numbers, f32 [count]. turn: i64 [3], as `Noise.key`."""
        blocks = -(-count // 32)
        halves = table.new_zeros((2, blocks * 16))
        if weights:
            values = table[self._places(turn, first, len(weights), 2 * blocks)].view(len(weights), 2, -1)
            for weight, of_draw in zip(weights, values, strict=True):
                halves += of_draw * weight  # two operators, each of which rounds
        return torch.cat([halves[0] + halves[1], halves[0] - halves[1]])[:count]

    def _places(self, turn: Tensor, first: int, draws: int, blocks: int) -> Tensor:
        """Places in the table, i64 [draws, blocks, 4 words, 4]."""
        # Words 0 and 2 of the counter are `even`, 1 and 3 are `odd`, [2, draws, blocks].
        even = torch.arange(1, blocks + 1, device=turn.device).expand(draws, -1)
        odd = torch.arange(first, first + draws, device=turn.device)[:, None].expand(-1, blocks)
        even = torch.stack([even, turn[2].expand_as(even)])
        odd = torch.stack([odd, torch.full_like(odd, VERSION)])
        key = turn[:2].view(2, 1, 1)
        for _ in range(10):
            low, high = even & LOW, even >> 32 & LOW
            middle = high * self._low + (low * self._low >> 32 & LOW)
            other = low * self._high + (middle & LOW)
            upper = high * self._high + (middle >> 32 & LOW) + (other >> 32 & LOW)
            even, odd = upper.flip(0) ^ odd ^ key, (even * self._multipliers).flip(0)
            key = key + self._key_step
        words = torch.stack([even[0], odd[0], even[1], odd[1]], -1)
        return words[..., None] >> self._shifts & 0xFFFF
