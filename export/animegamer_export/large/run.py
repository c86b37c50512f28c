"""A network too large for memory, run in torch: each block's weights are made when it is called, and let go after.

Slow by design: a weight is made again for every call of its block. It does not know which network it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from animegamer_export.large.parts import Weights, stand_in

Module = TypeVar("Module", bound=nn.Module)


def streamed(make: Callable[[], Module], weights: Weights, prefix: str = "") -> Module:
    """The module, its weights float32 by `prefix` + name. Only the blocks of its lists are streamed, the rest is held.

    Each block of a list must be run by calling it. For use without gradients.
    """
    module = stand_in(make)
    blocks = {
        f"{name}.{number}.": block
        for name, blocks in module.named_children()
        if isinstance(blocks, nn.ModuleList)
        for number, block in blocks.named_children()
    }
    for name, block in blocks.items():
        visit = _Visit(weights, prefix + name, block)
        block.register_forward_pre_hook(visit.begin)
        block.register_forward_hook(visit.end)
    held = [name for name in module.state_dict() if not name.startswith(tuple(blocks))]
    made = {name: weights.merged(prefix + name, torch.float32) for name in held}
    module.load_state_dict(made, strict=not blocks, assign=True)
    return module


class _Visit:
    """One block: filled before it runs, and left with its stand-ins after."""

    def __init__(self, weights: Weights, prefix: str, block: nn.Module) -> None:
        self.weights, self.prefix = weights, prefix
        self.stand_ins: dict[str, Tensor] = dict(block.state_dict())

    def begin(self, block: nn.Module, _: Any) -> None:
        made = {name: self.weights.merged(self.prefix + name, torch.float32) for name in self.stand_ins}
        block.load_state_dict(made, assign=True)

    def end(self, block: nn.Module, _: Any, __: Any) -> None:
        block.load_state_dict(self.stand_ins, assign=True)
