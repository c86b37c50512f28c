"""Products in 8 bits: a scale for every row of both sides, and what a GPU's own product is given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from animegamer_rt.backends.torch.rowwise_linear import FP8, INT8, MAX_VALUE, RowwiseLinear, quantize_rows


@pytest.mark.parametrize("dtype", [FP8, INT8], ids=["fp8", "int8"])
def test_every_row_of_a_weight_has_a_scale_of_its_own(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 6).requires_grad_(False)
    linear.weight.mul_(torch.tensor([1e-4, 1e-2, 1.0, 10.0, 1e3, 1e5])[:, None])
    layer = RowwiseLinear(linear, dtype)
    assert layer.weight.float().abs().amax(1).tolist() == [MAX_VALUE[dtype]] * 6
    assert tuple(layer.scale.shape) == (6, 1) and layer.scale.dtype == torch.float32
    error = (layer.weight.float() * layer.scale - linear.weight).norm(dim=1) / linear.weight.norm(dim=1)
    assert 0 < float(error.max()) < 0.05


@pytest.mark.parametrize("dtype", [FP8, INT8], ids=["fp8", "int8"])
def test_scales_of_halves_are_float32(dtype: torch.dtype) -> None:
    x = torch.randn(5, 48, generator=torch.Generator().manual_seed(1)).bfloat16()
    codes, scale = quantize_rows(x, dtype)
    exact, exact_scale = quantize_rows(x.float(), dtype)
    assert scale.dtype == torch.float32 and torch.equal(scale, exact_scale)
    assert torch.equal(codes.float(), exact.float())


class OnGpu(Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True


def test_product_of_a_gpu_is_given_scales_of_rows_and_the_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(64, 48).requires_grad_(False), torch.randn(32, 64)
    layer = RowwiseLinear(linear, FP8)
    rows, scale = quantize_rows(x, FP8)

    def scaled_mm(left: Tensor, right: Tensor, **given: Any) -> Tensor:
        # What PyTorch says of it: scales [rows, 1] and [1, columns], the right side column by column.
        assert given["scale_a"].shape == (32, 1) and given["scale_b"].shape == (1, 48) and right.stride(0) == 1
        sums = left.as_subclass(Tensor).float() * given["scale_a"] @ (right.float() * given["scale_b"])
        return (sums + given["bias"]).to(given["out_dtype"])

    expected = layer.product(rows, scale, torch.bfloat16)
    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    found = layer.product(rows.as_subclass(OnGpu), scale, torch.bfloat16)
    assert found.dtype == torch.bfloat16 and float(linear.bias.abs().min()) > 0
    torch.testing.assert_close(found.as_subclass(Tensor), expected.to(torch.bfloat16), rtol=1e-2, atol=1e-2)
