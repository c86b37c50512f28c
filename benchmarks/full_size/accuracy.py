"""Holds what PyTorch on a CPU computes at full size to the plain networks in float32, on the bundle's weights.

Predictor: the turn's prompt, then the state that was played, all layers. Denoiser: the turn's first step, all blocks
and tokens, both rows. Vae: the latent that was played: its first frame as a whole picture, both chunks of a corner of
it. The whole clip is not compared: the plain network would hold more of it in memory than there is. That the bundle's
weights are those of the checkpoints is what `animegamer-rt verify` says.
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from animegamer_export.evaluate.metrics import psnr, relative_error
from animegamer_export.verify.against_torch import MIN_PSNR_DB, MIN_PSNR_SAME_WEIGHTS_DB, TOLERANCES, read_in_one
from animegamer_rt.backends.interface import Engines, TokenBatch
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.loader import PRECISIONS, cast_for_inference
from animegamer_rt.backends.torch.networks import read_decoder, read_denoiser, read_predictor
from animegamer_rt.backends.torch.vae import FRAMES_AT_ONCE, Vae, to_uint8
from animegamer_rt.backends.torch.vae_decoder import decode
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.noise_schedule import Coefficients
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.models.denoiser_step import DenoiserStep
from animegamer_rt.models.vae import CHUNKS
from animegamer_rt.stages.denoiser import Denoiser
from animegamer_rt.stages.prompt import STATE_TAGS, PromptBuilder
from animegamer_rt.state.game import STRENGTHS
from benchmarks.full_size.kept import LATENT, SCOPE, SHOT

SMALL = (8, 12)
"""Height and width of the small latent: 64 x 96 pixels."""
RGB = (0, 1, 2)

Array = npt.NDArray[Any]
Figures = dict[str, Any]


class ScarceDevice(TorchDevice):
    """A CPU without memory to spare: the vae runs in slices, as it does at full size."""

    def free_bytes(self) -> float:
        """None."""
        return 0.0


@torch.no_grad()
def compare(
    bundle: Bundle, precision: str, plan_name: str, text: str, seed: int, played: Mapping[str, Any], kept: Path
) -> dict[str, Figures]:
    """Figures of each stage; `within_tolerance`: of `animegamer-rt verify`, for the precision.

    `same_bytes`: whether the engines' output equals that of the played turn, another process. played: its figures;
    kept: the folder of `kept`.
    """
    found, began = {}, time.perf_counter()
    config = EngineConfig("torch-cpu", None if precision == "fp32" else precision)
    found["predictor"] = predictor(bundle, open_engines(bundle, config), text, played["state"], precision, kept)
    found["predictor"]["seconds"], began = round(time.perf_counter() - began, 1), time.perf_counter()
    found["denoiser"] = denoiser(bundle, open_engines(bundle, config), plan_name, seed, precision, kept)
    found["denoiser"]["seconds"], began = round(time.perf_counter() - began, 1), time.perf_counter()
    found["vae"] = vae(bundle, open_engines(bundle, config), precision, kept, played["frames_sha256"])
    found["vae"]["seconds"] = round(time.perf_counter() - began, 1)
    return found


def predictor(
    bundle: Bundle, engines: Engines, text: str, state: Mapping[str, int], precision: str, kept: Path
) -> Figures:
    """Figures of the engine's shot, of the logits of all four strengths, and of which of these are the same."""
    builder = PromptBuilder.from_bundle(bundle)
    prompt, width = builder.build(text, []), bundle.manifest.geometry.shot_width
    played = [STRENGTHS.index(state[name]) for name, _ in STATE_TAGS]
    fixed = zip(played, builder.between_slots, strict=False)
    texts = [np.array([builder.strength_ids[choice], *between], np.int64) for choice, between in fixed]
    prefill = engines.predictor.prefill(prompt.turn)
    logits, cache = [prefill.logits], prefill.cache
    for tokens in texts:
        after, cache = engines.predictor.extend(tokens, cache)
        logits.append(after)
    del engines, cache
    gc.collect()
    network = cast_for_inference(read_predictor(bundle, TorchDevice()), torch.float32)
    runs = [*prompt.runs, *(TokenBatch.text(ids, width) for ids in texts)]
    shot, true = read_in_one(network, runs, len(prompt.runs))
    chosen = true[:, list(builder.strength_ids)].argmax(1)
    figures = {
        "compared": f"the prompt of {prompt.turn.ids.shape[1]} tokens, the state, all layers",
        "shot_relative_error": _short(relative_error(prefill.shot, shot[0])),
        "logits_relative_error": _short(relative_error(np.stack(logits), true)),
        "strengths_equal_of_4": int((chosen == played).sum()),
        "same_bytes": {"shot": bool(np.array_equal(prefill.shot, np.load(kept / SHOT)))},
    }
    return _judged(figures, precision)


def denoiser(bundle: Bundle, engines: Engines, plan_name: str, seed: int, precision: str, kept: Path) -> Figures:
    """Figures of the turn's first step."""
    plan = DenoisePlan.from_dict(bundle.plan(plan_name))
    step, numbers = plan.steps[0], plan.coefficients()[0]
    noise = Denoiser(engines.denoiser, plan, bundle.manifest.geometry.latent_shape).draw_noise(seed, 1)
    latent, added = next(noise), next(noise)
    shot, scope = np.load(kept / SHOT), float(np.load(kept / SCOPE))
    began = time.perf_counter()
    run = engines.denoiser.start(latent, shot, scope)
    run.step(numbers, float(step.timestep), step.rows, added)
    found, engine_s = run.latent(), time.perf_counter() - began
    del engines, run
    gc.collect()
    network, unconditional = read_denoiser(bundle, TorchDevice())
    plain = DenoiserStep(cast_for_inference(network, torch.float32), unconditional.float())
    zeros = torch.zeros(latent.shape)
    true, true_x0, _ = plain(
        torch.from_numpy(latent),
        zeros,
        torch.from_numpy(added),
        zeros,
        torch.from_numpy(numbers),
        torch.tensor([float(step.timestep)]),
        torch.tensor([scope]),
        torch.from_numpy(shot)[None],
        torch.tensor(step.rows),
    )
    named = Coefficients(*numbers.tolist())
    x0 = (found - named.c_latent * latent - named.c_noise * added) / named.c_x0
    figures = {
        "compared": f"the first step of {len(plan.steps)}, {len(step.rows)} rows, all blocks and tokens",
        "x0_relative_error": _short(relative_error(x0, true_x0.numpy())),
        "latent_relative_error": _short(relative_error(found, true.numpy())),
        "engine_seconds_with_loading": round(engine_s, 1),
        "same_bytes": {"first step": bool(np.array_equal(found, np.load(kept / LATENT.format(1))))},
    }
    return _judged(figures, precision)


def vae(bundle: Bundle, engines: Engines, precision: str, kept: Path, sha256: str) -> Figures:
    """Figures of the turn's latent: its first frame at the bundle's size, and both chunks of a corner of it."""
    latent = np.load(kept / LATENT.format(len(list(kept.glob(LATENT.format("*")))) - 1))
    first, caches = engines.vae.first(latent[:, : CHUNKS[0]], RGB, False)
    again = np.concatenate([first, engines.vae.next(latent[:, CHUNKS[0] :], caches, RGB, False)])
    del engines, caches
    gc.collect()
    device = ScarceDevice(PRECISIONS[precision])
    network = cast_for_inference(read_decoder(bundle, device), device.dtype)
    plain = cast_for_inference(read_decoder(bundle, TorchDevice()), torch.float32)
    corner = np.ascontiguousarray(latent[..., : SMALL[0], : SMALL[1]])
    engine = Vae(device, network, *corner.shape[-2:])
    first, caches = engine.first(corner[:, : CHUNKS[0]], RGB, False)
    small = np.concatenate([first, engine.next(corner[:, CHUNKS[0] :], caches, RGB, False)])
    scaled = torch.from_numpy(latent) / network.size.scale
    expected = plain.decode(torch.from_numpy(corner).transpose(1, 2) / network.size.scale)[0]
    true = to_uint8(expected.permute(1, 2, 3, 0), RGB, False).numpy()
    one = scaled[0, :1].permute(0, 2, 3, 1).to(device.dtype)
    large = to_uint8(decode(network, one, None, lambda _: None, None, FRAMES_AT_ONCE), RGB, False).numpy()
    del engine, network
    whole = to_uint8(plain(scaled[:, :1].transpose(1, 2))[0][0].permute(1, 2, 3, 0), RGB, False).numpy()
    figures = {
        "compared": "all layers: one latent frame whole, both chunks of a corner of 64 x 96 pixels",
        "picture": list(whole.shape),
        "frames_psnr_db": round(psnr(large, whole), 2),
        "corner_psnr_db": round(psnr(small, true), 2),
    }
    least = min(figures["frames_psnr_db"], figures["corner_psnr_db"])
    same = {"all frames": hashlib.sha256(again.tobytes()).hexdigest() == sha256}
    required = MIN_PSNR_SAME_WEIGHTS_DB if precision == "fp32" else MIN_PSNR_DB
    return {**figures, "required_db": required, "within_tolerance": least >= required, "same_bytes": same}


def _judged(figures: Figures, precision: str) -> Figures:
    errors = [value for name, value in figures.items() if name.endswith("relative_error")]
    return {**figures, "tolerance": TOLERANCES[precision], "within_tolerance": max(errors) <= TOLERANCES[precision]}


def _short(number: float) -> float:
    return float(f"{number:.3g}")
