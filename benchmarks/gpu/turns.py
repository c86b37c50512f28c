"""Times turns of pocket or of full size by one variant: seconds, memory and energy, in the fields of `bench` records.

Full size has random weights made on the device: good for time and memory only. `tiny` is the same at sizes that any
machine runs in seconds; its times mean nothing. Turns use the runtime's own denoiser and vae stages, so noise is drawn
ahead and the second chunk decodes while the first is handed out, as in play.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from animegamer_export.plan_search.block_skips import block_skip_variants
from animegamer_rt.backends.interface import Engines, FloatArray, StateSlots
from animegamer_rt.backends.torch import loader as backend
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.kernels import open_kernels
from animegamer_rt.backends.torch.networks import Models, load_models
from animegamer_rt.backends.torch.packed_linear import PackedLinear
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.models.denoiser import Denoiser as DenoiserNetwork
from animegamer_rt.models.denoiser import DenoiserSize
from animegamer_rt.models.predictor import Predictor as PredictorNetwork
from animegamer_rt.models.predictor import PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize
from animegamer_rt.profiling import energy, nvml
from animegamer_rt.profiling.percentiles import percentile
from animegamer_rt.stages.denoiser import Denoiser
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.readouts import Prompt, build_readouts
from animegamer_rt.stages.vae import Vae
from benchmarks.gpu import machine as gpu_machine
from benchmarks.gpu import whole_network
from benchmarks.gpu.jobs import SKIPPING, Variant
from benchmarks.gpu.prompt import CAPTION_TOKENS, FULL_PROMPT, HISTORY_TURNS

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of the networks whose weights are drawn here."""

    geometry: Geometry
    predictor: PredictorSize
    denoiser: DenoiserSize
    vae: VaeSize


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
    ),
}
"""Full size: MODEL.md sections 2, 4 and 6."""
BEFORE_SHOT = CAPTION_TOKENS + 2
SLOTS = StateSlots(tuple(range(5, 16)), between=((3, 4),) * 3)
"""Eleven strengths to choose from, four times, with two tokens in between."""
MOTION_SCOPE = 10.0
SHORT = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
LATER_BYTES = 0.4e9
"""What cuBLAS and cuDNN take outside of PyTorch's count when they are first used. An estimate: no GPU was at hand."""
WARM_UP = 2
"""Turns before timing: one runs eagerly, one captures graphs."""
RANDOM = np.random.default_rng(7)
CODE_STD = 4.6
"""Standard deviation of drawn codes of 4 bits. That of a weight is 1 / sqrt(inputs), so any size computes alike."""
BLOCK = 64
"""Inputs that share a scale, as in a bundle's `int4-qdq`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The engines and plans that a variant's turns run on."""

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


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds: in each stage's engine, and since the start of the turn."""

    predictor: float
    denoiser: float
    vae: float
    to_state: float
    to_latent: float
    to_first_frame: float
    total: float


def entries(job_args: Mapping[str, Any]) -> Iterator[Entry]:
    """The fields of a record of turns for each plan, without those that a run has in common."""
    variant, on_gpu = Variant(**job_args["variant"]), job_args["device"] == "cuda"
    parts = open_parts(job_args, variant)
    for name in job_args["plans"]:
        plan = parts.plans[name]
        for _ in range(WARM_UP if on_gpu else 0):
            play(parts, plan)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        with energy.gpu_energy(*nvml.open_nvml(gpu_machine.uuid())) if on_gpu else energy.cpu_energy() as meter:
            measured = [play(parts, plan) for _ in range(job_args["turns"])]
        peaks = memory() if on_gpu else {"memory_peak_mib": None}
        playback = parts.geometry.frames / parts.geometry.fps
        yield {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "gpu": gpu_machine.facts() if on_gpu else None,
            "device": "torch" if on_gpu else "torch-cpu",
            "runs_on": parts.engines.device,
            "preset": None,
            "size": parts.name,
            "fingerprint": parts.fingerprint,
            "origin": parts.origin,
            "shape": [parts.geometry.frames, parts.geometry.height, parts.geometry.width],
            "plan": name,
            "steps": len(plan),
            "branches": plan.network_rows,
            "cost_rows": plan.cost(parts.engines.denoiser.skippable_blocks),
            "peer": None,
            "variant": variant.name,
            "precision": dict(parts.precision),
            "attention": parts.engines.attention,
            "n": len(measured),
            "playback_seconds": playback,
            **summary(measured, playback),
            "energy_j_per_turn": None if meter.joules is None else round(meter.joules / len(measured), 3),
            "energy_source": meter.source,
            "first_prompt_seconds": None,
            "open_seconds": parts.open_seconds,
            **peaks,
            # After the timed turns, when graphs are captured: what they replay is what is checked.
            "against_plain_bf16": whole_network.compared(parts, name, Path(job_args["reference"])),
            "fidelity": dict(parts.fidelity.get(name, {})),
        }


def summary(measured: list[Turn], playback: float) -> Entry:
    """Medians and 95th percentiles, in seconds."""

    def over(what: str, percent: int) -> float:
        return percentile([getattr(turn, what) for turn in measured], percent)

    return {
        "seconds_per_turn_p50": over("total", 50),
        "seconds_per_turn_p95": over("total", 95),
        "stages": {
            stage: {"p50": over(stage, 50), "p95": over(stage, 95)} for stage in ("predictor", "denoiser", "vae")
        },
        "seconds_to_state_p50": over("to_state", 50),
        "seconds_to_first_frame_p50": over("to_first_frame", 50),
        "first_frame_of_vae": percentile(
            [(turn.to_first_frame - turn.to_latent) / (turn.total - turn.to_latent) for turn in measured], 50
        ),
        "real_time_factor": round(playback / over("total", 50), 3),
    }


def memory() -> dict[str, float]:
    """Peaks in MiB: reserved by PyTorch; of that, used by tensors; and in use on the GPU.

    The last adds all memory outside PyTorch: CUDA's context, libraries and other programs.
    """
    (free, whole), peak = torch.cuda.mem_get_info(), torch.cuda.max_memory_reserved()
    peaks = {
        "memory_peak_mib": peak,
        "memory_allocated_peak_mib": torch.cuda.max_memory_allocated(),
        "memory_card_peak_mib": whole - free - torch.cuda.memory_reserved() + peak,
    }
    return {name: round(peak / 2**20, 1) for name, peak in peaks.items()}


def limit_memory(gb: float) -> None:
    """Limit this process to the memory of a GPU of that size, CUDA's context and libraries included."""
    free, whole = torch.cuda.mem_get_info()
    left = gb * 1e9 - (whole - free) - LATER_BYTES
    torch.cuda.set_per_process_memory_fraction(max(0.0, min(1.0, left / whole)))


def skipping_plan(bundle: Bundle, blocks: int | None = None) -> DenoisePlan:
    """The bundle's `balanced`, with the middle two thirds of the blocks reused in every second step.

    A step reuses the blocks of the step before, if that computed the same rows. blocks: of the network, if it is not
    the bundle's.
    """
    blocks = blocks or int(bundle.manifest.sizes["denoiser"]["layers"])
    middle = round(blocks / 6), round(blocks * 5 / 6) - 1
    plans = block_skip_variants(DenoisePlan.from_dict(bundle.plan("balanced")), blocks)
    found = [plan for plan in plans if all(step.blocks is None or step.blocks[:2] == middle for step in plan)]
    return min(found, key=lambda plan: plan.cost(blocks))


def open_parts(job_args: Mapping[str, Any], variant: Variant) -> Parts:
    """The engines of a variant: pocket's from its bundle, other sizes with random weights. Raises BackendError."""
    started = time.perf_counter()
    if variant.memory_gb is not None:
        limit_memory(variant.memory_gb)
    bundle, size = open_bundle(job_args["bundle"]), SIZES.get(job_args["size"])
    plans = {name: DenoisePlan.from_dict(bundle.plan(name)) for name in bundle.manifest.plans}
    plans[SKIPPING] = skipping_plan(bundle, None if size is None else size.denoiser.layers)
    torch_device = backend.open_device(job_args["device"], variant.precision, variant.graphs != "off")
    with torch_device.use():
        packed = variant.int4_predictor
        networks = load_models(bundle, torch_device) if size is None else random_networks(size, torch_device, packed)
    kernels, words = open_kernels(Path(job_args["library"]) if variant.kernels else False, torch_device.device)
    geometry = bundle.manifest.geometry if size is None else size.geometry
    graphs: Any = variant.graphs
    rowwise = backend.ROWWISE.get(variant.precision)
    steps, which = list(plans.values()), variant.attention
    engines = backend.build_engines(
        torch_device, networks, geometry, steps, graphs, variant.compiled, rowwise, kernels, which
    )
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


def play(parts: Parts, plan: DenoisePlan) -> Turn:
    """One turn on random inputs."""
    given, geometry = prompt(parts.geometry), parts.geometry
    denoiser = Denoiser(parts.engines.denoiser, plan, geometry.latent_shape)
    started = time.perf_counter()
    noise = denoiser.draw_noise(7, 1)
    shot, choices = begin(parts, given)
    denoising = denoiser.denoise(shot, MOTION_SCOPE, noise)
    # As Pipeline.run_turn: the first step is queued before the state is read, where the device runs both at once.
    early = [next(denoising)] if parts.engines.concurrent_prediction else []
    choices()
    state = time.perf_counter()
    *_, denoised = (*early, *denoising)
    latent = time.perf_counter()
    decoding = parts.vae.decode(denoised.latent)
    frames = iter(decoding)
    next(frames)
    first = time.perf_counter()
    for _ in frames:
        pass
    done = time.perf_counter()
    clock = (mark - started for mark in (state, latent, first, done))
    return Turn(state - started, denoised.seconds, decoding.seconds, *clock)


def predict(parts: Parts, given: Prompt) -> FloatArray:
    """The shot of a prompt, once the four strengths of its state are chosen."""
    shot, choices = begin(parts, given)
    choices()
    return shot


def begin(parts: Parts, given: Prompt) -> tuple[FloatArray, Callable[[], FloatArray]]:
    """The shot of a prompt, and what waits for its state."""
    prefill = prefill_prompt(parts.engines.predictor, given)
    assert prefill.choose_next is not None
    return prefill.shot, prefill.choose_next(SLOTS, 0)


def prompt(geometry: Geometry) -> Prompt:
    """A prompt as long as one with a full history, of random words; needs no tokenizer."""
    shot, (history, turn) = geometry.shot_tokens, FULL_PROMPT
    index, block = np.full((2, history + turn), -1, np.int64), (history - 1) // HISTORY_TURNS
    for past in range(HISTORY_TURNS):
        index[:, past * block + BEFORE_SHOT :][:, :shot] = np.arange(past * shot, (past + 1) * shot)
    first = history + BEFORE_SHOT
    return build_readouts(
        RANDOM.integers(5, 300, history + turn),
        index,
        RANDOM.standard_normal((HISTORY_TURNS * shot, geometry.shot_width), dtype=np.float32),
        queries=range(first, first + shot),
        readout_start=first,
        history_tokens=history,
        history_turns=HISTORY_TURNS,
    )


def random_networks(size: Size, torch_device: TorchDevice, int4_predictor: bool = False) -> Models:
    """Networks with weights drawn on the device, the same in every type and variant: nothing passes through the host.

    Each tensor has a seed of its own, made from its name, so it does not depend on what is drawn before it.
    """
    with torch.device("meta"):
        predictor, denoiser = PredictorNetwork(size.predictor), DenoiserNetwork(size.denoiser)
        decoder = VaeDecoder(size.vae)
        if int4_predictor:
            pack(predictor)
    for network in (predictor, denoiser, decoder):
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
                # Drawn in bfloat16: its values are also float16's and float32's.
                drawn = torch.empty(tensor.shape, dtype=torch.bfloat16, device=tensor.device)
                tensor.copy_(drawn.normal_(0.0, tensor[0].numel() ** -0.5, generator=random))
            else:
                tensor.fill_(1.0)
    assert decoder.conv_out.bias is not None
    decoder.conv_out.bias.zero_()  # ones would make all frames white
    random = torch.Generator(torch_device.device).manual_seed(0)
    shape = (size.denoiser.shot_tokens, size.denoiser.hidden)
    constant = torch.randn(shape, generator=random, device=torch_device.device)
    return Models(predictor, denoiser, decoder, constant)


def pack(predictor: PredictorNetwork) -> None:
    """Puts layers in 4 bits in the place of those that a bundle in `int4-qdq` has so; their values are not set."""
    for name, layer in list(predictor.blocks.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            outputs, blocks = layer.out_features, layer.in_features // BLOCK
            codes = torch.empty((outputs, blocks, BLOCK // 2), dtype=torch.int8)
            packed = PackedLinear(codes, torch.empty((outputs, blocks, 1)))
            packed.four_bits = True
            predictor.blocks.set_submodule(name, packed)
