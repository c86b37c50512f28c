"""Products in FP8 and INT8: one scale for every row of weight and input, and GPUs that are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from animegamer_rt.backends.torch.rowwise_linear import (
    FP8,
    INT8,
    RowwiseLinear,
    check_products,
    probe_fp8,
    quantize_rows,
)
from animegamer_rt.errors import BackendError


def test_rows_are_rounded_to_fp8() -> None:
    # Three bits of mantissa, scaled so that the largest is 448.
    rows, scales = quantize_rows(torch.tensor([[448.0, -17.0, 0.5], [0.0, 0.0, 0.0], [-0.896, 0.448, 0.001]]), FP8)
    assert rows.float().tolist() == [[448.0, -16.0, 0.5], [0.0, 0.0, 0.0], [-448.0, 224.0, 0.5]]
    assert scales[0, 0] == 1.0 and scales[2, 0] == pytest.approx(0.002)
    assert torch.isfinite(quantize_rows(torch.full((1, 4), 3e38), FP8)[0].float()).all()


def test_product_in_int8_has_exact_sums() -> None:
    random = torch.Generator().manual_seed(0)
    # Sums too large for float32 to hold exactly.
    linear, x = nn.Linear(2048, 8).requires_grad_(False), 1 + torch.rand(20, 2048, generator=random)
    linear.weight.copy_(1 + torch.rand(8, 2048, generator=random))
    layer, (rows, scale) = RowwiseLinear(linear, INT8), quantize_rows(x, INT8)
    sums = rows.double() @ layer.weight.double().t()
    assert float(sums.max()) > 2**24
    expected = sums * scale.double() * layer.scale.double().t() + linear.bias.double()
    torch.testing.assert_close(layer(x[None])[0].double(), expected, rtol=1e-6, atol=1e-6)
    assert 0 < float((layer(x) - linear(x)).norm() / linear(x).norm()) < 0.01


def test_gpus_without_reliable_products_are_refused() -> None:
    for dtype, capability, version in (
        (FP8, (8, 9), "2.12.0+cu130"),
        (FP8, (9, 0), "2.9.1"),
        (FP8, (12, 1), "2.11.0+cu130"),
        (INT8, (8, 0), "2.9.1"),
        (torch.float16, (7, 5), "2.13.0"),
    ):
        check_products(dtype, capability, version)
    for dtype, capability, version, said in (
        (FP8, (12, 0), "2.10.0+cu128", r"no FP8 products with a scale for each row .* sm_120; expected torch >= 2\.11"),
        (FP8, (8, 6), "2.13.0", r"no FP8 products; found sm_86; .* sm_89 or later; use bf16, fp16 or"),
        (INT8, (7, 5), "2.13.0", r"no INT8 products .*; found sm_75; expected sm_80 or later; use fp16"),
        (torch.bfloat16, (7, 5), "2.13.0", r"no bfloat16 products; found sm_75"),
        (FP8, (8, 9), "2.11.0+cu128", r"can hang on this GPU; found torch 2\.11\.0\+cu128 on sm_89; .* >= 2\.12"),
    ):
        with pytest.raises(BackendError, match=said):
            check_products(dtype, capability, version)


def test_fp8_product_that_is_missing_or_wrong_is_found_before_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, product = torch.device("cpu"), RowwiseLinear.product
    assert probe_fp8(cpu) == ""

    def missing(*given: Any) -> Any:
        raise RuntimeError("Rowwise scaling is not currently supported on your device\nmore lines")

    monkeypatch.setattr(RowwiseLinear, "product", missing)
    assert probe_fp8(cpu) == "Rowwise scaling is not currently supported on your device"
    monkeypatch.setattr(RowwiseLinear, "product", lambda layer, *given: product(layer, *given) - layer.bias)
    assert "relative error" in probe_fp8(cpu), "a product that forgets the bias"
    monkeypatch.setattr(RowwiseLinear, "product", lambda layer, *given: product(layer, *given) * torch.nan)
    assert "relative error nan" in probe_fp8(cpu)
