"""Runs a network that does not fit in memory: a block's weights are made when it is called and freed afterwards.

Slow: every call of a block makes its weights again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .parts import Weights, meta_module

Module = TypeVar("Module", bound=nn.Module)
Log = Callable[[str], None]


def block_streaming(
    make: Callable[[], Module], weights: Weights, prefix: str = "", log: Log = lambda _: None
) -> Module:
    """A module whose blocks (in module lists) are streamed; its other weights are loaded. Names: `prefix` + name.

    Blocks must be called as modules, without gradients. log: called after 1, 2, 4, .. blocks with the elapsed time and
    an estimate of the rest.
    """
    module = meta_module(make)
    blocks = {
        f"{name}.{number}.": block
        for name, blocks in module.named_children()
        if isinstance(blocks, nn.ModuleList)
        for number, block in blocks.named_children()
    }
    pace = _Progress(len(blocks), log)
    for name, block in blocks.items():
        visit = _BlockHooks(weights, prefix + name, block, pace)
        block.register_forward_pre_hook(visit.begin)
        block.register_forward_hook(visit.end)
    held = [name for name in module.state_dict() if not name.startswith(tuple(blocks))]
    made = {name: weights.merged(prefix + name, torch.float32) for name in held}
    module.load_state_dict(made, strict=not blocks, assign=True)
    return module


class _Progress:
    """Logs the progress of a run through all blocks."""

    def __init__(self, blocks: int, log: Log) -> None:
        self.blocks, self.log = blocks, log
        self.done, self.began = 0, 0.0

    def begin(self) -> None:
        if self.done % self.blocks == 0:
            self.done, self.began = 0, time.perf_counter()

    def end(self) -> None:
        self.done += 1
        if self.done & (self.done - 1) == 0 and self.done < self.blocks:
            spent = time.perf_counter() - self.began
            left = spent / self.done * (self.blocks - self.done)
            self.log(f"block {self.done} of {self.blocks} after {spent:.0f} s, about {left:.0f} s more")


class _BlockHooks:
    """Hooks of one block: load its weights before it runs and restore the placeholders afterwards."""

    def __init__(self, weights: Weights, prefix: str, block: nn.Module, pace: _Progress) -> None:
        self.weights, self.prefix, self.pace = weights, prefix, pace
        self.stand_ins: dict[str, Tensor] = dict(block.state_dict())

    def begin(self, block: nn.Module, _: Any) -> None:
        self.pace.begin()
        made = {name: self.weights.merged(self.prefix + name, torch.float32) for name in self.stand_ins}
        block.load_state_dict(made, assign=True)

    def end(self, block: nn.Module, _: Any, __: Any) -> None:
        block.load_state_dict(self.stand_ins, assign=True)
        self.pace.end()
