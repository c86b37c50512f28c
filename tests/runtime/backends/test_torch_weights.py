"""Every weight of every network comes back from exported ONNX files; other files are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from counted_weights import CountedWeights
from torch import Tensor, nn

from animegamer_export.parts.streamed.parts import StreamedPart, denoiser_part, encoder_part, predictor_part, vae_part
from animegamer_export.parts.streamed.write import write_streamed
from animegamer_rt.backends.torch import weight_names
from animegamer_rt.backends.torch.onnx_reader import Weight, read_weights
from animegamer_rt.errors import BackendError
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.encoder import Encoder, EncoderSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

PREDICTOR = PredictorSize(hidden=32, layers=2, heads=2, kv_heads=2, mlp=32, vocabulary=100, shot_width=32)
DENOISER = DenoiserSize(hidden=32, layers=2, heads=2, time_width=16, latent_height=4, latent_width=6)
ENCODER = EncoderSize(text_width=32, image_width=32, hidden=32)
VAE = VaeSize(channels=8, multipliers=(1, 2), res_blocks=0, norm_groups=2)
PARTS = {"predictor": "predictor", "denoiser": "denoiser", "encoder": "encoder", "vae": "vae_first"}
MAKE: dict[str, Callable[[], nn.Module]] = {
    "predictor": lambda: Predictor(PREDICTOR),
    "denoiser": lambda: Denoiser(DENOISER),
    "encoder": lambda: Encoder(ENCODER),
    "vae": lambda: VaeDecoder(VAE),
}
"""Sizes at which as many matrices as possible have the same shape, so that a mistaken one is not found by its shape."""


def scattered(name: str) -> nn.Module:
    """A network in which no two numbers are equal by design but biases of norms; float16 holds each matrix exactly."""
    network, random = MAKE[name](), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, weight in network.named_parameters():
            if key.endswith("norm.bias"):
                continue  # all zeros: where several weights are equal, an optimiser would store one of them
            weight.add_(0.1 * torch.randn(weight.shape, generator=random))
            if weight.ndim > 1:
                weight.copy_(weight.half().float())
    return network.eval()


def first_chunk(part: StreamedPart) -> StreamedPart:
    """Without the second chunk's graph, which takes as long and is not read here."""
    return replace(part, graphs=part.graphs[:1])


def write(name: str, network: nn.Module, encoder: Encoder, folder: Path) -> None:
    parts: dict[str, Callable[[], StreamedPart]] = {
        "predictor": lambda: predictor_part(PREDICTOR, CountedWeights({"": network})),
        "denoiser": lambda: denoiser_part(
            DENOISER, ENCODER, CountedWeights({"denoiser.": network, "encoder.": encoder})
        ),
        "encoder": lambda: encoder_part(ENCODER, CountedWeights({"encoder.": network})),
        "vae": lambda: first_chunk(vae_part(VAE, CountedWeights({"": network}), 4, 6)),
    }
    write_streamed(folder, parts[name](), "fp16")


def load(name: str, folder: Path) -> tuple[nn.Module, Tensor | None]:
    with torch.device("meta"):
        network = MAKE[name]()
    weights = read_weights(folder / f"{PARTS[name]}.onnx")
    return network, getattr(weight_names, f"load_{name}")(network, weights, Tensor.float)


@pytest.mark.parametrize("name", list(MAKE))
def test_every_weight_comes_back_bit_by_bit(name: str, tmp_path: Path) -> None:
    network, encoder = scattered(name), scattered("encoder")
    assert isinstance(encoder, Encoder)
    write(name, network, encoder, tmp_path)
    found, unconditional = load(name, tmp_path)
    for key, expected in network.state_dict().items():
        assert torch.equal(found.state_dict()[key], expected), key
    if name == "denoiser":
        assert unconditional is not None
        torch.testing.assert_close(unconditional, encoder.unconditional(), atol=2e-3, rtol=0)


def test_part_of_another_size_is_refused_by_the_weight_that_does_not_fit(tmp_path: Path) -> None:
    network = scattered("encoder")
    assert isinstance(network, Encoder)
    write("encoder", network, network, tmp_path)
    with torch.device("meta"):
        wider = Encoder(EncoderSize(text_width=48, image_width=32, hidden=32))
    with pytest.raises(
        BackendError, match=r"do not fit the network: text_projection.0.weight .*\(32, 32\); .*\(32, 48\)"
    ):
        weight_names.load_encoder(wider, read_weights(tmp_path / "encoder.onnx"), Tensor.float)


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
