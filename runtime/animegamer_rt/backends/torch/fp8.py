"""Products in FP8 with a scale for every row: the denoiser's four large matrices of each block.

Knows linear layers only. On a GPU the product is PyTorch's own (`torch._scaled_mm`: Ada, Hopper, Blackwell); elsewhere
it is emulated, number for number up to the order of the sums. **The GPU's has not been run yet.**
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...errors import BackendError
from ...models.denoiser import Block, Denoiser
from .place import Place

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
SMALLEST_SCALE = 1e-12
"""A row of zeros has no scale of its own."""
CAPABILITY = (8, 9)
"""The first GPUs with FP8 products."""


def use_fp8(network: Denoiser, place: Place) -> None:
    """Replaces the products of every block, in place. Raises BackendError on a GPU that has none."""
    if place.device.type == "cuda" and torch.cuda.get_device_capability(place.device) < CAPABILITY:
        raise BackendError("this GPU has no FP8 products", found=place.words, do="use bf16 or fp16")
    for block in (cast(Block, block) for block in network.blocks):
        block.attention.qkv = cast(nn.Linear, RowwiseLinear(block.attention.qkv))
        block.attention.output = cast(nn.Linear, RowwiseLinear(block.attention.output))
        block.mlp_in = cast(nn.Linear, RowwiseLinear(block.mlp_in))
        block.mlp_out = cast(nn.Linear, RowwiseLinear(block.mlp_out))


class RowwiseLinear(nn.Module):
    """A linear layer whose weight is FP8 with a scale a row; what comes in is rounded row by row as it comes."""

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, scale = by_row(linear.weight)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out] in the type of x."""
        rows, scale = by_row(x.flatten(0, -2))
        if x.is_cuda:
            out: Tensor = torch._scaled_mm(
                rows,
                self.weight.t(),
                scale_a=scale,
                scale_b=self.scale.t(),
                bias=self.bias,
                out_dtype=x.dtype,
                use_fast_accum=True,
            )
        else:
            out = functional.linear(rows.float() * scale, self.weight.float() * self.scale).to(x.dtype) + self.bias
        shaped: Tensor = out.unflatten(0, x.shape[:-1])
        return shaped


def by_row(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [rows, n] as FP8, with scales f32 [rows, 1] under which each row's largest number is FP8's largest."""
    scale = (x.float().abs().amax(1, keepdim=True) / LARGEST).clamp(min=SMALLEST_SCALE)
    # FP8 has no infinity: what lies beyond its largest number would be no number.
    return (x.float() / scale).clamp(-LARGEST, LARGEST).to(FP8), scale
