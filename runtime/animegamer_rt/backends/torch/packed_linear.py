"""Linear layers whose weight stays in 4 or 8 bits on the device: the predictor's.

Knows codes and scales; `onnx_weights` reads them. For a prompt's product the weight is made whole each time, by our
kernel in one pass; a few tokens are multiplied by it as it lies. Without the kernels it is made whole for these too, in
several passes, which a prompt of a thousand tokens hardly notices and the three tokens after it do. PyTorch's own 4-bit
product (`torch._weight_int4pack_mm`, sm_80 and later) is not used: it takes scales in bfloat16, so that the weights
would not be the bundle's, and a layout of its own, so that prompts would need them twice or run through it too.
**It has not been run on a GPU yet.**
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from animegamer_kernels import FEW_ROWS

from .custom_ops import Kernels

BUFFERS = (".codes", ".scales")
"""What keeps its type whatever the network computes in."""


class PackedLinear(nn.Module):
    """A linear layer without a bias. K inputs, N outputs, blocks of b inputs that share a scale.

    codes: int8 [N, K / b, b], or of 4 bits [N, K / b, b / 2], where a byte's low half is of the block's first half and
    its high half of the second. scales [N, K / b, 1] of the type in which the bundle has them.
    """

    codes: Tensor
    scales: Tensor

    def __init__(self, codes: Tensor, scales: Tensor) -> None:
        super().__init__()
        self.register_buffer("codes", codes)
        self.register_buffer("scales", scales)
        self.four_bits = False
        self.kernels: Kernels | None = None

    @classmethod
    def pack(cls, codes: Tensor, scales: Tensor, four_bits: bool) -> PackedLinear:
        """codes int8 [N, K] and scales [N, K / b], on any device. Raises ValueError for blocks that do not fit."""
        outputs, inputs = codes.shape
        if scales.shape[0] != outputs or inputs % scales.shape[1] or four_bits and inputs // scales.shape[1] % 2:
            raise ValueError(f"codes {tuple(codes.shape)} and scales {tuple(scales.shape)}")
        blocks = codes.reshape(outputs, scales.shape[1], -1)
        if four_bits:
            low, high = blocks.chunk(2, dim=2)
            blocks = low & 15 | high << 4
        layer = cls(blocks.contiguous(), scales[..., None].contiguous())
        layer.four_bits = four_bits
        return layer

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K), as of the weight that it stands for."""
        outputs, blocks, held = self.codes.shape
        return outputs, blocks * held * (2 if self.four_bits else 1)

    def weight(self, dtype: torch.dtype) -> Tensor:
        """The weight [N, K]: what DequantizeLinear gives, in this type."""
        if self.kernels is not None:
            return self.kernels.unpack(self.codes, self.scales, self.four_bits, dtype)
        (outputs, inputs), blocks = self.shape, self.scales.shape[1]
        whole = torch.empty((outputs, blocks, inputs // blocks), dtype=dtype, device=self.codes.device)
        # Shifts of int8 keep the sign.
        parts = (self.codes << 4 >> 4, self.codes >> 4) if self.four_bits else (self.codes,)
        for codes, into in zip(parts, whole.chunk(len(parts), dim=2), strict=True):
            torch.mul(codes, self.scales, out=into)
        return whole.view(outputs, inputs)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        if self.kernels is None or not 1 <= x.shape[:-1].numel() <= FEW_ROWS:
            return functional.linear(x, self.weight(x.dtype))
        few = x.reshape(-1, x.shape[-1]).contiguous()
        return self.kernels.packed_product(few, self.codes, self.scales, self.four_bits).view(*x.shape[:-1], -1)


def use_kernels(network: nn.Module, kernels: Kernels) -> None:
    """Has the packed layers of a network multiplied by our kernels, but for those that they are not written for."""
    for layer in network.modules():
        if isinstance(layer, PackedLinear) and layer.scales.dtype == torch.float32 and layer.codes.shape[2] % 4 == 0:
            layer.kernels = kernels
