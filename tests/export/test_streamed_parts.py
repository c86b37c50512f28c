"""Streamed parts: stored in the precision asked for, with one weight in memory at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from counted_weights import CountedWeights, scattered

from animegamer_export.parts.streamed.parts import encoder_part
from animegamer_export.parts.streamed.write import write_streamed
from animegamer_rt.models.encoder import Encoder, EncoderSize

ENCODER = EncoderSize(text_width=48, image_width=48, hidden=48)


def counted() -> CountedWeights:
    return CountedWeights({"encoder.": scattered(Encoder(ENCODER))})


def answers(path: Path) -> list[np.ndarray]:
    """What an encoder's file answers to random inputs."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(7)
    return session.run(
        None, {value.name: random.standard_normal(value.shape).astype(np.float32) for value in session.get_inputs()}
    )


def test_bf16_and_fp32_are_stored_as_asked(tmp_path: Path) -> None:
    for precision, kind in (("bf16", onnx.TensorProto.BFLOAT16), ("fp32", onnx.TensorProto.FLOAT)):
        write_streamed(tmp_path / precision, encoder_part(ENCODER, counted()), precision)
        graph = onnx.load(tmp_path / precision / "encoder.onnx", load_external_data=False).graph
        assert {tensor.data_type for tensor in graph.initializer if len(tensor.dims) == 2} == {kind}
        assert all(np.isfinite(answer).all() for answer in answers(tmp_path / precision / "encoder.onnx"))


def test_one_weight_is_in_memory_at_a_time(tmp_path: Path) -> None:
    held = counted()
    write_streamed(tmp_path, encoder_part(ENCODER, held), "fp16")
    largest = max(held.state, key=lambda name: held.state[name].nbytes)
    assert held.most_alive == held.state[largest].nbytes
    assert held.requests[largest] == 1, "large ones are made once"
