"""The road without the model: files equal to the ordinary road's, and one weight in memory at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from animegamer_export.onnx_io.write import ExportResult
from animegamer_export.parts.denoiser import export_denoiser
from animegamer_export.parts.encoder import export_encoder
from animegamer_export.parts.predictor import export_predictor
from animegamer_export.parts.streamed.parts import (
    StreamedPart,
    denoiser_part,
    encoder_part,
    meta_module,
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


class Held:
    """Weights of networks that are there, by prefix. Remembers how many bytes of what it gave are alive at once."""

    def __init__(self, networks: Mapping[str, nn.Module]) -> None:
        self.state = {
            prefix + name: value for prefix, net in networks.items() for name, value in net.state_dict().items()
        }
        self.alive, self.most_alive = 0, 0

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        made = self.state[parameter].detach().to(dtype, copy=True)
        self.alive += made.nbytes
        self.most_alive = max(self.most_alive, self.alive)
        weakref.finalize(made.untyped_storage(), self._gone, made.nbytes)
        return made

    def _gone(self, count: int) -> None:
        self.alive -= count


def scattered(module: nn.Module, seed: int = 0) -> nn.Module:
    """Biases and norms off their starting values too."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=random))
    return module.eval()


def roads(name: str) -> tuple[Callable[[Path], ExportResult], StreamedPart]:
    """The ordinary export of a part, and the same part with its weights still to be made."""
    if name == "predictor":
        predictor = scattered(Predictor(PREDICTOR))
        assert isinstance(predictor, Predictor)
        return lambda folder: export_predictor(predictor, folder), predictor_part(PREDICTOR, Held({"": predictor}))
    if name == "vae":
        decoder = scattered(VaeDecoder(VAE))
        assert isinstance(decoder, VaeDecoder)
        part = vae_part(VAE, Held({"": decoder}), HEIGHT, WIDTH)
        return lambda folder: export_vae(decoder, folder, HEIGHT, WIDTH), part
    denoiser, encoder = scattered(Denoiser(DENOISER)), scattered(Encoder(ENCODER))
    assert isinstance(denoiser, Denoiser) and isinstance(encoder, Encoder)
    held = Held({"denoiser.": denoiser, "encoder.": encoder})
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
def test_the_files_answer_as_the_ordinary_roads_do(name: str, tmp_path: Path) -> None:
    ordinary, part = roads(name)
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
        _, part = roads("encoder")
        write_streamed(tmp_path / precision, part, precision)
        graph = onnx.load(tmp_path / precision / "encoder.onnx", load_external_data=False).graph
        assert {tensor.data_type for tensor in graph.initializer if len(tensor.dims) == 2} == {kind}
        assert all(np.isfinite(answer).all() for answer in answers(tmp_path / precision / "encoder.onnx"))


def test_memory_does_not_grow_with_the_number_of_layers(tmp_path: Path) -> None:
    most = []
    for layers in (1, 2):
        size = replace(PREDICTOR, layers=layers)
        held = Held({"": scattered(Predictor(size))})
        write_streamed(tmp_path / str(layers), predictor_part(size, held), "fp16")
        most.append(held.most_alive)
    largest = max(value.nbytes for value in Predictor(PREDICTOR).state_dict().values())
    assert most == [largest, largest]


def test_a_weight_that_two_graphs_share_is_made_once(tmp_path: Path) -> None:
    asked: list[str] = []

    class Counting(Held):
        def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
            asked.append(parameter)
            return super().merged(parameter, dtype)

    held = Counting({"": scattered(Predictor(PREDICTOR))})
    write_streamed(tmp_path, predictor_part(PREDICTOR, held), "fp16")
    assert asked.count("blocks.0.gate.weight") == 1 and asked.count("embedding.weight") == 1


def test_a_stand_in_takes_no_memory() -> None:
    module = meta_module(lambda: nn.Linear(1_000_000, 1_000_000))
    assert module.weight.shape == (1_000_000, 1_000_000) and module.weight.untyped_storage().nbytes() == 4
