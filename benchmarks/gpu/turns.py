"""Times turns of pocket or full size by one variant: seconds and memory, in the fields of `bench` records.

Uses the runtime's denoiser and vae stages, so noise is generated ahead and the second chunk is decoded while the first
is returned, as in play. `parts` opens their engines.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

from animegamer_bench.records import SAMPLES, percentile
from animegamer_rt.backends.interface import FloatArray, StateSlots
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.stages.denoiser import Denoiser
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.prompt import Prompt, build_readouts
from benchmarks.gpu import machine as gpu_machine
from benchmarks.gpu import whole_network
from benchmarks.gpu.jobs import Variant
from benchmarks.gpu.parts import Parts, open_parts
from benchmarks.gpu.prompt import CAPTION_TOKENS, FULL_PROMPT, HISTORY_TURNS

Entry = dict[str, Any]

BEFORE_SHOT = CAPTION_TOKENS + 2
SLOTS = StateSlots(tuple(range(5, 16)), between=((3, 4),) * 3)
"""Eleven strengths to choose from, four times, with two tokens in between."""
MOTION_SCOPE = 10.0
WARM_UP = 2
"""Warm-up turns: one runs eagerly, one captures graphs."""
RANDOM = np.random.default_rng(7)
COLUMNS: Mapping[str, str] = {
    "seconds": "total",
    **{name: name for name in ("predictor", "denoiser", "vae", "to_state", "to_first_frame")},
}
"""Columns of a record's samples -> fields of a Turn."""


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
    """The fields of a record of turns for each plan, without those common to a run."""
    variant, on_gpu = Variant(**job_args["variant"]), job_args["device"] == "cuda"
    parts = open_parts(job_args, variant)
    for name in job_args["plans"]:
        plan = parts.plans[name]
        for _ in range(WARM_UP if on_gpu else 0):
            play(parts, plan)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        measured = [play(parts, plan) for _ in range(job_args["turns"])]
        to_state = [seconds_to_state(parts) for _ in range(job_args["turns"])]
        peaks = memory() if on_gpu else {"memory_peak_mib": None}
        playback = parts.geometry.frames / parts.geometry.fps
        yield {
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "gpu": gpu_machine.facts() if on_gpu else None,
            "device": "torch" if on_gpu else "torch-cpu",
            "runs_on": parts.engines.device,
            "size": parts.name,
            "fingerprint": parts.fingerprint,
            "origin": parts.origin,
            "shape": [parts.geometry.frames, parts.geometry.height, parts.geometry.width],
            "plan": name,
            "steps": len(plan),
            "branches": plan.network_evaluations,
            "peer": None,
            "variant": variant.name,
            "precision": dict(parts.precision),
            "attention": parts.engines.attention,
            "n": len(measured),
            "playback_seconds": playback,
            **summary(measured, playback),
            "seconds_to_state_history_read_p50": percentile(to_state, 50),
            "first_prompt_seconds": None,
            "open_seconds": parts.open_seconds,
            **peaks,
            # After the timed turns, when graphs are captured, so that their replays are checked.
            "against_plain_bf16": whole_network.compared(parts, name, Path(job_args["reference"])),
            "fidelity": dict(parts.fidelity.get(name, {})),
        }


def summary(measured: list[Turn], playback: float) -> Entry:
    """Medians and 95th percentiles, and every turn, in seconds."""

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
        SAMPLES: {name: [round(getattr(turn, of), 5) for turn in measured] for name, of in COLUMNS.items()},
    }


def memory() -> dict[str, float]:
    """Peaks in MiB: reserved by PyTorch; of that, used by tensors; and in use on the GPU.

    The last includes memory outside PyTorch: CUDA's context, libraries and other programs.
    """
    (free, whole), peak = torch.cuda.mem_get_info(), torch.cuda.max_memory_reserved()
    peaks = {
        "memory_peak_mib": peak,
        "memory_allocated_peak_mib": torch.cuda.max_memory_allocated(),
        "memory_card_peak_mib": whole - free - torch.cuda.memory_reserved() + peak,
    }
    return {name: round(peak / 2**20, 1) for name, peak in peaks.items()}


def play(parts: Parts, plan: DenoisePlan) -> Turn:
    """One turn on random inputs."""
    given, geometry = prompt(parts.geometry), parts.geometry
    denoiser = Denoiser(parts.engines.denoiser, plan, geometry.latent_shape)
    started = time.perf_counter()
    noise = denoiser.draw_noise(7, 1)
    shot = predict(parts, given)
    state = time.perf_counter()
    *_, denoised = denoiser.denoise(shot, MOTION_SCOPE, noise)
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


def predict(parts: Parts, given: Prompt, past: object | None = None) -> FloatArray:
    """The shot of a prompt, after choosing its state. past: the history's cache, if already prefilled."""
    prefill = prefill_prompt(parts.engines.predictor, given, past)
    assert prefill.choose_next is not None
    prefill.choose_next(SLOTS, 0)
    return prefill.shot


def seconds_to_state(parts: Parts) -> float:
    """From the instruction to the state, with the history prefilled, as `play` and `serve` do while a player types."""
    given = prompt(parts.geometry)
    assert given.history is not None
    past = parts.engines.predictor.prefill(given.history).cache
    started = time.perf_counter()
    predict(parts, given, past)
    return time.perf_counter() - started


def prompt(geometry: Geometry) -> Prompt:
    """A prompt of random tokens as long as one with a full history."""
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
