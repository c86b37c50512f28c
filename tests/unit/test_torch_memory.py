"""What the PyTorch backend holds at full size, counted on tensors that have shapes and no numbers.

No figure here is of a GPU: an allocator rounds up, libraries take workspaces, and a driver has memory of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from animegamer_rt.backends.torch import decoder, settled
from animegamer_rt.models.vae import VaeDecoder, VaeSize

GIB = 2**30


class Counted(TorchDispatchMode):
    """Bytes of all storages made inside that are alive, and the most that ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note((args, kwargs), made_here=False)
        out = func(*args, **(kwargs or {}))
        self._note(out, made_here=True)
        return out

    def _note(self, tensors: Any, made_here: bool) -> None:
        for tensor in (leaf for leaf in tree_leaves(tensors) if isinstance(leaf, Tensor)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._seen:
                self._seen[storage._cdata] = storage.nbytes() if made_here else 0
                self.live += self._seen[storage._cdata]
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._gone, storage._cdata)

    def _gone(self, which: int) -> None:
        self.live -= self._seen.pop(which, 0)


def peak_gib(work: Callable[[], object]) -> float:
    with Counted() as counted:
        work()
    return counted.peak / GIB


def channels_last(x: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int, int]) -> Tensor:
    """A convolution's result in the layout of what it was given, as cuDNN makes it; the CPU's would be turned back."""
    shape = (1, len(weight), x.shape[2] - 2, *x.shape[3:])
    return x.new_empty((*shape[:1], *shape[2:], shape[1])).permute(0, 4, 1, 2, 3)


def test_vae_holds_its_caches_and_one_norm_less_than_three_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder.functional, "conv3d", channels_last)
    with FakeTensorMode(), torch.no_grad():
        network = settled(VaeDecoder(VaeSize()), torch.bfloat16)
        kept: list[Tensor] = []
        first, second = (torch.empty(frames, 60, 90, 16, dtype=torch.bfloat16) for frames in (3, 2))
        decoder.decode(network, first, None, lambda cache: kept.append(cache.clone()))
        caches = sum(cache.nbytes for cache in kept) / GIB
        working = peak_gib(lambda: decoder.decode(network, second, kept, lambda cache: None))
    assert caches == pytest.approx(2.62, abs=0.01)
    # Input and output of the widest convolution, and what it reads: 8 frames of 256, 10 of 256, 8 of 128 channels.
    assert working == pytest.approx((8 * 256 + 10 * 256 + 8 * 128) * 480 * 720 * 2 / GIB, rel=0.01)
