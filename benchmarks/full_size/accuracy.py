"""Holds what each stage of the played turn gave to the plain networks in float32, on the bundle's weights.

Predictor: the shot and the state, all layers. Denoiser: the first step, all blocks and tokens, both rows. Vae: the
first frame of the latent as a whole picture, and both chunks of a corner of it, decoded in slices as at full size. The
whole clip is not compared: the plain network would hold more of it in memory than there is. That the weights of the
bundle are those of the checkpoints is what `animegamer-rt verify` says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from animegamer_export.evaluate.metrics import psnr, relative_error
from animegamer_export.verify.against_torch import MIN_PSNR_DB, MIN_PSNR_SAME_WEIGHTS_DB, TOLERANCES, read_in_one
from animegamer_rt.backends.interface import TokenBatch
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.loader import PRECISIONS, cast_for_inference
from animegamer_rt.backends.torch.networks import read_decoder, read_denoiser, read_predictor
from animegamer_rt.backends.torch.transformer import Transformer
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

CORNER = (8, 12)
"""Height and width of the corner of the latent: 64 x 96 pixels."""
BEGIN = 3
"""Blocks of the denoiser, where there is no time for all."""
RGB = (0, 1, 2)

Array = npt.NDArray[Any]
Figures = dict[str, Any]


class ScarceDevice(TorchDevice):
    """A CPU without memory to spare: the vae runs in slices, as it does at full size."""

    def free_bytes(self) -> float:
        """None."""
        return 0.0


@torch.no_grad()
def predictor(bundle: Bundle, precision: str, text: str, state: Mapping[str, int], kept: Path) -> Figures:
    """The played shot, and how many of the four strengths torch would choose too. state: as played."""
    builder = PromptBuilder.from_bundle(bundle)
    prompt, width = builder.build(text, []), bundle.manifest.geometry.shot_width
    played = [STRENGTHS.index(state[name]) for name, _ in STATE_TAGS]
    fixed = zip(played, builder.between_slots, strict=False)
    texts = [np.array([builder.strength_ids[choice], *between], np.int64) for choice, between in fixed]
    network = cast_for_inference(read_predictor(bundle, TorchDevice()), torch.float32)
    runs = [*prompt.runs, *(TokenBatch.text(ids, width) for ids in texts)]
    shot, logits = read_in_one(network, runs, len(prompt.runs))
    chosen = logits[:, list(builder.strength_ids)].argmax(1)
    figures = {
        "compared": f"the shot and the state of a prompt of {prompt.turn.ids.shape[1]} tokens, all layers",
        "shot_relative_error": _short(relative_error(np.load(kept / SHOT), shot[0])),
        "strengths_equal_of_4": int((chosen == played).sum()),
    }
    return _judged(figures, precision)


@torch.no_grad()
def denoiser(bundle: Bundle, precision: str, plan_name: str, seed: int, kept: Path) -> Figures:
    """The latent after the played turn's first step, and the x0 that follows from it."""
    plan = DenoisePlan.from_dict(bundle.plan(plan_name))
    step, numbers = plan.steps[0], plan.coefficients()[0]
    drawn = Denoiser(_NoEngine(), plan, bundle.manifest.geometry.latent_shape).draw_noise(seed, 1)
    latent, noise = next(drawn), next(drawn)
    assert np.array_equal(latent, np.load(kept / LATENT.format(0)))
    network, unconditional = read_denoiser(bundle, TorchDevice())
    plain = DenoiserStep(cast_for_inference(network, torch.float32), unconditional.float())
    zeros = torch.zeros(latent.shape)
    true, true_x0, _ = plain(
        torch.from_numpy(latent),
        zeros,
        torch.from_numpy(noise),
        zeros,
        torch.from_numpy(numbers),
        torch.tensor([float(step.timestep)]),
        torch.tensor([float(np.load(kept / SCOPE))]),
        torch.from_numpy(np.load(kept / SHOT))[None],
        torch.tensor(step.rows),
    )
    found, named = np.load(kept / LATENT.format(1)).astype(np.float64), Coefficients(*numbers.tolist())
    x0 = (found - named.c_latent * latent - named.c_noise * noise) / named.c_x0
    figures = {
        "compared": f"the first step of {len(plan.steps)}, {len(step.rows)} rows, all blocks and tokens",
        "x0_relative_error": _short(relative_error(x0, true_x0.numpy())),
        "latent_relative_error": _short(relative_error(found, true.numpy())),
    }
    return _judged(figures, precision)


@torch.no_grad()
def denoiser_begin(bundle: Bundle, precision: str, plan_name: str, kept: Path) -> Figures:
    """v of the first BEGIN blocks and the head in the first step, conditional row: the engine's and the plain one."""
    dtype, timestep = PRECISIONS[precision], DenoisePlan.from_dict(bundle.plan(plan_name)).steps[0].timestep
    network, _ = read_denoiser(bundle, TorchDevice())
    network.blocks = network.blocks[:BEGIN]
    latent, shot = (torch.from_numpy(np.load(kept / name)) for name in (LATENT.format(0), SHOT))
    given = torch.tensor([float(timestep)]), torch.tensor([float(np.load(kept / SCOPE))])
    true = cast_for_inference(network, torch.float32)(latent, *given, shot[None])
    engine = Transformer(cast_for_inference(network, dtype), dtype)
    found = engine.v(latent, shot[None].to(dtype), engine.modulations(*given))
    figures = {
        "compared": f"v of the first {BEGIN} blocks and the head, all tokens, the conditional row of the first step",
        "v_relative_error": _short(relative_error(found.numpy(), true.numpy())),
    }
    return _judged(figures, precision)


@torch.no_grad()
def vae(bundle: Bundle, precision: str, kept: Path) -> Figures:
    """The played latent: its first frame at the bundle's size, and both chunks of a corner of it."""
    device, latent = ScarceDevice(PRECISIONS[precision]), last_latent(kept)
    network = cast_for_inference(read_decoder(bundle, device), device.dtype)
    plain = cast_for_inference(read_decoder(bundle, TorchDevice()), torch.float32)
    corner = np.ascontiguousarray(latent[..., : CORNER[0], : CORNER[1]])
    engine = Vae(device, network, *CORNER)
    first, caches = engine.first(corner[:, : CHUNKS[0]], RGB, False)
    small = np.concatenate([first, engine.next(corner[:, CHUNKS[0] :], caches, RGB, False)])
    scale = network.size.scale
    true = plain.decode(torch.from_numpy(corner).transpose(1, 2) / scale)[0].permute(1, 2, 3, 0)
    one = torch.from_numpy(latent[:, :1]) / scale
    given = one[0].permute(0, 2, 3, 1).to(device.dtype)
    large = to_uint8(decode(network, given, None, lambda _: None, None, FRAMES_AT_ONCE), RGB, False).numpy()
    whole = to_uint8(plain(one.transpose(1, 2))[0][0].permute(1, 2, 3, 0), RGB, False).numpy()
    figures: Figures = {
        "compared": "all layers: the first latent frame, whole; both chunks of a corner of 64 x 96 pixels, in slices",
        "picture": list(whole.shape[1:]),
        "picture_psnr_db": round(psnr(large, whole), 2),
        "corner_psnr_db": round(psnr(small, to_uint8(true, RGB, False).numpy()), 2),
    }
    least = min(figures["picture_psnr_db"], figures["corner_psnr_db"])
    required = MIN_PSNR_SAME_WEIGHTS_DB if precision == "fp32" else MIN_PSNR_DB
    return {**figures, "required_db": required, "within_tolerance": least >= required}


def frames_again(bundle: Bundle, precision: str, kept: Path) -> str:
    """The SHA-256 of the frames of the played latent, decoded once more by the engines."""
    latent = last_latent(kept)
    engine = open_engines(bundle, EngineConfig("torch-cpu", None if precision == "fp32" else precision)).vae
    first, caches = engine.first(latent[:, : CHUNKS[0]], RGB, False)
    frames = np.concatenate([first, engine.next(latent[:, CHUNKS[0] :], caches, RGB, False)])
    return hashlib.sha256(frames.tobytes()).hexdigest()


def last_latent(kept: Path) -> Array:
    """The latent that the vae was given."""
    latent: Array = np.load(kept / LATENT.format(len(list(kept.glob(LATENT.format("*")))) - 1))
    return latent


class _NoEngine:
    """For drawing noise alone."""

    skippable_blocks = 0

    def start(self, latent: Array, shot: Array, motion_scope: float) -> Any:
        raise AssertionError("nothing is denoised with it")


def _judged(figures: Figures, precision: str) -> Figures:
    errors = [value for name, value in figures.items() if name.endswith("relative_error")]
    return {**figures, "tolerance": TOLERANCES[precision], "within_tolerance": max(errors) <= TOLERANCES[precision]}


def _short(number: float) -> float:
    return float(f"{number:.3g}")
