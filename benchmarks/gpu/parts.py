"""Opens the engines and plans of a variant: pocket's from its bundle, other sizes with random weights.

Random weights are made on the device, for timing and memory only. `tiny` has full size's structure and runs anywhere in
seconds; its times mean nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

from animegamer_export.build.default_plans import default_plans
from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.torch import loader as backend
from animegamer_rt.backends.torch.kernels import open_kernels
from animegamer_rt.backends.torch.networks import Models, load_models
from animegamer_rt.backends.torch.packed_linear import PackedLinear
from animegamer_rt.bundle.denoise_plan import DenoisePlan, build_plan
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.models.denoiser import Denoiser as DenoiserNetwork
from animegamer_rt.models.denoiser import DenoiserSize
from animegamer_rt.models.predictor import Predictor as PredictorNetwork
from animegamer_rt.models.predictor import PredictorSize
from animegamer_rt.models.tiny_decoder import TinyDecoder, TinyDecoderSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize
from animegamer_rt.stages.vae import Vae
from benchmarks.gpu.jobs import EXPORTED, TURBO, Variant


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of the networks with random weights."""

    geometry: Geometry
    predictor: PredictorSize
    denoiser: DenoiserSize
    vae: VaeSize
    light: TinyDecoderSize = TinyDecoderSize()


SIZES: Mapping[str, Size] = {
    "full": Size(
        Geometry(height=480, width=720, latent_height=60, latent_width=90, shot_width=1920),
        PredictorSize(4096, 32, 32, 8, 14336, 32284, 1920),
        DenoiserSize(1920, 30, 30, 512, 60, 90),
        VaeSize(),
    ),
    "tiny": Size(
        Geometry(height=32, width=48, latent_height=4, latent_width=6, shot_width=128),
        PredictorSize(128, 2, 2, 1, 256, 400, 128),
        DenoiserSize(128, 2, 2, 64, 4, 6),
        VaeSize(16, norm_groups=4, res_blocks=0),
        TinyDecoderSize((16, 8, 8, 4)),
    ),
}
"""Full size: MODEL.md sections 2, 4 and 6."""
ROWS = (999, 319, 19)
"""Timesteps of `turbo`."""
SHORT = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
LATER_BYTES = 0.3e9
"""Memory outside PyTorch's count beyond CUDA's context, once kernels and libraries are loaded: on an H200 at most 276
MiB, as 789 to 801 MiB were outside at a peak and 525 to 536 when the limit was set."""
DRAWN_AT_ONCE = 2**22
"""Random numbers at a time in a buffer of their own: as many as a weight has would take memory that play does not."""
CODE_STD = 4.6
"""Standard deviation of random 4-bit codes. A weight's is 1 / sqrt(inputs), so all sizes behave alike."""
BLOCK = 64
"""Inputs that share a scale, as in a bundle's `int4-qdq`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The engines and plans of a variant."""

    name: str
    fingerprint: str | None
    origin: str
    geometry: Geometry
    plans: Mapping[str, DenoisePlan]
    fidelity: Mapping[str, Mapping[str, float]]
    engines: Engines
    vae: Vae
    precision: Mapping[str, str]
    open_seconds: float


def open_parts(job_args: Mapping[str, Any], variant: Variant) -> Parts:
    """The engines of a variant: pocket's from its bundle, other sizes with random weights. Raises BackendError."""
    started = time.perf_counter()
    if variant.memory_gb is not None:
        limit_memory(variant.memory_gb)
    bundle, size = open_bundle(job_args["bundle"]), SIZES.get(job_args["size"])
    plans = {name: DenoisePlan.from_dict(bundle.plan(name)) for name in bundle.manifest.plans}
    plans |= {name: default_plans()[name.removeprefix("exported-")] for name in EXPORTED}
    light = list(job_args["plans"]) == [TURBO]
    if light:
        plans = {TURBO: build_plan(ROWS, guidance=[1.0] * len(ROWS), branches=["conditional"] * len(ROWS))}
    torch_device = backend.open_device(job_args["device"], variant.precision, variant.graphs)
    kernels, words = open_kernels(Path(job_args["library"]) if variant.kernels else False, torch_device.device)
    geometry = bundle.manifest.geometry if size is None else size.geometry
    rowwise = backend.ROWWISE.get(variant.precision)
    steps, which = list(plans.values()), variant.attention
    setup = backend.EngineSetup(torch_device, geometry, steps, rowwise, kernels, which)
    packed = variant.int4_predictor
    if size is None:
        networks = load_models(bundle, torch_device, convert=setup.convert)
    else:
        with torch_device.use():
            networks = random_networks(size, setup, packed, light)
    engines = backend.build_engines(setup, networks)
    around = SHORT[torch_device.dtype]
    return Parts(
        bundle.manifest.name if size is None else job_args["size"],
        bundle.fingerprint if size is None else None,
        bundle.manifest.origin if size is None else "random weights",
        geometry,
        plans,
        {name: entry.fidelity for name, entry in bundle.manifest.plans.items()} if size is None else {},
        replace(engines, device=f"{engines.device}, {words}"),
        Vae(engines.vae),
        {"predictor": "int4-qdq" if packed else around, "denoiser": variant.precision, "vae": around},
        round(time.perf_counter() - started, 2),
    )


def limit_memory(gb: float) -> None:
    """Limits this process to the memory of a GPU of that size, CUDA's context and libraries included."""
    free, whole = torch.cuda.mem_get_info()
    left = gb * 1e9 - (whole - free) - LATER_BYTES
    torch.cuda.set_per_process_memory_fraction(max(0.0, min(1.0, left / whole)))


def random_networks(
    size: Size, setup: backend.EngineSetup, int4_predictor: bool = False, light: bool = False
) -> Models:
    """Networks with random weights made on the device and converted, the same in every dtype and variant.

    Each tensor has its own seed, derived from its name, so it does not depend on the order. light: with the light
    decoder in place of the vae.
    """
    torch_device = setup.torch_device
    with torch.device("meta"):
        predictor, denoiser = PredictorNetwork(size.predictor), DenoiserNetwork(size.denoiser)
        decoder = TinyDecoder(size.light) if light else VaeDecoder(size.vae)
        if int4_predictor:
            pack(predictor)
    for network in (denoiser, predictor, decoder):  # in the order of `load_models`
        backend.cast_for_inference(network, torch_device.dtype).to_empty(device=torch_device.device)
        for name, tensor in (*network.named_parameters(), *network.named_buffers()):
            random = torch.Generator(torch_device.device).manual_seed(
                crc32(f"{type(network).__name__} {name}".encode())
            )
            if name.endswith(".codes"):
                tensor.random_(-128, 128, generator=random)
            elif name.endswith(".scales"):
                tensor.fill_((tensor.shape[1] * BLOCK) ** -0.5 / CODE_STD)
            elif tensor.ndim > 1:
                for rows in tensor.split(max(1, DRAWN_AT_ONCE // tensor[0].numel())):
                    # Made in bfloat16: its values are exact in float32, and in float16 but for the smallest.
                    drawn = torch.empty(rows.shape, dtype=torch.bfloat16, device=tensor.device)
                    rows.copy_(drawn.normal_(0.0, tensor[0].numel() ** -0.5, generator=random))
            else:
                tensor.fill_(0.0 if name == "conv_out.bias" else 1.0)  # ones would make all frames white
        setup.convert(network)
    random = torch.Generator(torch_device.device).manual_seed(0)
    shape = (size.denoiser.shot_tokens, size.denoiser.hidden)
    constant = torch.randn(shape, generator=random, device=torch_device.device)
    return Models(predictor, denoiser, decoder, constant)


def pack(predictor: PredictorNetwork) -> None:
    """Replaces layers by 4-bit ones, as in an `int4-qdq` bundle, with uninitialised values."""
    for name, layer in list(predictor.blocks.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            outputs, blocks = layer.out_features, layer.in_features // BLOCK
            codes = torch.empty((outputs, blocks, BLOCK // 2), dtype=torch.int8)
            packed = PackedLinear(codes, torch.empty((outputs, blocks, 1)))
            packed.four_bits = True
            predictor.blocks.set_submodule(name, packed)
