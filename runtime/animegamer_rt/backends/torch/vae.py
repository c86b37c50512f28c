"""The vae engine: decodes a clip in two chunks over one set of caches; each chunk is one CUDA graph.

It knows chunks, caches and pixels; `vae_decoder` runs the network. Source: backends/interface.py; MODEL.md section 6.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from animegamer_rt.backends.interface import FloatArray, Frames
from animegamer_rt.bundle.roles import VAE
from animegamer_rt.profiling.host_memory import FILL, SPARE_BYTES

from ...errors import BackendError, UnusableOutputError
from ...models.vae import CHUNKS, VaeDecoder
from .device import GraphCache, TorchDevice
from .kernels import Kernels
from .vae_decoder import cache_shapes, decode, peak_channels, put_channels_last

FRAMES = {3: 9, 2: 8}
"""Latent frames of a chunk -> its video frames."""
OPAQUE = 255
FRAMES_AT_ONCE = 2
"""Frames per slice if memory is scarce: the fewest that hold the past of the next slice."""


class ChunkedVae(ABC):
    """Implements interface.VaeEngine. One clip at a time: `first` leaves its caches for `next`.

    A network adds `_decode`, which decodes the chunk in `self._latent` into `self._rgb`. scale: divides the latent.
    upscale: video pixels per latent pixel, along height and along width.
    """

    description = ""
    """How it saves memory, for Engines.device; empty if there is enough."""

    def __init__(
        self,
        torch_device: TorchDevice,
        latent_shape: tuple[int, int, int],
        upscale: int,
        scale: float = 1.0,
        kernels: Kernels | None = None,
    ) -> None:
        self.torch_device, self._scale, self._kernels = torch_device, scale, kernels
        height, width, _ = latent_shape
        with torch_device.use():
            self._latent = {t: torch_device.zeros((t, *latent_shape)) for t in CHUNKS}
            self._rgb = {t: torch_device.zeros((FRAMES[t], upscale * height, upscale * width, 3)) for t in CHUNKS}
        self._graphs = GraphCache(torch_device)
        self._clip = 0

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        """See interface.VaeEngine. Invalidates the caches of every earlier clip."""
        self._clip += 1
        return self._run(latent, CHUNKS[0], channel_order, flip), self._clip

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        """See interface.VaeEngine. Raises BackendError for the caches of an earlier clip."""
        if caches != self._clip:
            raise BackendError("a clip's second chunk was requested after another clip had started")
        return self._run(latent, CHUNKS[1], channel_order, flip)

    def _run(self, latent: FloatArray, frames: int, channel_order: tuple[int, ...], flip: bool) -> Frames:
        expected = (1, frames, *self._latent[frames].permute(0, 3, 1, 2).shape[1:])
        if latent.shape != expected:
            raise BackendError("a latent chunk has the wrong shape", found=latent.shape, expected=expected)
        with self.torch_device.use():
            scaled = self.torch_device.to_device(latent[0]).permute(0, 2, 3, 1) / self._scale
            self._latent[frames].copy_(scaled)
            self._graphs.run(frames, lambda: self._decode(frames))
            # Outside the graph, which would otherwise be captured for each channel order and flip.
            convert = to_uint8 if self._kernels is None else self._kernels.pixels
            pixels = convert(self._rgb[frames], channel_order, flip)
            unusable = torch.isfinite(self._rgb[frames]).logical_not().any().reshape(1)
            out: Frames = self.torch_device.to_host(pixels).numpy()
            if self.torch_device.to_host(unusable).numpy()[0]:  # as uint8 they would be black
                raise UnusableOutputError(
                    "the frames cannot be used",
                    stage=VAE,
                    precision=str(self.torch_device.dtype).removeprefix("torch."),
                    found="NaN or infinite pixels",
                    expected="finite numbers",
                )
        return out

    @abstractmethod
    def _decode(self, frames: int) -> None: ...


class Vae(ChunkedVae):
    """The vae decoder as an engine.

    When created, it chooses how to run from the device's free memory: all frames at once, in slices, or in slices with
    the caches in host memory (docs/TORCH.md, "Memory").
    """

    def __init__(
        self,
        torch_device: TorchDevice,
        network: VaeDecoder,
        latent_height: int,
        latent_width: int,
        kernels: Kernels | None = None,
    ) -> None:
        self.network, size = network, network.size
        latent_shape = latent_height, latent_width, size.latent_channels
        super().__init__(torch_device, latent_shape, size.upscale, size.scale, kernels)
        put_channels_last(network)
        pixels = size.upscale**2 * latent_height * latent_width
        shapes = cache_shapes(network, latent_height, latent_width)
        with torch_device.use():
            bytes_of_all = torch_device.dtype.itemsize * pixels / FILL
            whole, in_parts = (
                int(bytes_of_all * peak_channels(network, max(FRAMES.values()), at_once))
                for at_once in (None, FRAMES_AT_ONCE)
            )
            left = torch_device.free_bytes() - SPARE_BYTES - torch_device.dtype.itemsize * sum(map(math.prod, shapes))
            self._frames_at_once = None if left >= whole else FRAMES_AT_ONCE
            self._caches_on_host = left < in_parts
            torch_device.reserve(whole if self._frames_at_once is None else in_parts)
            self._caches = [
                torch_device.pinned(shape, torch_device.dtype) if self._caches_on_host else torch_device.zeros(shape)
                for shape in shapes
            ]
        if self._frames_at_once is not None:
            self.description = "vae in slices" + (", its caches in host memory" if self._caches_on_host else "")

    def _decode(self, frames: int) -> None:
        first, buffers = frames == CHUNKS[0], iter(self._caches)

        def store(cache: Tensor) -> None:
            # A graph can hold a copy to pinned memory, and the same stream reads it later.
            next(buffers).copy_(cache, non_blocking=True)

        def drop(cache: Tensor) -> None:
            """The second chunk is the last one."""

        caches, then = (None, store) if first else (self._caches, drop)
        rgb = decode(self.network, self._latent[frames], caches, then, self._kernels, self._frames_at_once)
        self._rgb[frames].copy_(rgb)


def to_uint8(rgb: Tensor, channel_order: Sequence[int], flip: bool) -> Tensor:
    """rgb [T, H, W, 3] in about -1..1, clamped -> u8 [T, H, W, len(channel_order)]. Source: MODEL.md section 6."""
    values = (((rgb.float() + 1) / 2).clamp(0, 1) * 255).to(torch.uint8)
    planes = [*values.unbind(3), torch.full_like(values[..., 0], OPAQUE)]
    pixels = torch.stack([planes[channel] for channel in channel_order], dim=3)
    return pixels.flip(1) if flip else pixels
