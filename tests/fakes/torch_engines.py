"""The reference: the networks of `models` in PyTorch, behind the engine interface."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from animegamer_export.parts.predictor import empty_cache, read
from animegamer_export.parts.vae import pixels
from animegamer_rt.backends.interface import Engines, FloatArray, Frames, IntArray, Prefill, TokenBatch
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.denoiser_step import DenoiserStep
from animegamer_rt.models.encoder import Encoder
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.noise import AnyNoise, as_array


def torch_engines(predictor: Predictor, denoiser: Denoiser, encoder: Encoder, decoder: VaeDecoder) -> Engines:
    for network in (predictor, denoiser, encoder, decoder):
        network.requires_grad_(False)
    step = DenoiserStep(denoiser, encoder.unconditional()).eval()
    return Engines(_Predictor(predictor), _Denoiser(step), _Vae(decoder))


class _Predictor:
    def __init__(self, model: Predictor) -> None:
        self.model = model

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        past = empty_cache(self.model) if past is None else past
        assert isinstance(past, list)
        shot, logits, *cache = read(self.model, tokens, past)
        return Prefill(shot[0].numpy(), logits[0].numpy(), cache)

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        after = self.prefill(TokenBatch.text(tokens, self.model.size.shot_width), cache)
        return after.logits, after.cache


class _Denoiser:
    def __init__(self, step: DenoiserStep) -> None:
        self.network = step

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> _Denoising:
        return _Denoising(self.network, torch.from_numpy(as_array(latent)), torch.from_numpy(shot)[None], motion_scope)


class _Denoising:
    def __init__(self, network: DenoiserStep, latent: Tensor, shot: Tensor, motion_scope: float) -> None:
        self.network, self.shot, self.scope = network, shot, torch.tensor([motion_scope])
        self.state: tuple[Tensor, Tensor, Tensor] = latent, torch.zeros_like(latent), torch.zeros_like(latent)

    def step(self, coefficients: FloatArray, timestep: float, rows: Sequence[int], noise: AnyNoise) -> None:
        latent, x0, difference = self.state
        given = (
            torch.from_numpy(as_array(noise)),
            difference,
            torch.from_numpy(coefficients),
            torch.tensor([timestep]),
        )
        self.state = self.network(latent, x0, *given, self.scope, self.shot, torch.tensor(list(rows)))

    def latent(self) -> FloatArray:
        return self.state[0].numpy().copy()


class _Vae:
    def __init__(self, decoder: VaeDecoder) -> None:
        self.decoder = decoder

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        return self._decode(latent, None, channel_order, flip)

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        assert isinstance(caches, list)
        return self._decode(latent, caches, channel_order, flip)[0]

    def _decode(
        self, latent: FloatArray, caches: list[Tensor] | None, channel_order: tuple[int, ...], flip: bool
    ) -> tuple[Frames, list[Tensor]]:
        scaled = torch.from_numpy(latent).transpose(1, 2) / self.decoder.size.scale
        frames, after = self.decoder(scaled, caches)
        order = torch.tensor(channel_order)
        return pixels(frames[0].transpose(0, 1), order, torch.tensor([flip])).numpy(), after
