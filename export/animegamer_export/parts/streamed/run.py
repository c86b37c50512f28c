"""A network too large for memory, run in torch: each block's weights are made when it is called, and let go after.

Slow by design: a weight is made again for every call of its block. It does not know which network it runs.
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
    """The module, its weights float32 by `prefix` + name. Only the blocks of its lists are streamed, the rest is held.

    Each block of a list must be run by calling it. For use without gradients. `log` is told how far a run is, and how
    long the rest takes at the pace so far, after one block, two, four and so on.
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
    """How far a run through all blocks is."""

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
    """One block: filled before it runs, and left with its stand-ins after."""

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
