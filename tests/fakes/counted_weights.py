"""Weights that count how many bytes of them are in memory, for tests of streamed parts."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class CountedWeights:
    """Copies of the weights of networks, by prefix and name. Counts requests, and the bytes that are alive."""

    def __init__(self, networks: Mapping[str, nn.Module]) -> None:
        self.state = {
            prefix + name: value for prefix, net in networks.items() for name, value in net.state_dict().items()
        }
        self.alive, self.most_alive = 0, 0
        self.requests: Counter[str] = Counter()

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        self.requests[parameter] += 1
        made = self.state[parameter].detach().to(dtype, copy=True)
        self.alive += made.nbytes
        self.most_alive = max(self.most_alive, self.alive)
        weakref.finalize(made.untyped_storage(), self._freed, made.nbytes)
        return made

    def _freed(self, count: int) -> None:
        self.alive -= count


def scattered(module: Module, seed: int = 0, by: float = 0.05) -> Module:
    """The module with all weights moved from their initial values, biases and norms included."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(by * torch.randn(weight.shape, generator=random))
    return module.eval()
