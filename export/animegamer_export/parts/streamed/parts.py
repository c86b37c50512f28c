"""The four parts without their weights in memory: graphs over placeholder weights, and how each weight is made.

A placeholder has a weight's shape and one element's memory, so even seven billion weights are traced in little memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from animegamer_export.onnx_io.write import Graph
from animegamer_export.parts import denoiser as denoiser_module
from animegamer_export.parts import encoder as encoder_module
from animegamer_export.parts import predictor as predictor_module
from animegamer_export.parts import vae as vae_module
from animegamer_export.parts.denoiser import StepGraph, denoiser_graph
from animegamer_export.parts.predictor import predictor_graph
from animegamer_export.parts.vae import VaeGraph, vae_graphs
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.encoder import Encoder, EncoderSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

Module = TypeVar("Module", bound=nn.Module)


class Weights(Protocol):
    """Makes a network's weights, like `checkpoints.weight_map.WeightMap`."""

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        """One parameter in the given dtype, LoRA included."""
        ...


@dataclass(frozen=True, slots=True)
class StreamedPart:
    """Graphs that share one data file. value: makes the float32 value of a parameter or buffer by name.

    exact: parameters that are never rounded, such as position tables.
    """

    graphs: Sequence[Graph]
    weights_file: str
    value: Callable[[str], Tensor]
    exact: tuple[str, ...] = ()


def predictor_part(size: PredictorSize, weights: Weights) -> StreamedPart:
    """The predictor's graph over the weights of `Predictor`."""
    graph = predictor_graph(meta_module(lambda: Predictor(size)))

    def value(name: str) -> Tensor:
        return weights.merged(predictor_parameter(name)[0], torch.float32)

    return StreamedPart([graph], predictor_module.WEIGHTS, value)


def denoiser_part(size: DenoiserSize, encoder_size: EncoderSize, weights: Weights) -> StreamedPart:
    """The step over the weights of `Denoiser` ("denoiser.*"); the constant shot is the encoder's ("encoder.*")."""
    constant = torch.zeros(size.shot_tokens, size.hidden, device="meta")
    graph = denoiser_graph(meta_module(lambda: StepGraph(Denoiser(size), constant, "onnx")))

    def value(name: str) -> Tensor:
        if name == "unconditional":
            with torch.no_grad():
                return whole_encoder(encoder_size, weights).unconditional()[None]
        whole, which = denoiser_parameter(name)
        made = weights.merged(whole, torch.float32)
        rows: Tensor = made if which is None else made.split(size.hidden)[which]
        return rows

    return StreamedPart([graph], denoiser_module.WEIGHTS, value, ("positions",))


def predictor_parameter(name: str) -> tuple[str, None]:
    """The network's parameter for a weight in the predictor's graph."""
    return name.removeprefix("predictor."), None


def denoiser_parameter(name: str) -> tuple[str, int | None]:
    """The same for the denoiser; queries, keys and values (0, 1, 2) are thirds of one parameter."""
    split = re.fullmatch(r"blocks\.(\d+)\.(weight|biase)s\.(\d)", name)
    if split is not None:
        return f"denoiser.blocks.{split[1]}.attention.qkv.{split[2].removesuffix('e')}", int(split[3])
    name = re.sub(r"^blocks\.(\d+)\.block\.", r"blocks.\1.", name)
    return "denoiser." + name.removeprefix("denoiser."), None


def vae_part(size: VaeSize, weights: Weights, latent_height: int, latent_width: int) -> StreamedPart:
    """Both vae graphs. The decoder is in memory (0.5 GB at full size), as its graphs' weights are slices of its own."""
    with torch.device("meta"):
        decoder = VaeDecoder(size)
    graph = VaeGraph(with_weights(decoder, weights))
    held = dict(graph.state_dict())

    def value(name: str) -> Tensor:
        tensor: Tensor = held[name.removeprefix("decoder.")]
        return tensor

    with torch.no_grad():
        return StreamedPart(
            vae_graphs(graph, size.latent_channels, latent_height, latent_width), vae_module.WEIGHTS, value
        )


def encoder_part(size: EncoderSize, weights: Weights) -> StreamedPart:
    """The encoder over the weights "encoder.*"."""
    graph = encoder_module.encoder_graph(meta_module(lambda: Encoder(size)))
    return StreamedPart([graph], "encoder.weights", lambda name: weights.merged(f"encoder.{name}", torch.float32))


def whole_encoder(size: EncoderSize, weights: Weights) -> Encoder:
    """The encoder with all its weights: 0.1 GB at full size."""
    with torch.device("meta"):
        encoder = Encoder(size)
    return with_weights(encoder, weights, "encoder.")


def with_weights(module: Module, weights: Weights, prefix: str = "", dtype: torch.dtype = torch.float32) -> Module:
    """Loads all weights `prefix` + name into a module, which may be on "meta"; returns it in evaluation mode."""
    made = {name: weights.merged(prefix + name, dtype) for name in module.state_dict()}
    module.load_state_dict(made, assign=True)
    return module.eval()


def meta_module(make: Callable[[], Module]) -> Module:
    """A module with placeholder weights, for tracing only."""
    with torch.device("meta"):
        module = make()
    seen: dict[int, nn.Parameter] = {}
    for owner in module.modules():
        for name, parameter in list(owner.named_parameters(recurse=False)):
            if id(parameter) not in seen:
                seen[id(parameter)] = nn.Parameter(_expanded_zero(parameter), requires_grad=False)
            owner.register_parameter(name, seen[id(parameter)])
        for name, buffer in list(owner.named_buffers(recurse=False)):
            owner.register_buffer(name, _expanded_zero(buffer))
    return module.eval()


def _expanded_zero(tensor: Tensor) -> Tensor:
    return torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
