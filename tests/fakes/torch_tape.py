"""A CPU device with graphs as strict as CUDA's: a capture records operators without effect, and freezes host values.

A capture restores every buffer; a replay runs the recorded operators again on the same memory. What a CUDA graph cannot
hold is an error: the host reads a value, or a tensor is made from host values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from animegamer_rt.backends.torch.device import TorchDevice, Work

aten = torch.ops.aten
FORBIDDEN = {
    aten._local_scalar_dense.default: "the host read a value",
    aten.lift_fresh.default: "a tensor was made from the host's numbers",
    aten.nonzero.default: "a shape depends on values",
}


class Tape(TorchDispatchMode):
    """Records operators with their arguments and results; `undo` restores what they wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []
        self._before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in FORBIDDEN:
            raise AssertionError(f"{FORBIDDEN[func]} while work was captured: {func}")
        kwargs = kwargs or {}
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if value is not None and argument.alias_info is not None and argument.alias_info.is_write:
                self._keep(value)
        out = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, out))
        return out

    def _keep(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._before:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._before[storage.data_ptr()] = whole, whole.clone()

    def undo(self) -> None:
        for whole, before in self._before.values():
            whole.copy_(before)

    def replay(self) -> None:
        for func, args, kwargs, out in self.calls:
            again = func(*args, **kwargs)
            for noted, fresh in zip(tree_leaves(out), tree_leaves(again), strict=True):
                if isinstance(noted, Tensor) and noted.data_ptr() != fresh.data_ptr():
                    # Some operators drop an axis of a result after it was recorded.
                    noted.copy_(fresh.reshape(noted.shape))


class TapeDevice(TorchDevice):
    """The CPU with captures; `captured` counts them and `replayed` their runs."""

    captures = True

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        self.captured = self.replayed = 0

    def capture(self, work: Work) -> Work:
        tape = Tape()
        with tape:
            work()
        tape.undo()
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            tape.replay()

        return replay
