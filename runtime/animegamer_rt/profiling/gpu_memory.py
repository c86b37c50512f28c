"""How much memory a turn takes on an NVIDIA GPU with PyTorch: computed from sizes, as the engines allocate it.

tests/runtime/backends/test_torch_memory.py compares it with the engines' tensors. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import DECODER, DENOISER, PLAY_ROLES, PREDICTOR, TINY_DECODER, VAE

from .host_memory import (
    FILL,
    FRAMES_AT_ONCE,
    HALF,
    SPARE_BYTES,
    STORED_BYTES,
    VIDEO_FRAMES,
    vae_activations,
    vae_caches,
    weights_bytes,
)

LIBRARIES_BYTES = int(0.85 * 2**30)
"""The driver's context and CUDA's libraries: at most 0.9 GiB on an H100, 0.78 on an H200."""
SCARCE_BYTES = 2**30
"""With less free memory, once all weights are loaded, modulation weights and embeddings go to the host."""
CACHE_TOKENS = 1536
"""Tokens in the predictor's cache; more are added when a prompt needs them."""
PROMPT_TURNS, WORDS = 4, 40
"""Turns of a history that is read at once, and tokens of a turn beside its shot."""
BLOCK_BYTES: Mapping[str, int] = MappingProxyType({"bf16": 22, "fp8": 34, "int8": 39})
"""Precision of the denoiser -> bytes of a block's activations by token and channel, without our kernels."""
EIGHT_BITS = ("fp8", "int8")
LATENT_FRAMES, FIRST_CHUNK = 5, 3


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes of a turn: kept between turns, of a prompt while it is read, and of the graphs' pool."""

    kept: int
    prompt: int
    pool: int

    @property
    def peak_bytes(self) -> int:
        """All of it, as a prompt may be read while another turn is denoised, with the libraries' own memory."""
        return LIBRARIES_BYTES + self.kept + self.prompt + self.pool


def with_torch(bundle: Bundle, plan: str, precision: str, card_bytes: float) -> GpuMemory:
    """Memory of a plan's turns with `--device torch` in a precision of BLOCK_BYTES, on a GPU of this size.

    Raises KeyError, TypeError or ZeroDivisionError for a bundle without the sizes of its networks.
    """
    geometry, parts = bundle.manifest.geometry, bundle.parts_of(plan)
    sizes = {role: bundle.sizes(role, parts[role]) for role in PLAY_ROLES}
    weights = {role: weights_bytes(bundle, parts.graphs(role)[0], sizes[role], HALF) for role in PLAY_ROLES}
    predictor, denoiser = sizes[PREDICTOR], sizes[DENOISER]
    layers, hidden = denoiser["layers"], denoiser["hidden"]
    if precision in EIGHT_BITS:
        weights[DENOISER] -= 12 * hidden**2 * layers
    plans = {name: DenoisePlan.from_dict(entry.plan) for name, entry in bundle.manifest.plans.items()}
    alike = [other for name, other in plans.items() if bundle.parts_of(name).denoiser == parts.denoiser]
    timesteps = {step.timestep for other in alike for step in other}
    kept = sum(weights.values()) + HALF * _keys_and_values(predictor)
    if card_bytes - LIBRARIES_BYTES - kept < SCARCE_BYTES:
        kept -= HALF * 12 * layers * hidden * denoiser.get("time_width", 512)
        kept -= HALF * predictor["vocabulary"] * predictor["hidden"]
    kept += HALF * (len(timesteps) + 1) * (12 * layers + 2) * hidden
    kept += HALF * 3 * geometry.frames * geometry.height * geometry.width
    free = card_bytes - LIBRARIES_BYTES - kept
    caches, block = _decoder(sizes[VAE], bundle.network(VAE, parts.vae), *_grid(bundle), free)
    shot = denoiser.get("shot_tokens", 226)
    tokens = shot + LATENT_FRAMES * math.prod(side // denoiser.get("patch", 2) for side in _grid(bundle))
    rows = max(len(step.rows) for step in plans[plan])
    packed = bundle.manifest.parts[PREDICTOR].precision not in STORED_BYTES
    read = PROMPT_TURNS * (shot + WORDS) * (3 * predictor["mlp"] + 4 * predictor["hidden"])
    return GpuMemory(
        kept=kept + caches,
        prompt=HALF * (read + packed * predictor["mlp"] * predictor["hidden"]),
        pool=max(block, BLOCK_BYTES[precision] * rows * tokens * hidden),
    )


def _grid(bundle: Bundle) -> tuple[int, int]:
    return bundle.manifest.geometry.latent_height, bundle.manifest.geometry.latent_width


def _keys_and_values(size: Mapping[str, Any]) -> int:
    return int(2 * size["layers"] * size["kv_heads"] * (size["hidden"] // size["heads"]) * CACHE_TOKENS)


def _decoder(size: Mapping[str, Any], kind: str, height: int, width: int, free: float) -> tuple[int, int]:
    """(bytes of its caches on the GPU, bytes of the block that it reserves), for this free memory."""
    if kind == TINY_DECODER:
        each = [wide * height * width * 4**stage for stage, wide in enumerate(size["channels"][:-1])]
        caches, frames = size["blocks"] * sum(each), FIRST_CHUNK * 2 ** sum(size["doubles_time"][:-1])
        return HALF * caches, int(HALF * (4 * frames * max(each) + caches) / FILL)
    if kind != DECODER:
        return 0, 0
    caches = HALF * vae_caches(size, height, width)
    whole, in_slices = (
        int(HALF * vae_activations(size, height, width, frames) / FILL) for frames in (VIDEO_FRAMES, FRAMES_AT_ONCE)
    )
    left = free - SPARE_BYTES - caches
    return (0 if left < in_slices else caches), (whole if left >= whole else in_slices)
