"""Reads a bundle's networks onto a torch device, all at once or one at a time; weights keep their stored dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from animegamer_rt.bundle.config import read_record
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import (
    DEFAULT_PARTS,
    DENOISER,
    ENCODER,
    LIGHT_DECODER,
    NETWORKS,
    PLAY_ROLES,
    PREDICTOR,
    TINY_DECODER,
    VAE,
    PlanParts,
)
from animegamer_rt.errors import BackendError
from animegamer_rt.models.denoiser import Denoiser as DenoiserNetwork
from animegamer_rt.models.denoiser import DenoiserSize
from animegamer_rt.models.encoder import Encoder as EncoderNetwork
from animegamer_rt.models.encoder import EncoderSize
from animegamer_rt.models.light_decoder import LightDecoder, LightDecoderSize
from animegamer_rt.models.predictor import Predictor as PredictorNetwork
from animegamer_rt.models.predictor import PredictorSize
from animegamer_rt.models.tiny_decoder import TinyDecoder, TinyDecoderSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

from .device import TorchDevice
from .onnx_reader import Weights, read_weights
from .weight_names import ToDevice, load_denoiser, load_encoder, load_light_decoder, load_predictor, load_vae

READABLE_PRECISIONS = ("fp32", "fp16", "bf16")
"""Precisions of a bundle's parts that this backend can read."""
PACKED_PRECISIONS: Mapping[str, tuple[str, ...]] = {PREDICTOR: ("int4-qdq", "int8-qdq")}
"""Role -> further, quantised precisions of its part; its weights stay quantised on the device."""


@dataclass(frozen=True, slots=True)
class NetworkKind:
    """A kind of network: its role, its sizes, its module, and the function that fills it from an ONNX file."""

    role: str
    size: type[Any]
    network: Callable[[Any], nn.Module]
    load: Callable[[Any, Weights, ToDevice], object]


KINDS: Mapping[str, NetworkKind] = {
    NETWORKS[PREDICTOR]: NetworkKind(PREDICTOR, PredictorSize, PredictorNetwork, load_predictor),
    NETWORKS[DENOISER]: NetworkKind(DENOISER, DenoiserSize, DenoiserNetwork, load_denoiser),
    NETWORKS[VAE]: NetworkKind(VAE, VaeSize, VaeDecoder, load_vae),
    LIGHT_DECODER: NetworkKind(VAE, LightDecoderSize, LightDecoder, load_light_decoder),
    TINY_DECODER: NetworkKind(VAE, TinyDecoderSize, TinyDecoder, load_light_decoder),
    NETWORKS[ENCODER]: NetworkKind(ENCODER, EncoderSize, EncoderNetwork, load_encoder),
}
"""Kind of network, as named by `Bundle.network` -> its code. `loader` has the engines that run each."""


@dataclass(frozen=True, slots=True)
class Models:
    """The networks with their weights. unconditional [226, D]: the constant shot of the unconditional row."""

    predictor: PredictorNetwork
    denoiser: DenoiserNetwork
    decoder: VaeDecoder | LightDecoder | TinyDecoder
    unconditional: Tensor
    encoder: EncoderNetwork | None = None


def load_models(
    bundle: Bundle,
    torch_device: TorchDevice,
    parts: PlanParts = DEFAULT_PARTS,
    convert: Callable[[Any], object] = lambda network: None,
) -> Models:
    """The networks of a bundle's parts on the device, weights in their stored dtypes, each converted once it is read.

    Raises BackendError for a bundle without sizes, an unsupported kind of network, and unreadable weights.
    """
    refuse_quantised(bundle, parts)
    # The denoiser first: before its products are quantised, it takes 1.3 GiB more than afterwards.
    roles = (DENOISER, PREDICTOR, VAE, *([ENCODER] if ENCODER in bundle.manifest.parts else []))
    found = {}
    for role in roles:
        found[role] = read_network(bundle, torch_device, parts, role)
        convert(found[role][0])
    denoiser, unconditional = found[DENOISER]
    return Models(found[PREDICTOR][0], denoiser, found[VAE][0], unconditional, found.get(ENCODER, (None, None))[0])


def read_network(bundle: Bundle, torch_device: TorchDevice, parts: PlanParts, role: str) -> tuple[Any, Any]:
    """A role's network, weights in their stored dtypes, and a denoiser's unconditional shot.

    Raises BackendError as `load_models`.
    """
    size, kind = read_size(bundle, parts, role), KINDS[bundle.network(role, parts[role])]
    with torch.device("meta"):
        network = kind.network(size)
    with torch_device.use():
        weights = read_weights(bundle.part_path(parts.graphs(role)[0]))
        return network, kind.load(network, weights, lambda tensor: tensor.to(torch_device.device))


def read_size(bundle: Bundle, parts: PlanParts, role: str) -> Any:
    """The sizes of a role's network, as its kind declares them. Raises BackendError as `load_models`."""
    name, sizes = bundle.network(role, parts[role]), bundle.sizes(role, parts[role])
    kind = KINDS.get(name)
    if kind is None or kind.role != role:
        raise BackendError(
            f"PyTorch does not support this kind of network as the {role}",
            where=bundle.folder,
            found=name,
            expected=" or ".join(known for known, kind in KINDS.items() if kind.role == role),
            do="use another plan, or --device cpu",
        )
    if not sizes:
        raise BackendError(f"the bundle lacks the sizes of its {name}", where=bundle.folder)
    return read_record(kind.size, sizes, f"{bundle.folder}: sizes of {name}")


def refuse_quantised(bundle: Bundle, parts: PlanParts = DEFAULT_PARTS) -> None:
    """Raises BackendError for a part whose precision this backend cannot read."""
    for role in PLAY_ROLES:
        part = bundle.manifest.parts.get(parts.graphs(role)[0])
        read = (*READABLE_PRECISIONS, *PACKED_PRECISIONS.get(role, ()))
        if part is not None and part.precision not in read:
            raise BackendError(
                f"this backend cannot read the quantised weights of {parts[role]}",
                where=bundle.folder,
                found=part.precision,
                expected=" or ".join(read),
                do="quantise the original bundle with predictor=int4-qdq only; the denoiser is quantised when it is "
                "loaded (--precision fp8 or int8)",
            )
