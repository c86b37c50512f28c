"""Engines that take a fixed time and compute next to nothing, for measuring everything around the engines.

Frames are meaningless, but depend on everything that a real turn's frames depend on (instruction, history, every bit of
the shots, noise), so that an inexact replay is noticed.
"""

from __future__ import annotations

import json
import time
import zlib

import numpy as np

from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.bundle.roles import DEFAULT_PARTS, PlanParts
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.noise import AnyNoise, as_array

from .interface import Engines, FloatArray, Frames, IntArray, Prefill, TokenBatch

# Shares of the seconds of a turn: pocket, plan `balanced`, on a 2-core Intel Xeon on 2026-11-22.
PREDICTOR_SHARE, DENOISER_SHARE, VAE_SHARE = 0.14, 0.65, 0.21
FIRST_FRAMES, NEXT_FRAMES = 9, 8
BRIGHTNESS_STEP = 5
"""How much darker each frame of a chunk is than the previous one, so that all differ."""


def load(bundle: Bundle, config: EngineConfig, parts: PlanParts = DEFAULT_PARTS) -> Engines:
    """Engines that take `config.simulated_seconds` for a turn of the bundle's default plan.

    Another plan takes more or less, by its network evaluations. They stand in for any parts.
    """
    seconds = config.simulated_seconds
    rows = DenoisePlan.from_dict(bundle.manifest.plans[bundle.default_plan].plan).network_evaluations
    tokens = json.loads(bundle.path(bundle.manifest.tokenizer.added_tokens).read_text(encoding="utf-8"))
    geometry = bundle.manifest.geometry
    return Engines(
        _Predictor(geometry, 1 + max(tokens.values()), seconds * PREDICTOR_SHARE),
        _Denoiser(seconds * DENOISER_SHARE / rows),
        _Vae(geometry, seconds * VAE_SHARE / (FIRST_FRAMES + NEXT_FRAMES)),
        device=f"none: {seconds:g} s per turn",
    )


class _Predictor:
    """Spends all its time in the turn's prefill, as a real predictor spends nearly all.

    Prefilling a history takes no time, so it does not matter when that happens.
    """

    def __init__(self, geometry: Geometry, vocabulary: int, seconds: float) -> None:
        self._shape = (geometry.shot_tokens, geometry.shot_width)
        self._vocabulary, self._seconds = vocabulary, seconds

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        started = time.perf_counter()
        assert past is None or isinstance(past, int)
        key = zlib.crc32(tokens.history_shots.tobytes(), zlib.crc32(tokens.ids.tobytes(), past or 0))
        rows = len(tokens.readout)
        if rows < self._shape[0]:
            return Prefill(np.zeros((rows, self._shape[1]), np.float32), np.zeros(self._vocabulary, np.float32), key)
        shot = _random(key).standard_normal(self._shape, dtype=np.float32)
        logits = self._logits(key)
        _spend(started, self._seconds)
        return Prefill(shot, logits, key)

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        assert isinstance(cache, int)
        key = zlib.crc32(tokens.tobytes(), cache)
        return self._logits(key), key

    def _logits(self, key: int) -> FloatArray:
        return _random(key).standard_normal(self._vocabulary, dtype=np.float32)


class _Denoiser:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> _Denoising:
        return _Denoising(as_array(latent), shot, motion_scope, self._seconds)


class _Denoising:
    """A step's time is proportional to its rows: a CFG pair takes twice as long."""

    def __init__(self, latent: FloatArray, shot: FloatArray, motion_scope: float, seconds: float) -> None:
        self._latent, self._seconds = latent, seconds
        self._drift = 0.1 * np.resize(shot, latent.shape) + np.float32(0.001 * motion_scope)

    def step(self, coefficients: FloatArray, timestep: float, rows: tuple[int, ...], noise: AnyNoise) -> None:
        started = time.perf_counter()
        self._latent = np.float32(0.8) * self._latent + np.float32(0.2) * as_array(noise) + self._drift
        _spend(started, self._seconds * len(rows))

    def latent(self) -> FloatArray:
        return self._latent.copy()


class _Vae:
    """Shows three channels of the latent, enlarged."""

    def __init__(self, geometry: Geometry, seconds: float) -> None:
        self._rows = np.arange(geometry.height) * geometry.latent_height // geometry.height
        self._columns = np.arange(geometry.width) * geometry.latent_width // geometry.width
        self._seconds = seconds

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        return self._decode(latent, FIRST_FRAMES, channel_order, flip), latent[:, -1:]

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        assert isinstance(caches, np.ndarray)
        return self._decode(latent + caches, NEXT_FRAMES, channel_order, flip)

    def _decode(self, latent: FloatArray, frames: int, channel_order: tuple[int, ...], flip: bool) -> Frames:
        started = time.perf_counter()
        colours = 150 + 40 * np.tanh(latent[0].mean(0)[:3]).transpose(1, 2, 0)
        small = colours[None] - BRIGHTNESS_STEP * np.arange(frames).reshape(-1, 1, 1, 1)
        opaque = np.full((*small.shape[:3], 1), 255.0)
        small = np.concatenate([small, opaque], axis=-1).astype(np.uint8)[..., list(channel_order)]
        rows = self._rows[::-1] if flip else self._rows
        # Ten times as fast as indexing at full size, so that it hardly affects the measurement.
        picture: Frames = small.take(self._columns, axis=2).take(rows, axis=1)
        _spend(started, self._seconds * frames)
        return picture


def _random(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key))


def _spend(started: float, seconds: float) -> None:
    time.sleep(max(0.0, started + seconds - time.perf_counter()))
