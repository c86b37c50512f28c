"""Loads a bundle's engines with PyTorch: on an NVIDIA GPU, or on the CPU to check the same code.

`onnx_reader` and `weight_names` read the weights from the bundle's ONNX files. `predictor`, `denoiser` and `vae` are
the engines, over the networks in `transformer`, `fused_transformer` (with the `kernels` and a choice of
`attention`) and `vae_decoder`. `rowwise_linear`, `packed_linear` and `nf4_linear` are quantised layers, and `device`
is the torch device with its CUDA graphs. docs/TORCH.md says what of it has run on a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import torch
from torch import nn

from animegamer_kernels.library import find_library
from animegamer_rt.backends.interface import Engines, FloatArray, PartCache
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError
from animegamer_rt.models.denoiser import DenoiserSize
from animegamer_rt.models.encoder import Encoder as EncoderNetwork
from animegamer_rt.models.predictor import Predictor as PredictorNetwork
from animegamer_rt.profiling.host_memory import with_torch

from .attention import check_attention, select_attention
from .card import check_gpu, check_memory, opening, try_kernel
from .denoiser import Denoiser
from .device import CudaTorchDevice, TorchDevice
from .fused_transformer import FusedTransformer
from .kernels import KernelChoice, Kernels, open_kernels
from .networks import (
    PACKED_PRECISIONS,
    Models,
    load_models,
    read_decoder,
    read_denoiser,
    read_encoder,
    read_predictor,
    refuse_quantised,
    size,
)
from .nf4_linear import Nf4Linear
from .packed_linear import BUFFERS, PackedLinear, use_kernels
from .parts_in_turn import DenoiserInTurn, InMemory, PredictorInTurn, VaeInTurn
from .predictor import Predictor, merge_layers
from .rowwise_linear import (
    DTYPE_NAMES,
    FP8,
    INT8,
    check_products,
    convert_to_rowwise,
    probe_fp8,
)
from .transformer import Transformer
from .vae import Vae

log = logging.getLogger(__name__)
HALF_SUMS = "fp16-sums"
"""float16 whose products in the denoiser's blocks sum in float16 too; on a CPU they sum as in `fp16`."""
PRECISIONS: Mapping[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    HALF_SUMS: torch.float16,
    "fp8": torch.bfloat16,
    "int8": torch.bfloat16,
}
"""Precision -> dtype of activations and products; fp8 and int8 leave it for the four products of ROWWISE only."""
ROWWISE: Mapping[str | None, torch.dtype] = {"fp8": FP8, "int8": INT8}
"""Precision -> dtype of the four large products of each denoiser block."""
Graphs = Literal["step", "turn", "off"]
"""What one CUDA graph holds: a denoising step, or a whole turn, without progress in it. `off` runs eagerly."""

Network = TypeVar("Network", bound=nn.Module)


def load(
    bundle: Bundle,
    config: EngineConfig,
    cache: PartCache | None = None,
    *,
    graphs: Graphs = "step",
    compiled: bool = False,
    kernels: KernelChoice = None,
) -> Engines:
    """Loads the engines of a bundle on a GPU (`torch`) or the CPU (`torch-cpu`); `cache` is not used.

    config.precision: None is float32 on the CPU, bfloat16 on a GPU (float16 before sm_80).
    config.attention: one of attention.AttentionChoice; all but "torch" need the kernels, on the CPU their references.
    compiled: run the denoiser's blocks through torch.compile.
    kernels: our operators between matrix products. None: on a GPU where their library is installed; False: never.

    Raises BackendError without a GPU, for a bundle whose parts cannot run here, and where the precision, the kernels or
    the attention is not available.
    """
    attention = config.attention or "torch"
    device = "cpu" if config.device == "torch-cpu" else "cuda"
    torch_device = open_device(device, config.precision, graphs != "off")
    precision, instead = available_precision(config.precision, torch_device)
    if kernels is None and attention != "torch":
        kernels = find_library() or False
    opened, which = open_kernels(kernels, torch_device.device)
    check_attention(attention, opened)
    check_memory(bundle, torch_device)
    plans = [DenoisePlan.from_dict(entry.plan) for entry in bundle.manifest.plans.values()]
    if device == "cpu" and opened is None and not compiled and with_torch(bundle, config.precision).one_at_a_time:
        engines = open_in_turn(torch_device, bundle, plans, ROWWISE.get(precision))
        return replace(engines, device=f"{engines.device}, {which}")
    networks, geometry = load_models(bundle, torch_device), bundle.manifest.geometry
    engines = build_engines(
        torch_device, networks, geometry, plans, graphs, compiled, ROWWISE.get(precision), opened, attention
    )
    return replace(engines, device=", ".join(filter(None, (engines.device, which, instead))))


def open_in_turn(
    torch_device: TorchDevice, bundle: Bundle, plans: Sequence[DenoisePlan], rowwise: torch.dtype | None = None
) -> Engines:
    """The engines of a bundle on the CPU, one part in memory at a time; each is read from the disk when it is used.

    As `build_engines`, without kernels. Raises BackendError as `load_models` does, here or at a part's first use.
    """
    refuse_quantised(bundle)
    geometry, dtype, memory = bundle.manifest.geometry, torch_device.dtype, InMemory()
    blocks = size(bundle, DenoiserSize, "denoiser").layers
    packed = bundle.manifest.parts["predictor"].precision in PACKED_PRECISIONS["predictor"]

    def open_predictor() -> Predictor:
        network = cast_for_inference(read_predictor(bundle, torch_device), dtype)
        return Predictor(torch_device, network, merge_layers(network), geometry.window_tokens)

    def open_denoiser() -> Denoiser:
        network, unconditional = read_denoiser(bundle, torch_device)
        cast_for_inference(network, dtype)
        if rowwise is not None:
            convert_to_rowwise(network, rowwise)
        timesteps = [step.timestep for plan in plans for step in plan]
        return Denoiser(torch_device, Transformer(network, dtype), unconditional, timesteps)

    def open_vae() -> Vae:
        network = cast_for_inference(read_decoder(bundle, torch_device), dtype)
        return Vae(torch_device, network, geometry.latent_height, geometry.latent_width)

    encoder = read_encoder(bundle, torch_device)
    return Engines(
        PredictorInTurn(memory, open_predictor),
        DenoiserInTurn(memory, open_denoiser, blocks),
        VaeInTurn(memory, open_vae),
        None if encoder is None else Encoder(torch_device, cast_for_inference(encoder, dtype)),
        f"{_describe_dtypes(torch_device, rowwise)} on {torch_device.description}, one part in memory at a time",
        one_at_a_time=True,
        precision=_precision_by_part(torch_device, rowwise, packed),
        attention="torch",
    )


def build_engines(
    torch_device: TorchDevice,
    networks: Models,
    geometry: Geometry,
    plans: Sequence[DenoisePlan],
    graphs: Graphs = "step",
    compiled: bool = False,
    rowwise: torch.dtype | None = None,
    kernels: Kernels | None = None,
    attention: str = "torch",
) -> Engines:
    """The engines over networks that are loaded; the networks are converted to the device's dtype in place.

    plans: those whose timesteps the modulation table holds. rowwise: a dtype of ROWWISE for the blocks' large products.
    attention: one of attention.AttentionChoice. Raises BackendError where the attention cannot be used.
    """
    chosen_attention, about_attention = select_attention(attention, torch_device, kernels, networks.denoiser.size)
    whole_turns = max(len(plan) for plan in plans) if graphs == "turn" else 0
    timesteps = [step.timestep for plan in plans for step in plan]
    # On the device's stream, like all work: another stream's writes might not be finished when it reads.
    with torch_device.use():
        for network in (networks.predictor, networks.denoiser, networks.decoder, networks.encoder):
            if network is not None:
                cast_for_inference(network, torch_device.dtype)
        if rowwise is not None:
            convert_to_rowwise(networks.denoiser, rowwise)
            torch_device.put_together(networks.denoiser)
        if kernels is not None:
            use_kernels(networks.predictor, kernels)
        network, dtype = networks.denoiser, torch_device.dtype
        transformer = (
            Transformer(network, dtype)
            if kernels is None
            else FusedTransformer(network, dtype, kernels, chosen_attention)
        )
        if compiled:
            transformer.compile()
        blocks = merge_layers(networks.predictor)
        # On a stream of its own: the next turn's prompt may be read while a turn is denoised.
        predictor = Predictor(torch_device.on_side_stream(), networks.predictor, blocks, geometry.window_tokens)
        denoiser = Denoiser(torch_device, transformer, networks.unconditional, timesteps, whole_turns)
        # Created last: the vae chooses how to run from the memory that is left.
        vae = Vae(torch_device, networks.decoder, geometry.latent_height, geometry.latent_width, kernels)
        dtypes = _describe_dtypes(torch_device, rowwise)
        return Engines(
            predictor,
            denoiser,
            vae,
            None if networks.encoder is None else Encoder(torch_device, networks.encoder),
            ", ".join(filter(None, (f"{dtypes} on {torch_device.description}", about_attention, vae.description))),
            concurrent_prediction=torch_device.device.type == "cuda",
            precision=_precision_by_part(torch_device, rowwise, _is_packed(networks.predictor)),
            attention=chosen_attention,
            memory=torch_device.memory if isinstance(torch_device, CudaTorchDevice) else None,
        )


def open_device(device: str, precision: str | None, captures: bool) -> TorchDevice:
    """The torch device for "cpu" or "cuda", in a precision of PRECISIONS or the default.

    Raises BackendError for an unknown name, without a GPU, and for a precision that the GPU does not have.
    """
    if precision is not None and precision not in PRECISIONS:
        raise BackendError("unknown precision", found=repr(precision), expected=", ".join(PRECISIONS))
    if device == "cpu":
        return TorchDevice(PRECISIONS[precision or "fp32"])
    if device == "cuda":
        check_gpu()
        # float16 only where the GPU lacks bfloat16: the vae's activations can exceed float16's range.
        with opening():
            half = "bf16" if torch.cuda.get_device_capability() >= (8, 0) else "fp16"
            torch_device = CudaTorchDevice(PRECISIONS[precision or half], captures, precision == HALF_SUMS)
            try_kernel(torch_device)
        # Before any weight is read.
        products = ROWWISE.get(precision, torch_device.dtype)
        check_products(products, torch.cuda.get_device_capability(torch_device.device), torch.__version__)
        return torch_device
    raise BackendError("unknown device", found=repr(device), expected="cpu or cuda")


def available_precision(precision: str | None, torch_device: TorchDevice) -> tuple[str | None, str]:
    """The precision to use in place of this one, and why, for Engines.device; empty if it is the same.

    Only fp8 can be missing on a GPU that has its instructions: some builds of PyTorch lack the product. Then the
    denoiser runs in bf16, and a warning says so.
    """
    if precision != "fp8" or torch_device.device.type != "cuda":
        return precision, ""
    with torch_device.use():
        refused = probe_fp8(torch_device.device)
    if not refused:
        return precision, ""
    instead = f"bf16 in place of fp8, whose product does not run here ({refused})"
    log.warning("%s; int8 is the other precision of 8 bits: --precision int8", instead)
    return "bf16", instead


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
    """Implements interface.EncoderEngine, eagerly: it runs at most once a game."""

    def __init__(self, torch_device: TorchDevice, network: EncoderNetwork) -> None:
        self._device, self._network = torch_device, network

    def encode(self, text_features: FloatArray, image_features: FloatArray) -> FloatArray:
        """See interface.EncoderEngine."""
        with self._device.use():
            features = (self._device.to_device(part).to(self._device.dtype) for part in (text_features, image_features))
            shot: FloatArray = self._device.to_host(self._network(*features)[0].float()).numpy()
        return shot


def _is_packed(predictor: PredictorNetwork) -> bool:
    return any(isinstance(layer, PackedLinear | Nf4Linear) for layer in predictor.modules())


def _precision_by_part(torch_device: TorchDevice, rowwise: torch.dtype | None, packed: bool) -> dict[str, str]:
    arithmetic = next(name for name, dtype in PRECISIONS.items() if dtype == torch_device.dtype)
    parts = dict.fromkeys(("predictor", "denoiser", "vae_first", "vae_next"), arithmetic)
    if packed:
        del parts["predictor"]  # the bundle's manifest is more precise
    if torch_device.half_sums:
        parts["denoiser"] = HALF_SUMS
    return parts if rowwise is None else {**parts, "denoiser": DTYPE_NAMES[rowwise].lower()}


def _describe_dtypes(torch_device: TorchDevice, rowwise: torch.dtype | None) -> str:
    return (
        f"torch {torch.__version__} in "
        + str(torch_device.dtype).removeprefix("torch.")
        + (f" and {DTYPE_NAMES[rowwise]}" if rowwise is not None else "")
    )
