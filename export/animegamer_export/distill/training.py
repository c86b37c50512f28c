"""Trains a network and averages its weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .optimiser import EMA_DECAY, Optimisers
from .progress import Progress


class Weights:
    """Tensors by name, as a part of a checkpoint. A network's frozen weights need no place in it."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)

    def state_dict(self) -> dict[str, Any]:
        """The tensors themselves."""
        return {name: tensor.detach() for name, tensor in self.tensors.items()}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Copies other values into the tensors."""
        for name, tensor in self.tensors.items():
            tensor.copy_(state_dict[name])


def train(
    network: nn.Module,
    optimisers: Optimisers,
    loss: Callable[[int, torch.Generator], Iterator[Tensor]],
    progress: Progress,
) -> None:
    """Trains the network's weights that require gradients; in the end they are averages over the last steps.

    loss: (step, generator) -> scalars whose gradients are added up, each computed before the next is asked for. All
    chance is the generator's.
    """
    trained = Weights({name: weight for name, weight in network.named_parameters() if weight.requires_grad})
    average = Weights({name: weight.clone() for name, weight in trained.state_dict().items()})
    progress.resume(weights=trained, average=average, optimisers=optimisers)

    def losses() -> Iterator[dict[str, float]]:
        for step in progress.remaining():
            total = 0.0
            for one in loss(step, torch.Generator().manual_seed(step)):
                one.backward()
                total += one.item()
            optimisers.update(step)
            decay = min(EMA_DECAY, (1 + step) / (10 + step))
            torch._foreach_lerp_([*average.tensors.values()], [*trained.state_dict().values()], 1 - decay)
            yield {"loss": total}

    progress.run(losses())
    trained.load_state_dict(average.tensors)
