"""Weights as PyTorch reads and holds them: in 4 and 8 bits as onnxruntime has them, in FP8 and INT8, damaged."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from animegamer_export.quantize.bundle import quantize_bundle
from animegamer_export.quantize.scheme import scheme
from animegamer_rt.backends.onnxruntime import loader as ort_backend
from animegamer_rt.backends.torch import loader as torch_backend
from animegamer_rt.backends.torch import rowwise_linear, weight_names
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.onnx_reader import Weight, read_weights
from animegamer_rt.backends.torch.packed_linear import PackedLinear
from animegamer_rt.backends.torch.rowwise_linear import FP8, INT8, RowwiseLinear, probe_fp8, quantize_rows
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.diagnose import selftest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError
from animegamer_rt.models.encoder import Encoder, EncoderSize

BYTES_A_WEIGHT = {"int4-qdq": 0.5 + 4 / 64, "int8-qdq": 1.0}
"""Codes, and a scale in float32 for each block of 64 or for each output."""


@pytest.fixture(scope="module", params=list(BYTES_A_WEIGHT))
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp(request.param) / "pocket"
    quantize_bundle(open_bundle("pocket"), folder, {"predictor": scheme(request.param)})
    return open_bundle(str(folder))


def test_answers_are_those_of_onnxruntime(bundle: Bundle) -> None:
    ours = torch_backend.load(bundle, EngineConfig("torch-cpu"))
    theirs = ort_backend.load(bundle, EngineConfig("cpu-fp32", threads=1))
    assert "predictor" not in ours.precision and ours.precision["denoiser"] == "fp32"
    answers = (islice(selftest.answers(bundle, engines), 3) for engines in (ours, theirs))
    for (name, found, _), (_, expected, _) in zip(*answers, strict=True):
        assert name.startswith("predictor.")
        np.testing.assert_allclose(found, expected, atol=2e-5, rtol=0)


def test_weights_stay_packed_and_keep_their_type_in_16_bits(bundle: Bundle) -> None:
    torch_device = TorchDevice(torch.bfloat16)
    models = torch_backend.load_models(bundle, torch_device)
    network = torch_backend.cast_for_inference(models.predictor, torch_device.dtype)
    packed = [layer for layer in network.modules() if isinstance(layer, PackedLinear)]
    held = sum(buffer.nbytes for layer in packed for buffer in layer.buffers())
    weights = sum(layer.shape[0] * layer.shape[1] for layer in packed)
    assert held / weights == pytest.approx(BYTES_A_WEIGHT[bundle.manifest.parts["predictor"].precision], rel=0.02)
    assert {layer.codes.dtype for layer in packed} == {torch.int8}
    assert {layer.scales.dtype for layer in packed} == {torch.float32}
    assert network.head.weight.dtype == torch.bfloat16


def test_part_of_another_size_is_refused_by_the_weight_that_does_not_fit() -> None:
    with torch.device("meta"):
        other = Encoder(EncoderSize(text_width=48, image_width=32, hidden=32))
    weights = read_weights(open_bundle("pocket").part_path("encoder"))
    with pytest.raises(BackendError, match=r"do not fit the network: text_projection.0.weight .*; .*\(32, 48\)"):
        weight_names.load_encoder(other, weights, Tensor.float)


def test_files_that_are_no_onnx_or_are_cut_short_are_named(tmp_path: Path) -> None:
    for content in (b"", b"not onnx at all", b"\x3a\x7f\x0a"):
        (tmp_path / "part.onnx").write_bytes(content)
        with pytest.raises(BackendError, match=r"part\.onnx: the part cannot be read as ONNX"):
            read_weights(tmp_path / "part.onnx")
    data = tmp_path / "some.weights"
    data.write_bytes(bytes(100))
    weight = Weight("a.weight", (8, 8), 1, memoryview(b""), data, 0, 256)
    with pytest.raises(
        BackendError, match=r"some\.weights: .* bytes are missing; found a\.weight: 100 bytes; .* 256 b"
    ):
        weight.tensor()


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
        rowwise_linear.check_products(dtype, capability, version)
    for dtype, capability, version, said in (
        (FP8, (12, 0), "2.10.0+cu128", r"no FP8 products with row scales .* sm_120; expected torch >= 2\.11"),
        (FP8, (8, 6), "2.13.0", r"no FP8 products; found sm_86; .* sm_89 or later; use bf16, fp16 or"),
        (INT8, (7, 5), "2.13.0", r"no INT8 products .*; found sm_75; expected sm_80 or later; use fp16"),
        (torch.bfloat16, (7, 5), "2.13.0", r"no bfloat16 products; found sm_75"),
        (FP8, (8, 9), "2.11.0+cu128", r"can hang on this GPU; found torch 2\.11\.0\+cu128 on sm_89; .* >= 2\.12"),
    ):
        with pytest.raises(BackendError, match=said):
            rowwise_linear.check_products(dtype, capability, version)


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
