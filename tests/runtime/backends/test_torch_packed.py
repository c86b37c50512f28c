"""A predictor in 4 and 8 bits by PyTorch: the very weights that onnxruntime makes of them, and its answers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from animegamer_export.quantize.blocks import NF4_CODE
from animegamer_export.quantize.bundle import quantize_bundle
from animegamer_export.quantize.scheme import scheme
from animegamer_rt.backends import onnxruntime as ort_backend
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


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module", params=list(BYTES_A_WEIGHT))
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp(request.param) / "pocket"
    quantize_bundle(open_bundle("pocket"), folder, {"predictor": scheme(request.param)})
    return open_bundle(str(folder))


def layers(bundle: Bundle, torch_device: TorchDevice | None = None) -> dict[str, Layer]:
    network = torch_backend.load_models(bundle, torch_device or TorchDevice()).predictor
    return {name: layer for name, layer in network.named_modules() if isinstance(layer, Layer)}


def dequantized(bundle: Bundle) -> list[np.ndarray]:
    """What onnxruntime's DequantizeLinear makes of each weight, [in, out], in the order in which they are used.

    Of NF4, which it dequantises inside the product, the values of QLoRA's table times their scales.
    """
    model = onnx.load(str(bundle.part_path("predictor")))
    if bundle.manifest.parts["predictor"].precision == "nf4":
        return [_nf4_weight(model, node) for node in model.graph.node if node.op_type == "MatMulBnb4"]
    made = {node.output[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}
    order = [name for node in model.graph.node for name in node.input if name in made]
    read_by_them = {name for node in made.values() for name in node.input}
    outputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in order]
    held = [tensor for tensor in model.graph.initializer if tensor.name in read_by_them]
    graph = onnx.helper.make_graph([made[name] for name in order], "weights", [], outputs, held)
    alone = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(alone.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(found) for found in session.run(order, {})]


def _nf4_weight(model: onnx.ModelProto, node: onnx.NodeProto) -> np.ndarray:
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    size = {attribute.name: attribute.i for attribute in node.attribute}
    codes, scales = (held[name].reshape(-1) for name in node.input[1:])
    levels = NF4_CODE[np.stack([codes >> 4, codes & 15], axis=1)].reshape(-1, size["block_size"])
    return (levels * scales[:, None].astype(np.float32)).reshape(size["N"], size["K"]).T


def test_weights_are_bit_by_bit_those_of_onnxruntime(bundle: Bundle) -> None:
    found, expected = list(layers(bundle).values()), dequantized(bundle)
    assert len(found) == len(expected) == 28
    for layer, weight in zip(found, expected, strict=True):
        np.testing.assert_array_equal(layer.weight(torch.float32).numpy(), weight.T)
        rounded = torch.from_numpy(weight.T.copy()).bfloat16()
        assert torch.equal(layer.weight(torch.bfloat16), rounded)


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
