"""Small networks in the PyTorch backend's parts on any device, and what tests give them: prompts, noise, turns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch_engines
from counted_weights import scattered
from torch import Tensor
from torch_tape import TapeDevice

from animegamer_export.parts.predictor import example_prompt
from animegamer_rt.backends.interface import Engines, Frames
from animegamer_rt.backends.torch.denoiser import Denoiser as DenoiserPart
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.fused_transformer import FusedTransformer
from animegamer_rt.backends.torch.kernels import Kernels
from animegamer_rt.backends.torch.loader import Encoder as EncoderPart
from animegamer_rt.backends.torch.loader import cast_for_inference
from animegamer_rt.backends.torch.predictor import Predictor as PredictorPart
from animegamer_rt.backends.torch.predictor import merge_layers
from animegamer_rt.backends.torch.rowwise_linear import convert_to_rowwise
from animegamer_rt.backends.torch.transformer import Transformer
from animegamer_rt.backends.torch.vae import Vae
from animegamer_rt.bundle.denoise_plan import DenoisePlan, build_plan
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.encoder import Encoder, EncoderSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize
from animegamer_rt.noise import AnyNoise
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.prompt import Prompt

PREDICTOR = PredictorSize(
    hidden=32, layers=2, heads=4, kv_heads=2, mlp=48, vocabulary=90, shot_width=32, sliding_window=250
)
DENOISER = DenoiserSize(hidden=32, layers=2, heads=2, time_width=16, latent_height=4, latent_width=6)
VAE = VaeSize(channels=8, multipliers=(1, 1, 2), res_blocks=0, norm_groups=2, scale=1.3)
WINDOW, SHAPE = 720, (1, 5, 16, 4, 6)
PLAN = build_plan(even_timesteps(6), branches=["pair", "reuse", "conditional", "pair", "reuse", "conditional"])
TOLERANCE = 2e-5
"""float32 in another order of operations, over a few layers."""
RANDOM = np.random.default_rng(0)


def networks() -> tuple[Predictor, Denoiser, Encoder, VaeDecoder]:
    torch.manual_seed(0)
    made = Predictor(PREDICTOR), Denoiser(DENOISER), Encoder(EncoderSize(16, 24, 32)), VaeDecoder(VAE)
    for seed, module in enumerate(made):
        scattered(module, seed, by=0.1)
    return made


def reference() -> Engines:
    return torch_engines.torch_engines(*networks())


def engines(
    torch_device: TorchDevice | None = None,
    plan: DenoisePlan = PLAN,
    rowwise: torch.dtype | None = None,
    kernels: Kernels | None = None,
    window: int = WINDOW,
) -> Engines:
    torch_device = torch_device or TorchDevice()
    with torch_device.use():
        predictor, denoiser, encoder, decoder = (
            cast_for_inference(net.to(torch_device.device), torch_device.dtype) for net in networks()
        )
        unconditional = networks()[2].unconditional()
        if rowwise is not None:
            convert_to_rowwise(denoiser, rowwise)
        transformer = (
            Transformer(denoiser, torch_device.dtype)
            if kernels is None
            else FusedTransformer(denoiser, torch_device.dtype, kernels)
        )
        return Engines(
            PredictorPart(torch_device.on_side_stream(), predictor, merge_layers(predictor), window),
            DenoiserPart(torch_device, transformer, unconditional, [step.timestep for step in plan], kernels),
            Vae(torch_device, decoder, 4, 6, kernels),
            EncoderPart(torch_device, encoder),
        )


def prompt(history_turns: int, words: int = 5, seed: int = 0) -> Prompt:
    with torch.device("meta"):
        network = Predictor(PREDICTOR)
    return example_prompt(network, history_turns, words, seed)


def noise(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, dtype=np.float32)


def answers(part: Engines, given: Prompt, feeds: Sequence[list[int]] = ((5, 6, 7), (8, 9, 10), (11, 12, 13))) -> list:
    """Shot and all four logits."""
    prefill = prefill_prompt(part.predictor, given)
    found, cache = [prefill.shot, prefill.logits], prefill.cache
    for tokens in feeds:
        logits, cache = part.predictor.extend(np.array(tokens, np.int64), cache)
        found.append(logits)
    return found


class Turn:
    """Everything a turn's denoising is given."""

    def __init__(self, scope: float = 10.0, plan: DenoisePlan = PLAN) -> None:
        self.plan, self.scope = plan, scope
        self.start: AnyNoise = noise(*SHAPE)
        self.shot, self.noises = noise(226, 32), list[AnyNoise](noise(*SHAPE) for _ in plan)

    def latents(self, part: Engines, at: Sequence[int] = ()) -> list[np.ndarray]:
        """The latents after the steps numbered in `at`, and the last."""
        denoising, found = part.denoiser.start(self.start, self.shot, self.scope), []
        steps = zip(self.plan, self.plan.coefficients(), self.noises, strict=True)
        for number, (step, coefficients, drawn) in enumerate(steps):
            denoising.step(coefficients, float(step.timestep), step.rows, drawn)
            if number in at:
                found.append(denoising.latent())
        return [*found, denoising.latent()]


def frames(part: Engines, latent: np.ndarray, order: tuple[int, ...] = (0, 1, 2), flip: bool = False) -> Frames:
    first, caches = part.vae.first(latent[:, :3].copy(), order, flip)
    return np.concatenate([first, part.vae.next(latent[:, 3:].copy(), caches, order, flip)])


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(found, expected, atol=tolerance * max(1.0, float(np.abs(expected).max())), rtol=0)


class SmallDevice(TapeDevice):
    """A device with graphs and this much free memory; it records pinned tensors."""

    def __init__(self, free: float) -> None:
        super().__init__()
        self.free, self.on_host = free, list[Tensor]()

    def free_bytes(self) -> float:
        return self.free

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        self.on_host.append(super().pinned(shape, dtype))
        return self.on_host[-1]


def small_vae(
    free: float, kernels: Kernels | None = None, network: VaeDecoder | None = None
) -> tuple[SmallDevice, Vae]:
    torch_device = SmallDevice(free)
    return torch_device, Vae(
        torch_device, cast_for_inference(network or networks()[3], torch_device.dtype), 4, 6, kernels
    )


def narrowing() -> VaeDecoder:
    """A decoder whose last stage has half the channels of what comes to it, as that of full size."""
    network = VaeDecoder(VaeSize(channels=8, multipliers=(1, 2, 2), res_blocks=1, norm_groups=2))
    return scattered(network, 5, by=0.1)
