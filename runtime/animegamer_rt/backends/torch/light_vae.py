"""The light decoder as an engine: a chunk leaves its last latent frame for the next one."""

from __future__ import annotations

from animegamer_rt.models.light_decoder import LightDecoder

from ...models.vae import CHUNKS
from .device import TorchDevice
from .kernels import Kernels
from .vae import ChunkedVae


class LightVae(ChunkedVae):
    """Runs a `LightDecoder` eagerly on a CPU, each chunk as one CUDA graph on a GPU."""

    def __init__(
        self,
        torch_device: TorchDevice,
        network: LightDecoder,
        latent_height: int,
        latent_width: int,
        kernels: Kernels | None = None,
    ) -> None:
        latent_shape = latent_height, latent_width, network.size.latent_channels
        super().__init__(torch_device, latent_shape, network.size.upscale, kernels=kernels)
        self.network = network
        with torch_device.use():
            self._before = torch_device.zeros((1, *latent_shape))

    def _decode(self, frames: int) -> None:
        latent, first = self._latent[frames], frames == CHUNKS[0]
        before = None if first else self._before.permute(0, 3, 1, 2)
        rgb = self.network(latent.permute(0, 3, 1, 2), before)
        self._before.copy_(latent[-1:])
        self._rgb[frames].copy_(rgb.permute(0, 2, 3, 1))
