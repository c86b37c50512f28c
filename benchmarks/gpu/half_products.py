"""Emulates a GPU's half-precision products on a CPU: summed in float32 and rounded once.

A CPU without bfloat16 instructions takes about a hundred times as long for them as for float32. Dry runs and tests must
not depend on the processor's instruction set, so all that run half-precision networks on the CPU use this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

HALF = (torch.bfloat16, torch.float16)
PRODUCTS = {
    functional.linear,
    functional.scaled_dot_product_attention,
    *(getattr(functional, name) for name in ("conv1d", "conv2d", "conv3d")),
    *(getattr(torch, name) for name in ("mm", "addmm", "bmm", "baddbmm", "matmul", "einsum")),
    *(getattr(Tensor, name) for name in ("mm", "addmm", "bmm", "baddbmm", "matmul", "__matmul__", "__rmatmul__")),
}
"""Matrix multiplications."""


class HalfProducts(TorchFunctionMode):
    """Half-precision products are summed in float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})


def install() -> None:
    """From now on every thread of this process sums half-precision products in float32."""
    run = threading.Thread.run

    def with_mode(thread: threading.Thread) -> None:
        with HalfProducts():
            run(thread)

    threading.Thread.run = with_mode  # type: ignore[method-assign,assignment]
    HalfProducts().__enter__()  # type: ignore[no-untyped-call]


def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """func(*args, **kwargs); a product of half-precision tensors runs in float32 and is rounded to their dtype.

    INT8 products stay exact, in float64.
    """
    if func is torch._int_mm:
        # Exact in float64; PyTorch's own takes ten times as long on a CPU without instructions for it.
        return (args[0].double() @ args[1].double()).int()
    half = {value.dtype for value in tree_leaves((args, kwargs)) if is_half(value)} if func in PRODUCTS else set()
    if not half:
        return func(*args, **kwargs)
    (dtype,) = half
    out = kwargs.pop("out", None)
    args, kwargs = tree_map(lambda value: value.float() if is_half(value) else value, (args, kwargs))
    rounded = func(*args, **kwargs).to(dtype)
    return rounded if out is None else out.copy_(rounded)


def is_half(value: object) -> bool:
    """Whether this is a half-precision tensor."""
    return isinstance(value, Tensor) and value.dtype in HALF
