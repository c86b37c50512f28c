"""Linear layers whose weight stays quantised to 4 or 8 bits on the device: the predictor's.

With the kernels, a prompt's product dequantises the whole weight in one pass, and the product of a few tokens reads the
codes directly. Without them every product dequantises the weight in several passes of PyTorch, which is cheap for a
prompt of a thousand tokens and expensive for the three tokens of an extend. PyTorch's own 4-bit product
(`torch._weight_int4pack_mm`, sm_80 and later) is not used: its scales are bfloat16, which would change the weights, and
its memory layout differs, so prompts would need a second copy. **A GPU has played turns with 4-bit products, but none
with 8-bit ones.**
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from animegamer_kernels import FEW_ROWS

from .kernels import Kernels

BUFFERS = (".codes", ".scales", ".levels")
"""Name endings of tensors that keep their dtype whatever the network computes in."""


class PackedLinear(nn.Module):
    """A linear layer without a bias: K inputs, N outputs, and one scale for each block of b inputs.

    codes: i8 [N, K / b, b]; for 4 bits i8 [N, K / b, b / 2], where the low halves of the bytes hold the first half of a
    block and the high halves the second. scales [N, K / b, 1] in the bundle's dtype.
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
        """A layer from codes i8 [N, K] and scales [N, K / b]. Raises ValueError where they do not form blocks."""
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
        """(N, K), the shape of the dequantised weight."""
        outputs, blocks, stored = self.codes.shape
        return outputs, blocks * stored * (2 if self.four_bits else 1)

    def weight(self, dtype: torch.dtype) -> Tensor:
        """The dequantised weight [N, K] in this dtype: equal to the output of ONNX's DequantizeLinear."""
        if self.kernels is not None:
            return self.kernels.unpack(self.codes, self.scales, self.four_bits, dtype)
        (outputs, inputs), blocks = self.shape, self.scales.shape[1]
        whole = torch.empty((outputs, blocks, inputs // blocks), dtype=dtype, device=self.codes.device)
        # Arithmetic shifts of int8 keep the sign.
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
    """Makes a network's packed layers use our kernels, if these support their shape and dtype."""
    for layer in network.modules():
        if isinstance(layer, PackedLinear) and layer.scales.dtype == torch.float32 and layer.codes.shape[2] % 4 == 0:
            layer.kernels = kernels
