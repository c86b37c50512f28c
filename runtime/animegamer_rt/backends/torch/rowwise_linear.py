"""Products in FP8 or INT8 with a scale for every row: the denoiser's four large matrices of each block.

Knows linear layers only. INT8's sums are exact integers on every device (`torch._int_mm`). FP8's product is PyTorch's
own on a GPU (`torch._scaled_mm`: Ada, Hopper, Blackwell); elsewhere it is emulated, number for number up to the order
of the sums. **Neither has been run on a GPU yet.**
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.torch_version import TorchVersion

from animegamer_rt.errors import BackendError
from animegamer_rt.models.denoiser import Block, Denoiser

FP8, INT8 = torch.float8_e4m3fn, torch.int8
MAX_VALUE: Mapping[torch.dtype, float] = MappingProxyType({FP8: torch.finfo(FP8).max, INT8: 127.0})
SMALLEST_SCALE = 1e-12
"""A row of zeros has no scale of its own."""
CAPABILITY: Mapping[torch.dtype, tuple[int, int]] = MappingProxyType(
    {FP8: (8, 9), INT8: (8, 0), torch.bfloat16: (8, 0)}
)
"""The first GPUs with such products; for INT8 the first with bfloat16, which is what all else runs in."""
WORDS: Mapping[torch.dtype, str] = MappingProxyType({FP8: "FP8", INT8: "INT8", torch.bfloat16: "bfloat16"})
ADA, ADA_IN_STREAM = (8, 9), "2.12"
"""Before this version PyTorch's FP8 product readies its workspace on the default stream on these GPUs, and on any
other stream, as here, it can then wait for ever (pytorch issue 177651)."""


def check_products(dtype: torch.dtype, capability: tuple[int, int], torch_version: str) -> None:
    """Raises BackendError where a GPU, or PyTorch on it, has no such products that can be trusted.

    Rows need not come in multiples of 256, of which FP8's kernels read whole ones (pytorch issue 133334): by their
    source (RowwiseScaledMM.cu) they pad the scales themselves, and Ada's, which does not, reads none beyond the rows.
    """
    if capability < CAPABILITY.get(dtype, (0, 0)):
        raise BackendError(
            f"this GPU has no {WORDS[dtype]} products" + (" beside bfloat16" if dtype == INT8 else ""),
            found="sm_{}{}".format(*capability),
            expected="sm_{}{} or later".format(*CAPABILITY[dtype]),
            do="use fp16" if capability < CAPABILITY[torch.bfloat16] else "use bf16, fp16 or int8",
        )
    if dtype == FP8 and capability == ADA and TorchVersion(torch_version) < ADA_IN_STREAM:
        raise BackendError(
            "FP8 products of this PyTorch can hang on this GPU",
            found=f"torch {torch_version} on sm_89",
            expected=f"torch >= {ADA_IN_STREAM}",
            do="install it, or use int8 or bf16",
        )


def convert_to_rowwise(network: Denoiser, dtype: torch.dtype) -> None:
    """Replaces the products of every block, in place, by those in FP8 or INT8, which `check_products` is for."""
    for block in (cast(Block, block) for block in network.blocks):
        block.attention.qkv = cast(nn.Linear, RowwiseLinear(block.attention.qkv, dtype))
        block.attention.output = cast(nn.Linear, RowwiseLinear(block.attention.output, dtype))
        block.mlp_in = cast(nn.Linear, RowwiseLinear(block.mlp_in, dtype))
        block.mlp_out = cast(nn.Linear, RowwiseLinear(block.mlp_out, dtype))


class RowwiseLinear(nn.Module):
    """A linear layer in FP8 or INT8 with a scale a row: of the weight once, of what comes in as it comes."""

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        weight, scale = quantize_rows(linear.weight, dtype)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.bias = linear.bias
        if dtype == INT8:
            # Its sums are float32 when the bias comes to them. A copy: in a file's memory it begins anywhere.
            self.bias = nn.Parameter(linear.bias.to(torch.float32, copy=True), requires_grad=False)
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out] in the type of x."""
        rows, scale = quantize_rows(x.flatten(0, -2), self.dtype)
        out: Tensor = self.product(rows, scale, x.dtype).unflatten(0, x.shape[:-1])
        return out

    def product(self, rows: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows [n, in] that are rounded already, their scales f32 [n, 1] -> [n, out] in `dtype`."""
        if self.dtype == INT8:
            # Scaled in place: the sums are the largest tensor of a block.
            return self.sums(rows).float().mul_(scale).mul_(self.scale.t()).add_(self.bias).to(dtype)
        if rows.is_cuda:
            out: Tensor = torch._scaled_mm(
                rows,
                self.weight.t(),
                scale_a=scale,
                scale_b=self.scale.t(),
                bias=self.bias,
                out_dtype=dtype,
                use_fast_accum=True,
            )
            return out
        return functional.linear(rows.float() * scale, self.weight.float() * self.scale).to(dtype) + self.bias

    def sums(self, rows: Tensor) -> Tensor:
        """INT8's alone: codes [n, in] -> int32 [n, out], which the scales of both sides and the bias belong to."""
        return torch._int_mm(rows, self.weight.t())


def quantize_rows(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x [rows, n] in FP8 or INT8, with scales f32 [rows, 1] under which each row's largest is the type's largest."""
    largest = MAX_VALUE[dtype]
    scale = (x.float().abs().amax(1, keepdim=True) / largest).clamp(min=SMALLEST_SCALE)
    codes = x.float() / scale
    # FP8 has no infinity: what lies beyond its largest number would be no number.
    return (codes.round() if dtype == INT8 else codes).clamp(-largest, largest).to(dtype), scale
