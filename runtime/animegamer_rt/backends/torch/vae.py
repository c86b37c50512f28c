"""The vae part: two chunks over one set of caches, each a graph; pixels leave as soon as a chunk is done.

Knows chunks, caches and pixels; the network is `decoder`'s. Source: backends/contract.py; MODEL.md section 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from animegamer_rt.backends.interface import FloatArray, Frames

from ...errors import BackendError
from ...models.vae import CHUNKS, VaeDecoder
from .custom_ops import Kernels
from .device import GraphCache, TorchDevice
from .vae_decoder import cache_shapes, decode, room

FRAMES = {3: 9, 2: 8}
"""Latent frames of a chunk -> its video frames."""
OPAQUE = 255
FRAMES_AT_ONCE = 2
"""Of the parts where memory is scarce: the fewest that hold a next part's past."""
FILL = 0.8
"""How much of a block the activations that are cut from it can fill, by the rules of PyTorch's allocator
(tests/runtime/backends/test_torch_memory.py)."""
SPARE_BYTES = 2**29
"""What is left of a GPU's free memory: for a prompt that is read meanwhile and for the workspaces of libraries."""


class Vae:
    """contract.VaePart. `first` leaves its caches where `next` reads them; one clip at a time."""

    def __init__(
        self,
        torch_device: TorchDevice,
        network: VaeDecoder,
        latent_height: int,
        latent_width: int,
        kernels: Kernels | None = None,
    ) -> None:
        self.torch_device, self.network, self._kernels = torch_device, network, kernels
        for weight in network.parameters():
            if weight.ndim == 5:
                # In the layout of what it meets, or each convolution turns it first.
                weight.data = weight.data.contiguous(memory_format=torch.channels_last_3d)
        scale = network.size.upscale
        channels, height, width = network.size.latent_channels, scale * latent_height, scale * latent_width
        shapes = cache_shapes(network, latent_height, latent_width)
        with torch_device.use():
            self._latent = {t: torch_device.zeros((t, latent_height, latent_width, channels)) for t in CHUNKS}
            self._rgb = {t: torch_device.zeros((FRAMES[t], height, width, 3)) for t in CHUNKS}
            bytes_of_all = torch_device.dtype.itemsize * height * width / FILL
            whole, in_parts = (
                int(bytes_of_all * room(network, max(FRAMES.values()), at_once)) for at_once in (None, FRAMES_AT_ONCE)
            )
            left = torch_device.free_bytes() - SPARE_BYTES - torch_device.dtype.itemsize * sum(map(math.prod, shapes))
            self._frames_at_once = None if left >= whole else FRAMES_AT_ONCE
            self._caches_on_host = left < in_parts
            torch_device.reserve(whole if self._frames_at_once is None else in_parts)
            self._caches = [
                torch_device.pinned(shape, torch_device.dtype) if self._caches_on_host else torch_device.zeros(shape)
                for shape in shapes
            ]
        self._replays = GraphCache(torch_device)
        self._clip = 0

    @property
    def words(self) -> str:
        """What is done for want of memory; empty where there is enough."""
        if self._frames_at_once is None:
            return ""
        return "vae in parts" + (", its caches in host memory" if self._caches_on_host else "")

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        """Nine frames; the caches of every earlier clip are gone."""
        self._clip += 1
        return self._run(latent, CHUNKS[0], channel_order, flip), self._clip

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        """Eight frames. The caches must be the last `first`'s."""
        if caches != self._clip:
            raise BackendError("a clip's second part was asked for after another clip had begun")
        return self._run(latent, CHUNKS[1], channel_order, flip)

    def _run(self, latent: FloatArray, frames: int, channel_order: tuple[int, ...], flip: bool) -> Frames:
        expected = (1, frames, *self._latent[frames].permute(0, 3, 1, 2).shape[1:])
        if latent.shape != expected:
            raise BackendError("not a chunk of this vae's latent", found=latent.shape, expected=expected)
        with self.torch_device.use():
            scaled = self.torch_device.to_device(latent[0]).permute(0, 2, 3, 1) / self.network.size.scale
            self._latent[frames].copy_(scaled)
            self._replays.run(frames, lambda: self._decode(frames))
            # Not in the graph, which would be one for each order.
            paint = painted if self._kernels is None else self._kernels.pixels
            pixels = paint(self._rgb[frames], channel_order, flip)
            out: Frames = self.torch_device.to_host(pixels).numpy()
        return out

    def _decode(self, frames: int) -> None:
        first, places = frames == CHUNKS[0], iter(self._caches)

        def keep(cache: Tensor) -> None:
            # To pinned memory a graph's copy too; the stream that writes it is the one that reads it.
            next(places).copy_(cache, non_blocking=True)

        def drop(cache: Tensor) -> None:
            """Nothing comes after the second chunk."""

        caches, then = (None, keep) if first else (self._caches, drop)
        rgb = decode(self.network, self._latent[frames], caches, then, self._kernels, self._frames_at_once)
        self._rgb[frames].copy_(rgb)


def painted(rgb: Tensor, channel_order: Sequence[int], flip: bool) -> Tensor:
    """rgb [T, H, W, 3], about -1..1 -> uint8 [T, H, W, len(channel_order)], cut off. Source: MODEL.md section 6."""
    values = (((rgb.float() + 1) / 2).clamp(0, 1) * 255).to(torch.uint8)
    planes = [*values.unbind(3), torch.full_like(values[..., 0], OPAQUE)]
    pixels = torch.stack([planes[channel] for channel in channel_order], dim=3)
    return pixels.flip(1) if flip else pixels
