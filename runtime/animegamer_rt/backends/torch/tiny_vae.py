"""The tiny decoder as an engine: each of its blocks leaves one frame for the next chunk."""

from __future__ import annotations

import torch

from animegamer_rt.models.tiny_decoder import TinyDecoder
from animegamer_rt.profiling.host_memory import FILL

from ...models.vae import CHUNKS
from .device import TorchDevice
from .kernels import Kernels
from .vae import ChunkedVae


class TinyVae(ChunkedVae):
    """Runs a `TinyDecoder` eagerly on a CPU, each chunk as one CUDA graph on a GPU."""

    def __init__(
        self,
        torch_device: TorchDevice,
        network: TinyDecoder,
        latent_height: int,
        latent_width: int,
        kernels: Kernels | None = None,
    ) -> None:
        size, latent_shape = network.size, (latent_height, latent_width, network.size.latent_channels)
        super().__init__(torch_device, latent_shape, size.upscale, size.scale, kernels)
        self.network = network
        for weight in network.parameters():
            if weight.ndim == 4:
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        with torch_device.use():
            shapes = size.cache_shapes(latent_height, latent_width)
            caches = [torch_device.zeros((1, *grid, channels)) for channels, *grid in shapes]
            numbers = size.working_numbers(latent_height, latent_width)
            torch_device.reserve(int(numbers * torch_device.dtype.itemsize / FILL))
        self._caches = [cache.permute(0, 3, 1, 2) for cache in caches]  # channels last, as the latents

    def _decode(self, frames: int) -> None:
        first = frames == CHUNKS[0]
        latent = self._latent[frames].permute(0, 3, 1, 2)
        rgb, kept = self.network(latent, None if first else self._caches)
        if first:
            for cache, new in zip(self._caches, kept, strict=True):
                cache.copy_(new)
        self._rgb[frames].copy_(rgb.permute(0, 2, 3, 1))
