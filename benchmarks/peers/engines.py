"""Engines that use the networks of transformers and diffusers with a bundle's weights, in float32 on the CPU.

They implement backends/interface.py, so the same pipeline plays the same turns. Ours are the parts that no library has:
the two resamplers, the motion scope, guidance and solver, pixels, and the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache

from animegamer_rt.backends.interface import Engines, FloatArray, Frames, IntArray, Prefill, TokenBatch
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.loader import cast_for_inference
from animegamer_rt.backends.torch.networks import load_models
from animegamer_rt.backends.torch.vae import to_uint8
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import PLAY_ROLES
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.denoiser_step import advance
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.noise import AnyNoise, as_array

from . import library_networks

KeysValues = list[tuple[Tensor, Tensor]]


def open_library_engines(bundle: Bundle) -> Engines:
    """The engines of an unquantised bundle.

    Raises BackendError for a bundle that our own PyTorch backend cannot read.
    """
    device = TorchDevice(torch.float32)
    models = load_models(bundle, device)
    assert isinstance(models.decoder, VaeDecoder), "the libraries have no light decoder"
    for network in (models.predictor, models.denoiser, models.decoder):
        cast_for_inference(network, torch.float32)
    return Engines(
        LibraryPredictor(models.predictor),
        LibraryDenoiser(models.denoiser, models.unconditional.float()),
        LibraryVae(models.decoder),
        device="transformers and diffusers, in float32 on the CPU",
        kind="transformers and diffusers on the CPU",
        precision=dict.fromkeys(PLAY_ROLES, "fp32"),
    )


class LibraryPredictor:
    """Implements interface.PredictorEngine with transformers' Mistral."""

    def __init__(self, ours: Predictor) -> None:
        self.network = library_networks.mistral(ours)
        self._ours = ours

    @torch.inference_mode()
    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        """See interface.PredictorEngine."""
        hidden, logits, cache = self._run(tokens, past)
        shot = self._ours.output_resampler(hidden[0, torch.from_numpy(tokens.readout)])
        return Prefill(shot.numpy(), logits, cache)

    @torch.inference_mode()
    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        """See interface.PredictorEngine."""
        return self._run(TokenBatch.text(tokens, self._ours.size.shot_width), cache)[1:]

    def _run(self, tokens: TokenBatch, past: Any) -> tuple[Tensor, FloatArray, KeysValues]:
        """Hidden states [b, n, D], logits [V] after the last row, and keys and values, past ones first."""
        index, masks = torch.from_numpy(tokens.history_index), torch.from_numpy(tokens.arrays()["masks"])
        rows, count = index.shape
        embeddings = self.network.model.embed_tokens(torch.from_numpy(tokens.ids)).expand(rows, -1, -1)
        injected = self._ours.input_resampler(torch.from_numpy(tokens.history_shots))[index.clamp(min=0)]
        embeddings = torch.where(index[..., None] >= 0, injected, embeddings)
        before: KeysValues = past or []
        cache = DynamicCache(
            [(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)) for keys, values in before]
        )
        start = before[0][0].shape[2] if before else 0
        positions = torch.arange(start + count)
        masks = torch.cat([masks.new_ones(rows, count, start), masks], dim=2)
        masks = masks & self._ours.in_window(positions[start:], positions)
        # By place: transformers 5.24 renamed the fourth, `past_key_values`, to `cache`.
        hidden = self.network.model(None, masks[:, None], None, cache, embeddings).last_hidden_state
        layers: Sequence[Any] = cache.layers
        kept = [(layer.keys[-1:], layer.values[-1:]) for layer in layers]
        return hidden, self.network.lm_head(hidden[-1, -1]).numpy(), kept


class LibraryDenoiser:
    """Implements interface.DenoiserEngine with diffusers' CogVideoX transformer."""

    def __init__(self, ours: Denoiser, unconditional: Tensor) -> None:
        self.network = library_networks.transformer(ours)
        self.unconditional = unconditional
        self.motion = TimeAndMotion(self.network.time_embedding, ours.motion)
        self.network.time_embedding = self.motion

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> LibraryDenoiseRun:
        """See interface.DenoiserEngine."""
        self.motion.scope = torch.tensor([motion_scope])
        return LibraryDenoiseRun(self, torch.from_numpy(as_array(latent)), torch.from_numpy(shot))


class TimeAndMotion(nn.Module):
    """Replaces the library's timestep embedding: its own plus ours of the motion scope."""

    def __init__(self, time: nn.Module, motion: nn.Module) -> None:
        super().__init__()
        self.time, self.motion, self.scope = time, motion, torch.zeros(1)

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        """[B, hidden] -> [B, time width]."""
        out: Tensor = self.time(sample, condition) + self.motion(self.scope)
        return out


class LibraryDenoiseRun:
    """Implements interface.DenoiseRun."""

    def __init__(self, denoiser: LibraryDenoiser, latent: Tensor, shot: Tensor) -> None:
        self._network, self._latent = denoiser.network, latent
        self._shots = torch.stack([denoiser.unconditional, shot])
        self._x0 = self._difference = torch.zeros_like(latent)

    @torch.inference_mode()
    def step(self, coefficients: FloatArray, timestep: float, rows: tuple[int, ...], noise: AnyNoise) -> None:
        """See interface.DenoiseRun."""
        v = self._network(
            hidden_states=self._latent.expand(len(rows), -1, -1, -1, -1),
            encoder_hidden_states=self._shots[list(rows)],
            timestep=torch.full((len(rows),), timestep),
            return_dict=False,
        )[0]
        state = self._latent, self._x0, torch.from_numpy(as_array(noise)), self._difference
        numbers = torch.from_numpy(np.ascontiguousarray(coefficients)).unbind(0)
        self._latent, self._x0, self._difference = advance(v, *state, numbers)

    def latent(self) -> FloatArray:
        """See interface.DenoiseRun."""
        out: FloatArray = self._latent.numpy().copy()
        return out


class LibraryVae:
    """Implements interface.VaeEngine with the decoder of diffusers' CogVideoX vae, chunk by chunk like its `decode`."""

    def __init__(self, ours: VaeDecoder) -> None:
        self.decoder = library_networks.vae(ours).decoder
        self._scale = ours.size.scale

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        """See interface.VaeEngine."""
        return self._decode(latent, None, channel_order, flip)

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        """See interface.VaeEngine."""
        return self._decode(latent, caches, channel_order, flip)[0]

    @torch.inference_mode()
    def _decode(
        self, latent: FloatArray, caches: object, channel_order: Sequence[int], flip: bool
    ) -> tuple[Frames, object]:
        scaled = torch.from_numpy(latent).transpose(1, 2) / self._scale
        rgb, caches = self.decoder(scaled, conv_cache=caches)
        frames: Frames = to_uint8(rgb[0].permute(1, 2, 3, 0), channel_order, flip).numpy()
        return frames, caches
