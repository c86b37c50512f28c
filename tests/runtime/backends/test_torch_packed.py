"""A predictor in 4 and 8 bits by PyTorch: the very weights that onnxruntime makes of them, and its answers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from animegamer_export.quantize.bundle import quantize_bundle
from animegamer_export.quantize.scheme import scheme
from animegamer_rt.backends.onnxruntime import loader as ort_backend
from animegamer_rt.backends.torch import loader as torch_backend
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.nf4_linear import Nf4Linear
from animegamer_rt.backends.torch.packed_linear import PackedLinear
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.diagnose import selftest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError

BYTES_A_WEIGHT = {"int4-qdq": 0.5 + 4 / 64, "int8-qdq": 1.0, "nf4": 0.5 + 4 / 64}
"""Codes, and a scale in float32 for each block of 64 or for each output."""
Layer = PackedLinear | Nf4Linear


@pytest.fixture(scope="module", params=list(BYTES_A_WEIGHT))
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp(request.param) / "pocket"
    quantize_bundle(open_bundle("pocket"), folder, {"predictor": scheme(request.param)})
    return open_bundle(str(folder))


def test_answers_are_those_of_onnxruntime(bundle: Bundle) -> None:
    (ours, theirs) = (
        torch_backend.load(bundle, EngineConfig("torch-cpu")),
        ort_backend.load(bundle, EngineConfig("cpu-fp32", threads=1)),
    )
    assert "predictor" not in ours.precision and ours.precision["denoiser"] == "fp32"
    answers = [{name: found for name, found, _ in selftest.answers(bundle, each)} for each in (ours, theirs)]
    for name in ("predictor.shot", "predictor.logits", "predictor.next_logits"):
        np.testing.assert_allclose(answers[0][name], answers[1][name], atol=2e-5, rtol=0)


def test_nf4_without_bitsandbytes_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quantize_bundle(open_bundle("pocket"), tmp_path / "small", {"predictor": scheme("nf4")})
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(BackendError, match=r"bitsandbytes is not installed.*run: pip install 'bitsandbytes>="):
        torch_backend.load(open_bundle(str(tmp_path / "small")), EngineConfig("torch-cpu"))


def test_nf4_blocks_across_rows_are_refused(tmp_path: Path) -> None:
    quantize_bundle(open_bundle("pocket"), tmp_path / "wide", {"predictor": scheme("nf4", 1024)})
    with pytest.raises(BackendError, match=r"blocks of 1024 in rows of \d+; quantise with a smaller --block"):
        torch_backend.load(open_bundle(str(tmp_path / "wide")), EngineConfig("torch-cpu"))


def test_weights_stay_packed_and_keep_their_type_in_16_bits(bundle: Bundle) -> None:
    torch_device = TorchDevice(torch.bfloat16)
    network = torch_backend.cast_for_inference(
        torch_backend.load_models(bundle, torch_device).predictor, torch_device.dtype
    )
    packed = [layer for layer in network.modules() if isinstance(layer, Layer)]
    held = sum(buffer.nbytes for layer in packed for buffer in layer.buffers())
    weights = sum(layer.shape[0] * layer.shape[1] for layer in packed)
    assert held / weights == pytest.approx(BYTES_A_WEIGHT[bundle.manifest.parts["predictor"].precision], rel=0.02)
    assert {layer.codes.dtype for layer in packed} <= {torch.int8, torch.uint8}
    assert {layer.scales.dtype for layer in packed} == {torch.float32}
    assert network.head.weight.dtype == torch.bfloat16
