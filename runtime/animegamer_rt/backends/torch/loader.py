"""Loads a bundle's engines with PyTorch: on an NVIDIA GPU, or on the CPU to check the same code.

`onnx_reader` and `weight_names` read the weights from the bundle's ONNX files. `predictor`, `denoiser` and `vae` are
the engines, over the networks in `transformer`, `fused_transformer` (with the `kernels` and a choice of
`attention`) and `vae_decoder`. `rowwise_linear` and `packed_linear` are quantised layers, and `device`
is the torch device with its CUDA graphs. docs/TORCH.md lists what has run on a GPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from animegamer_kernels.library import find_library
from animegamer_rt.backends.interface import Engines, FloatArray
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.bundle.roles import DEFAULT_PARTS, DENOISER, NETWORKS, PLAY_ROLES, PREDICTOR, PlanParts
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError
from animegamer_rt.models.denoiser import Denoiser as DenoiserNetwork
from animegamer_rt.models.encoder import Encoder as EncoderNetwork
from animegamer_rt.models.light_decoder import LightDecoder
from animegamer_rt.models.predictor import Predictor as PredictorNetwork
from animegamer_rt.models.tiny_decoder import TinyDecoder
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.profiling.gpu_memory import SCARCE_BYTES

from .attention import check_attention, check_choice
from .card import check_gpu, check_memory, opening, try_kernel
from .denoiser import Denoiser
from .device import CudaTorchDevice, TorchDevice, compute_deterministically
from .fused_transformer import FusedTransformer
from .kernels import KernelChoice, Kernels, open_kernels
from .light_vae import LightVae
from .networks import Models, load_models
from .packed_linear import BUFFERS, PackedLinear, use_kernels
from .predictor import Predictor, merge_layers
from .rowwise_linear import DTYPE_NAMES, FP8, INT8, check_products, convert_to_rowwise, probe_fp8
from .tiny_vae import TinyVae
from .transformer import Transformer
from .vae import ChunkedVae, Vae

PRECISIONS: Mapping[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.bfloat16,
    "int8": torch.bfloat16,
}
"""Precision -> dtype of activations and products; fp8 and int8 use it for all but the four products of ROWWISE."""
ROWWISE: Mapping[str | None, torch.dtype] = {"fp8": FP8, "int8": INT8}
"""Precision -> dtype of the four large products of each denoiser block."""
Network = TypeVar("Network", bound=nn.Module)


def load(
    bundle: Bundle,
    config: EngineConfig,
    parts: PlanParts = DEFAULT_PARTS,
    *,
    graphs: bool = True,
    kernels: KernelChoice = None,
) -> Engines:
    """Loads the engines of a bundle on a GPU (`torch`) or the CPU (`torch-cpu`).

    config.precision: None is float32 on the CPU, bfloat16 on a GPU (float16 before sm_80).
    config.attention: one of ATTENTIONS; all but "torch" need the kernels, on the CPU their references.
    graphs: run on a GPU through CUDA graphs.
    kernels: our operators between matrix products. None: on a GPU if their library is installed; False: never.

    Raises BackendError without a GPU, for a bundle whose parts cannot run here, and if the precision, the kernels or
    the attention is not available.
    """
    attention, precision = config.attention or "torch", config.precision
    torch_device = open_device("cpu" if config.device == "torch-cpu" else "cuda", precision, graphs)
    if kernels is None and attention != "torch":
        kernels = find_library() or False
    check_denoiser(bundle, parts, precision, attention)
    opened, which = open_kernels(kernels, torch_device.device)
    check_choice(attention, opened)
    check_memory(bundle, torch_device, parts)
    plans = [
        DenoisePlan.from_dict(entry.plan)
        for name, entry in bundle.manifest.plans.items()
        if bundle.parts_of(name).denoiser == parts.denoiser
    ]
    setup = EngineSetup(torch_device, bundle.manifest.geometry, plans, ROWWISE.get(precision), opened, attention)
    engines = build_engines(setup, load_models(bundle, torch_device, parts, setup.convert))
    return replace(engines, device=f"{engines.device}, {which}", kernels="" if opened is None else opened.hash)


def check_denoiser(bundle: Bundle, parts: PlanParts, precision: str | None, attention: str) -> None:
    """Raises BackendError for 8-bit products or an attention where another kind of network denoises."""
    kind = bundle.network(DENOISER, parts.denoiser)
    if kind != NETWORKS[DENOISER] and (precision in ROWWISE or attention != "torch"):
        raise BackendError(
            "this kind of denoiser has no 8-bit products and no choice of attention",
            where=bundle.folder,
            found=f"{kind}, precision {precision}, attention {attention}",
            do="omit --precision and --attention, or play another plan",
        )


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """How the engines of one bundle are built from its networks, which are converted in place.

    plans: those whose timesteps are in the modulation table. rowwise: a dtype of ROWWISE for the blocks' large
    products. attention: one of ATTENTIONS.
    """

    torch_device: TorchDevice
    geometry: Geometry
    plans: Sequence[DenoisePlan]
    rowwise: torch.dtype | None = None
    kernels: Kernels | None = None
    attention: str = "torch"

    def convert(self, network: Network) -> Network:
        """The network in the device's dtype, with its layers replaced by those that this setup runs."""
        # On the device's stream, like all work: another stream's writes might not be finished when it reads.
        with self.torch_device.use():
            cast_for_inference(network, self.torch_device.dtype)
            if isinstance(network, DenoiserNetwork) and self.rowwise is not None:
                convert_to_rowwise(network, self.rowwise)
                self.torch_device.defragment(network)
            if isinstance(network, PredictorNetwork) and self.kernels is not None:
                use_kernels(network, self.kernels)
        return network

    def predictor(self, network: PredictorNetwork) -> Predictor:
        """The engine of a converted predictor, on its own stream: it may run while a turn is denoised."""
        with self.torch_device.use():
            blocks = merge_layers(network)
            return Predictor(self.torch_device.on_side_stream(), network, blocks, self.geometry.window_tokens)

    def denoiser(self, network: Any, unconditional: Tensor, scarce: bool = False) -> Denoiser:
        """The engine of a converted denoiser. scarce: the weights of its modulations go to the host."""
        dtype, kernels = self.torch_device.dtype, self.kernels
        timesteps = [step.timestep for plan in self.plans for step in plan]
        with self.torch_device.use():
            transformer = DENOISERS[type(network)](network, dtype, kernels, self.attention)
            if scarce:
                for layer in transformer.modulation_layers:
                    self.torch_device.keep_on_host(layer)
                self.torch_device.defragment(network)
            return Denoiser(self.torch_device, transformer, unconditional, timesteps, kernels)

    def vae(self, network: Any) -> ChunkedVae:
        """The engine of a converted decoder. Created last, as it chooses how to run from the remaining memory."""
        with self.torch_device.use():
            height, width = self.geometry.latent_height, self.geometry.latent_width
            return VAE_ENGINES[type(network)](self.torch_device, network, height, width, self.kernels)

    @property
    def library(self) -> str:
        """The versions of PyTorch and the library below it."""
        cudnn = torch.backends.cudnn.version() if self.torch_device.device.type == "cuda" else None
        return f"torch {torch.__version__}" + (f", cuDNN {cudnn}" if cudnn else "")

    @property
    def settings(self) -> str:
        """What else affects results: the modulations of all timesteps are one product."""
        timesteps = sorted({step.timestep for plan in self.plans for step in plan})
        return f"{len(timesteps)} timesteps {hashlib.sha256(repr(timesteps).encode()).hexdigest()[:8]}"

    @property
    def precision(self) -> dict[str, str]:
        """Role -> precision of its part."""
        arithmetic = next(name for name, dtype in PRECISIONS.items() if dtype == self.torch_device.dtype)
        precision = dict.fromkeys(PLAY_ROLES, arithmetic)
        if self.rowwise is not None:
            precision[DENOISER] = DTYPE_NAMES[self.rowwise].lower()
        return precision

    def engines(self, words: str, packed: bool, memory_saved: str = "", **fields: Any) -> Engines:
        """Engines with these fields and this setup's.

        words: end of their description. packed: whether the predictor's weights are. memory_saved: by the vae.
        """
        device, precision = self.torch_device, self.precision
        dtypes = [str(device.dtype).removeprefix("torch.")]
        dtypes += [DTYPE_NAMES[self.rowwise]] if self.rowwise is not None else []
        if packed:
            del precision[PREDICTOR]  # the bundle's manifest is more precise
        said = f"torch {torch.__version__} in {' and '.join(dtypes)} on {device.description}"
        return Engines(
            device=", ".join(filter(None, (said, words, memory_saved))),
            library=self.library,
            machine=device.machine,
            settings=", ".join(filter(None, (self.settings, memory_saved))),
            precision=precision,
            **fields,
        )


def make_transformer(
    network: DenoiserNetwork, dtype: torch.dtype, kernels: Kernels | None, attention: str
) -> Transformer:
    """What runs a denoiser of the default kind: with our kernels where there are some."""
    return Transformer(network, dtype) if kernels is None else FusedTransformer(network, dtype, kernels, attention)


DENOISERS: Mapping[type[nn.Module], Callable[..., Transformer]] = {DenoiserNetwork: make_transformer}
"""Module of a denoiser -> what runs it, with the methods of Transformer that `Denoiser` calls."""
VAE_ENGINES: Mapping[type[nn.Module], Callable[..., ChunkedVae]] = {
    VaeDecoder: Vae,
    LightDecoder: LightVae,
    TinyDecoder: TinyVae,
}
"""Module of a decoder -> the engine that runs it."""


def build_engines(setup: EngineSetup, networks: Models) -> Engines:
    """The engines of networks that `setup` has converted. Raises BackendError if the attention cannot be used."""
    device = setup.torch_device
    check_attention(setup.attention, device, setup.kernels, networks.denoiser.size)
    packed = any(isinstance(layer, PackedLinear) for layer in networks.predictor.modules())
    predictor = setup.predictor(networks.predictor)
    scarce = device.free_bytes() < SCARCE_BYTES
    if scarce:
        with device.use():
            device.keep_on_host(networks.predictor.embedding)
    denoiser = setup.denoiser(networks.denoiser, networks.unconditional, scarce)
    vae = setup.vae(networks.decoder)
    words = "" if setup.attention == "torch" else f"{setup.attention} attention"
    return setup.engines(
        ", ".join(filter(None, (words, "modulation weights and embeddings in host memory" if scarce else ""))),
        packed=packed,
        memory_saved=vae.description,
        predictor=predictor,
        denoiser=denoiser,
        vae=vae,
        encoder=None if networks.encoder is None else Encoder(device, networks.encoder),
        concurrent_prediction=device.device.type == "cuda",
        attention=setup.attention,
        memory=device.memory if isinstance(device, CudaTorchDevice) else None,
    )


def open_device(device: str, precision: str | None, captures: bool) -> TorchDevice:
    """The torch device for "cpu" or "cuda", in a precision of PRECISIONS or the default.

    Raises BackendError without a GPU, and for a precision that the GPU does not support.
    """
    compute_deterministically()
    if device == "cpu":
        return TorchDevice(PRECISIONS[precision or "fp32"])
    check_gpu()
    # float16 only where the GPU lacks bfloat16: the vae's activations can exceed float16's range.
    with opening():
        half = "bf16" if torch.cuda.get_device_capability() >= (8, 0) else "fp16"
        torch_device = CudaTorchDevice(PRECISIONS[precision or half], captures)
        try_kernel(torch_device)
    # Before any weight is read.
    products = ROWWISE.get(precision, torch_device.dtype)
    check_products(products, torch.cuda.get_device_capability(torch_device.device), torch.__version__)
    if products == FP8:
        check_fp8(torch_device)
    return torch_device


def check_fp8(torch_device: TorchDevice) -> None:
    """Raises BackendError if this build of PyTorch lacks the product, which the GPU's capability does not show."""
    with torch_device.use():
        refused = probe_fp8(torch_device.device)
    if refused:
        raise BackendError(
            "the FP8 product does not run here",
            found=refused,
            do="use --precision int8, the other 8-bit precision, or bf16",
        )


def cast_for_inference(network: Network, dtype: torch.dtype) -> Network:
    """Converts a network to this dtype in place; embeddings of timestep and motion scope stay float32."""
    for name, parameter in [*network.named_parameters(), *network.named_buffers()]:
        if name.endswith(BUFFERS):
            continue
        kept_dtype = torch.float32 if name.startswith(("time.", "motion.")) else dtype
        parameter.requires_grad_(False)
        parameter.data = parameter.data.to(kept_dtype)
    return network.eval()


class Encoder:
    """Implements interface.EncoderEngine, eagerly: it runs at most once per game."""

    def __init__(self, torch_device: TorchDevice, network: EncoderNetwork) -> None:
        self._device, self._network = torch_device, network

    def encode(self, text_features: FloatArray, image_features: FloatArray) -> FloatArray:
        """See interface.EncoderEngine."""
        with self._device.use():
            features = (self._device.to_device(part).to(self._device.dtype) for part in (text_features, image_features))
            shot: FloatArray = self._device.to_host(self._network(*features)[0].float()).numpy()
        return shot
