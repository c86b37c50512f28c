"""Initialisation of the decoder: its norms, training on single frames, and its temporal convolutions after that."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from animegamer_rt.models.vae import CausalConv, LatentNorm, ResidualBlock, Stage, Upsample, VaeDecoder


def init_latent_norms(decoder: VaeDecoder) -> None:
    """Initialises every latent-conditioned norm as a plain one: scale 1 and shift 0, projections cut to a tenth.

    With PyTorch's initial values the scales are about 0, signals vanish between blocks, and the loss does not fall.
    """
    for module in decoder.modules():
        if isinstance(module, LatentNorm):
            for projection, bias in ((module.scale, 1.0), (module.shift, 0.0)):
                nn.init.constant_(torch.as_tensor(projection.bias), bias)
                with torch.no_grad():
                    projection.weight.mul_(0.1)


def decode_frames(decoder: VaeDecoder, latent: Tensor) -> Tensor:
    """Decodes single frames: latent [B, 16, h, w] -> [B, 3, H, W], like decoding [B, 16, 1, h, w], 40 times cheaper.

    A causal convolution repeats the first frame before it, so on one frame it is a 2-D convolution with summed taps.
    """

    def conv(layer: nn.Conv3d, x: Tensor, padding: int) -> Tensor:
        return F.conv2d(x, layer.weight.sum(2), layer.bias, padding=padding)

    def norm(layer: LatentNorm, x: Tensor) -> Tensor:
        size = x.shape[2:]
        scale, shift = (F.interpolate(conv(part, latent, 0), size=size) for part in (layer.scale, layer.shift))
        return F.silu(layer.norm(x) * scale + shift)

    def block(layer: ResidualBlock, x: Tensor) -> Tensor:
        hidden = conv(layer.conv_in, norm(layer.norm_in, x), 1)
        hidden = conv(layer.conv_out, norm(layer.norm_out, hidden), 1)
        return hidden + (conv(layer.shortcut, x, 0) if isinstance(layer.shortcut, nn.Conv3d) else x)

    x = conv(decoder.conv_in, latent, 1)
    blocks: list[tuple[nn.Module, Upsample | None]] = [(layer, None) for layer in decoder.middle]
    for stage in (cast(Stage, module) for module in decoder.stages):
        blocks += [(layer, None) for layer in stage.blocks]
        blocks[-1] = (blocks[-1][0], stage.upsample)
    for layer, upsample in blocks:
        x = block(cast(ResidualBlock, layer), x)
        if upsample is not None:
            x = conv(upsample.conv, F.interpolate(x, scale_factor=2.0), 1)
    return conv(decoder.conv_out, norm(decoder.norm_out, x), 1)


@torch.no_grad()
def init_temporal_taps(decoder: VaeDecoder) -> None:
    """After training on single frames, moves each causal convolution's weights to its tap of the present frame."""
    for module in decoder.modules():
        if isinstance(module, CausalConv):
            module.weight[:, :, -1] = module.weight.sum(2)
            module.weight[:, :, :-1] = 0.0
