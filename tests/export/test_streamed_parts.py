"""Streamed parts: the files equal those of the whole networks, with one weight in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from counted_weights import CountedWeights, scattered

from animegamer_export.onnx_io.write import ExportResult
from animegamer_export.parts.denoiser import export_denoiser
from animegamer_export.parts.encoder import export_encoder
from animegamer_export.parts.predictor import export_predictor
from animegamer_export.parts.streamed.parts import (
    StreamedPart,
    denoiser_part,
    encoder_part,
    predictor_part,
    vae_part,
)
from animegamer_export.parts.streamed.write import write_streamed
from animegamer_export.parts.vae import export_vae
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.encoder import Encoder, EncoderSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

PREDICTOR = PredictorSize(hidden=32, layers=2, heads=2, kv_heads=1, mlp=64, vocabulary=100, shot_width=32)
DENOISER = DenoiserSize(hidden=32, layers=2, heads=2, time_width=16, latent_height=4, latent_width=6)
ENCODER = EncoderSize(text_width=16, image_width=24, hidden=32)
VAE = VaeSize(channels=4, multipliers=(1, 1, 2), res_blocks=0, norm_groups=2)
HEIGHT, WIDTH = 4, 6


def both_exports(name: str) -> tuple[Callable[[Path], ExportResult], StreamedPart]:
    """The export of a whole part, and the same part to be streamed."""
    if name == "predictor":
        predictor = scattered(Predictor(PREDICTOR))
        return lambda folder: export_predictor(predictor, folder), predictor_part(
            PREDICTOR, CountedWeights({"": predictor})
        )
    if name == "vae":
        decoder = scattered(VaeDecoder(VAE))
        part = vae_part(VAE, CountedWeights({"": decoder}), HEIGHT, WIDTH)
        return lambda folder: export_vae(decoder, folder, HEIGHT, WIDTH), part
    denoiser, encoder = scattered(Denoiser(DENOISER)), scattered(Encoder(ENCODER))
    held = CountedWeights({"denoiser.": denoiser, "encoder.": encoder})
    if name == "encoder":
        return lambda folder: export_encoder(encoder, folder), encoder_part(ENCODER, held)
    with torch.no_grad():
        constant = encoder.unconditional()
    return lambda folder: export_denoiser(denoiser, constant, folder), denoiser_part(DENOISER, ENCODER, held)


def answers(path: Path) -> list[np.ndarray]:
    """What a file answers to inputs drawn by a fixed seed."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(7)
    lengths = {"rows": 2, "tokens": 24, "cached_tokens": 5, "history_tokens": 2, "read_tokens": 7}
    lengths |= {"batch": 2, "channels": 3}
    feeds = {}
    for value in session.get_inputs():
        shape = [lengths[axis] if isinstance(axis, str) else axis for axis in value.shape]
        if value.type == "tensor(bool)":
            feeds[value.name] = np.ones(shape, np.bool_)
        elif value.type == "tensor(int64)":
            feeds[value.name] = np.arange(np.prod(shape)).reshape(shape) % 2
        else:
            feeds[value.name] = random.standard_normal(shape).astype(np.float32)
    return session.run(None, feeds)


@pytest.mark.parametrize("name", ["predictor", "denoiser", "vae", "encoder"])
def test_streamed_files_compute_the_same_as_those_of_whole_networks(name: str, tmp_path: Path) -> None:
    ordinary, part = both_exports(name)
    expected = ordinary(tmp_path / "ordinary").parts
    found = write_streamed(tmp_path / "large", part, "fp16")
    assert {key: (entry.inputs, entry.outputs) for key, entry in found.items()} == {
        key: (entry.inputs, entry.outputs) for key, entry in expected.items()
    }
    for entry in expected.values():
        for one, other in zip(
            answers(tmp_path / "ordinary" / entry.file), answers(tmp_path / "large" / entry.file), strict=True
        ):
            np.testing.assert_array_equal(one, other)
        for data in entry.data_files:
            assert (tmp_path / "large" / data).stat().st_size == (tmp_path / "ordinary" / data).stat().st_size


def test_bf16_and_fp32_are_stored_as_asked(tmp_path: Path) -> None:
    for precision, kind in (("bf16", onnx.TensorProto.BFLOAT16), ("fp32", onnx.TensorProto.FLOAT)):
        _, part = both_exports("encoder")
        write_streamed(tmp_path / precision, part, precision)
        graph = onnx.load(tmp_path / precision / "encoder.onnx", load_external_data=False).graph
        assert {tensor.data_type for tensor in graph.initializer if len(tensor.dims) == 2} == {kind}
        assert all(np.isfinite(answer).all() for answer in answers(tmp_path / precision / "encoder.onnx"))


def test_one_weight_is_in_memory_at_a_time(tmp_path: Path) -> None:
    held = CountedWeights({"": scattered(Predictor(PREDICTOR))})
    write_streamed(tmp_path, predictor_part(PREDICTOR, held), "fp16")
    assert held.most_alive == max(value.nbytes for value in held.state.values())
    assert held.requests["blocks.0.gate.weight"] == held.requests["embedding.weight"] == 1, "large ones are made once"
