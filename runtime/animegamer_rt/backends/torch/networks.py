"""Reads a bundle's networks onto a torch device, all of them or one at a time; weights keep their stored dtypes.

It does not know what runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from animegamer_rt.bundle.config import read_record
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import BackendError
from animegamer_rt.models.denoiser import Denoiser as DenoiserNetwork
from animegamer_rt.models.denoiser import DenoiserSize
from animegamer_rt.models.encoder import Encoder as EncoderNetwork
from animegamer_rt.models.encoder import EncoderSize
from animegamer_rt.models.predictor import Predictor as PredictorNetwork
from animegamer_rt.models.predictor import PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

from .device import TorchDevice
from .onnx_reader import read_weights
from .weight_names import load_denoiser, load_encoder, load_predictor, load_vae

READABLE_PRECISIONS = ("fp32", "fp16", "bf16")
"""Precisions of a bundle's parts that this backend can read."""
PACKED_PRECISIONS: Mapping[str, tuple[str, ...]] = {"predictor": ("int4-qdq", "int8-qdq", "nf4")}
"""Part -> quantised precisions that it may have as well; its weights stay quantised on the device."""

Size = TypeVar("Size")


@dataclass(frozen=True, slots=True)
class Models:
    """The networks with their weights. unconditional [226, D]: the constant shot of the unconditional row."""

    predictor: PredictorNetwork
    denoiser: DenoiserNetwork
    decoder: VaeDecoder
    unconditional: Tensor
    encoder: EncoderNetwork | None = None


def load_models(bundle: Bundle, torch_device: TorchDevice) -> Models:
    """The networks of a bundle on the device, weights in their stored dtypes.

    Raises BackendError for a bundle without sizes, or with weights that this backend cannot read.
    """
    refuse_quantised(bundle)
    predictor, (denoiser, unconditional) = read_predictor(bundle, torch_device), read_denoiser(bundle, torch_device)
    decoder, encoder = read_decoder(bundle, torch_device), read_encoder(bundle, torch_device)
    return Models(predictor, denoiser, decoder, unconditional, encoder)


def read_predictor(bundle: Bundle, torch_device: TorchDevice) -> PredictorNetwork:
    """The predictor on the device, weights in their stored dtypes; the readers below do the same. As `load_models`."""
    with torch.device("meta"):
        network = PredictorNetwork(size(bundle, PredictorSize, "predictor"))
    with torch_device.use():
        load_predictor(network, read_weights(bundle.part_path("predictor")), partial(_send, torch_device))
    return network


def read_denoiser(bundle: Bundle, torch_device: TorchDevice) -> tuple[DenoiserNetwork, Tensor]:
    """The denoiser and the unconditional shot."""
    with torch.device("meta"):
        network = DenoiserNetwork(size(bundle, DenoiserSize, "denoiser"))
    with torch_device.use():
        return network, load_denoiser(network, read_weights(bundle.part_path("denoiser")), partial(_send, torch_device))


def read_decoder(bundle: Bundle, torch_device: TorchDevice) -> VaeDecoder:
    """The vae's decoder."""
    with torch.device("meta"):
        network = VaeDecoder(size(bundle, VaeSize, "decoder"))
    with torch_device.use():
        load_vae(network, read_weights(bundle.part_path("vae_first")), partial(_send, torch_device))
    return network


def read_encoder(bundle: Bundle, torch_device: TorchDevice) -> EncoderNetwork | None:
    """The encoder of a bundle that has one."""
    if "encoder" not in bundle.manifest.parts:
        return None
    with torch.device("meta"):
        network = EncoderNetwork(size(bundle, EncoderSize, "encoder"))
    with torch_device.use():
        load_encoder(network, read_weights(bundle.part_path("encoder")), partial(_send, torch_device))
    return network


def size(bundle: Bundle, kind: type[Size], name: str) -> Size:
    """A network's sizes from the manifest. Raises BackendError where it has none."""
    if name not in bundle.manifest.sizes:
        raise BackendError(f"the bundle does not say the sizes of its {name}", where=bundle.folder)
    return read_record(kind, bundle.manifest.sizes[name], f"{bundle.folder}: sizes of {name}")


def _send(torch_device: TorchDevice, tensor: Tensor) -> Tensor:
    return tensor.to(torch_device.device)


def refuse_quantised(bundle: Bundle) -> None:
    """Raises BackendError for a part whose precision this backend cannot read."""
    for name in ("predictor", "denoiser", "vae_first"):
        part = bundle.manifest.parts.get(name)
        read = (*READABLE_PRECISIONS, *PACKED_PRECISIONS.get(name, ()))
        if part is not None and part.precision not in read:
            raise BackendError(
                f"this backend cannot read the quantised weights of {name}",
                where=bundle.folder,
                found=part.precision,
                expected=" or ".join(read),
                do="quantise the original bundle with predictor=int4-qdq alone; the denoiser is quantised when it is "
                "loaded (--precision fp8 or int8)",
            )
