"""Linear layers in FP8 or INT8 with one scale per row: the four large products of each denoiser block.

INT8 sums are exact integers on every device. On a GPU both use PyTorch's products (`torch._int_mm`, `torch._scaled_mm`:
Ada, Hopper, Blackwell). On the CPU they are emulated: INT8 in float64, because `torch._int_mm` saturates on processors
without VNNI; FP8 in float32, equal up to the order of sums.
**A GPU has run INT8's products, but no turn with them.**
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
"""The scale of a row of zeros."""
MIN_CAPABILITY: Mapping[torch.dtype, tuple[int, int]] = MappingProxyType(
    {FP8: (8, 9), INT8: (8, 0), torch.bfloat16: (8, 0)}
)
"""The first compute capability with such products; for INT8 the first with bfloat16, which the rest uses."""
DTYPE_NAMES: Mapping[torch.dtype, str] = MappingProxyType({FP8: "FP8", INT8: "INT8", torch.bfloat16: "bfloat16"})
ADA, ADA_FIXED_IN = (8, 9), "2.12"
"""Before this version PyTorch's FP8 product prepares its workspace on the default stream on Ada GPUs. On any other
stream, as here, it can then wait forever (pytorch issue 177651)."""
BLACKWELL_CONSUMER, BLACKWELL_FROM = (12, 0), "2.11"
"""RTX 50 and later, and the first PyTorch whose FP8 product supports row scales there."""
PROBE_ERROR = 0.1
"""Largest relative error of the probe: three times what rounding both sides to FP8 costs."""
PROBE_WIDTH = 32
"""Rows and columns of the probe's product; FP8 products need multiples of 16."""


def check_products(dtype: torch.dtype, capability: tuple[int, int], torch_version: str) -> None:
    """Raises BackendError if the GPU has no products of this dtype, or PyTorch's are unreliable there.

    FP8 kernels read rows in multiples of 256 (pytorch issue 133334), yet any number of rows is safe: according to their
    source (RowwiseScaledMM.cu) they pad the scales themselves, and Ada's kernel, which does not, reads none beyond the
    rows.
    """
    if capability < MIN_CAPABILITY.get(dtype, (0, 0)):
        raise BackendError(
            f"this GPU has no {DTYPE_NAMES[dtype]} products" + (" with bfloat16" if dtype == INT8 else ""),
            found="sm_{}{}".format(*capability),
            expected="sm_{}{} or later".format(*MIN_CAPABILITY[dtype]),
            do="use fp16" if capability < MIN_CAPABILITY[torch.bfloat16] else "use bf16, fp16 or int8",
        )
    if dtype == FP8 and capability == ADA and TorchVersion(torch_version) < ADA_FIXED_IN:
        raise BackendError(
            "FP8 products of this PyTorch can hang on this GPU",
            found=f"torch {torch_version} on sm_89",
            expected=f"torch >= {ADA_FIXED_IN}",
            do="install it, or use int8 or bf16",
        )
    if dtype == FP8 and capability >= BLACKWELL_CONSUMER and TorchVersion(torch_version) < BLACKWELL_FROM:
        raise BackendError(
            "this PyTorch has no FP8 products with row scales on this GPU",
            found="torch {} on sm_{}{}".format(torch_version, *capability),
            expected=f"torch >= {BLACKWELL_FROM}",
            do="install it, or use int8 or bf16",
        )


def probe_fp8(device: torch.device) -> str:
    """Why this PyTorch has no FP8 product with row scales and a bias on this device; empty if it has.

    Runs a small one and compares it with float32. PyTorch on Windows, for example, is built without them.
    """
    random = torch.Generator().manual_seed(0)
    linear = nn.Linear(PROBE_WIDTH, PROBE_WIDTH, device=device, dtype=torch.bfloat16).requires_grad_(False)
    for tensor in (linear.weight, linear.bias):
        tensor.copy_(torch.randn(tensor.shape, generator=random))
    x = torch.randn((PROBE_WIDTH, PROBE_WIDTH), generator=random).to(linear.weight)
    try:
        found = RowwiseLinear(linear, FP8)(x).float()
    except torch.AcceleratorError:
        raise
    except RuntimeError as error:
        return str(error).partition("\n")[0][:300]
    expected = functional.linear(x.float(), linear.weight.float(), linear.bias.float())
    error_share = float((found - expected).norm() / expected.norm())
    # Written so that NaN fails.
    return "" if error_share <= PROBE_ERROR else f"its result is wrong: relative error {error_share:.3f}"


def convert_to_rowwise(network: Denoiser, dtype: torch.dtype) -> None:
    """Replaces the four large layers of every block, in place, by RowwiseLinear in FP8 or INT8."""
    for block in (cast(Block, block) for block in network.blocks):
        block.attention.qkv = cast(nn.Linear, RowwiseLinear(block.attention.qkv, dtype))
        block.attention.output = cast(nn.Linear, RowwiseLinear(block.attention.output, dtype))
        block.mlp_in = cast(nn.Linear, RowwiseLinear(block.mlp_in, dtype))
        block.mlp_out = cast(nn.Linear, RowwiseLinear(block.mlp_out, dtype))


class RowwiseLinear(nn.Module):
    """A linear layer in FP8 or INT8, with one scale for each row of the weight and of the input.

    The weight is quantised when the layer is created, the input in every call.
    """

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        weight, scale = quantize_rows(linear.weight, dtype)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.bias = linear.bias
        if dtype == INT8:
            # Added to float32 sums. Copied, because memory mapped from a file may be unaligned.
            self.bias = nn.Parameter(linear.bias.to(torch.float32, copy=True), requires_grad=False)
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out] in x's dtype."""
        rows, scale = quantize_rows(x.flatten(0, -2), self.dtype)
        out: Tensor = self.product(rows, scale, x.dtype).unflatten(0, x.shape[:-1])
        return out

    def product(self, rows: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
        """Quantised rows [n, in] with scales f32 [n, 1] -> [n, out] in `dtype`."""
        if self.dtype == INT8:
            # In place, because the sums are the largest tensor of a block.
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
        """INT8 only: codes [n, in] -> i32 [n, out], before scales and bias."""
        if rows.is_cuda:
            return torch._int_mm(rows, self.weight.t())
        return (rows.double() @ self.weight.double().t()).to(torch.int32)


def quantize_rows(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x [rows, n] -> codes in FP8 or INT8 and scales f32 [rows, 1], so that each row's maximum becomes MAX_VALUE."""
    largest = MAX_VALUE[dtype]
    scale = (x.abs().amax(1, keepdim=True).float() / largest).clamp(min=SMALLEST_SCALE)
    # In place: at full size these are a denoising step's largest tensors.
    codes = x.to(torch.float32, copy=True).div_(scale)
    # Clamped, because FP8 e4m3fn has no infinity: a larger value would become NaN.
    return (codes.round_() if dtype == INT8 else codes).clamp_(-largest, largest).to(dtype), scale
