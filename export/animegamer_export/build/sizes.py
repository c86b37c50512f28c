"""Sizes of the networks: the published model, pocket, and a tiny model for tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from animegamer_export.checkpoints.files import Shape
from animegamer_export.checkpoints.weight_map import wanted_shapes
from animegamer_export.towers.image import VIT_B_16, ImageTowerSize
from animegamer_export.towers.text import XXL, TextTowerSize
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.bundle.roles import DECODER, DENOISER, ENCODER, PREDICTOR, VAE
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.encoder import Encoder, EncoderSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

PARTS = (PREDICTOR, DENOISER, VAE, ENCODER)


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The sizes of all four networks."""

    predictor: PredictorSize
    denoiser: DenoiserSize
    encoder: EncoderSize
    vae: VaeSize

    def record(self) -> dict[str, Any]:
        """The sizes as stored in the manifest."""
        return {
            PREDICTOR: asdict(self.predictor),
            DENOISER: asdict(self.denoiser),
            ENCODER: asdict(self.encoder),
            DECODER: asdict(self.vae),
        }

    def unlike_published(self) -> str:
        """Each size that differs from the published model's, except the frame size, as text."""
        ours, theirs = self.record(), FULL.record()
        return ", ".join(
            f"{part}.{name} {value} (published: {theirs[part][name]})"
            for part, numbers in ours.items()
            for name, value in numbers.items()
            if name not in ("latent_height", "latent_width") and value != theirs[part][name]
        )

    def geometry(self, window_tokens: int) -> Geometry:
        """The manifest's geometry; window_tokens: the longest prompt."""
        size, upscale = self.denoiser, self.vae.upscale
        return Geometry(
            height=size.latent_height * upscale,
            width=size.latent_width * upscale,
            latent_height=size.latent_height,
            latent_width=size.latent_width,
            shot_width=size.hidden,
            window_tokens=window_tokens,
        )

    def shapes(self, part: str) -> dict[str, Shape]:
        """Name and shape of every weight of a part."""
        makers: Mapping[str, Callable[[], torch.nn.Module]] = {
            PREDICTOR: lambda: Predictor(self.predictor),
            DENOISER: lambda: Denoiser(self.denoiser),
            VAE: lambda: VaeDecoder(self.vae),
            ENCODER: lambda: Encoder(self.encoder),
        }
        prefix = f"{part}." if part in (DENOISER, ENCODER) else ""
        with torch.device("meta"):
            return wanted_shapes({prefix: makers[part]()})


FULL = ModelSizes(
    predictor=PredictorSize(hidden=4096, layers=32, heads=32, kv_heads=8, mlp=14336, vocabulary=32284, shot_width=1920),
    denoiser=DenoiserSize(hidden=1920, layers=30, heads=30, time_width=512, latent_height=60, latent_width=90),
    encoder=EncoderSize(text_width=4096, image_width=768, hidden=1920),
    vae=VaeSize(),
)
"""The published model (docs/MODEL.md; tests/golden/keys has its key lists)."""

TINY = ModelSizes(
    predictor=PredictorSize(hidden=64, layers=2, heads=2, kv_heads=1, mlp=128, vocabulary=0, shot_width=32),
    denoiser=DenoiserSize(hidden=32, layers=2, heads=2, time_width=16, latent_height=8, latent_width=12),
    encoder=EncoderSize(text_width=16, image_width=224, hidden=32),
    vae=VaeSize(channels=32, multipliers=(1, 1, 2), res_blocks=0),
)
"""Few weights, to test the export."""

POCKET = ModelSizes(
    predictor=PredictorSize(hidden=192, layers=4, heads=3, kv_heads=1, mlp=512, vocabulary=0, shot_width=192),
    denoiser=DenoiserSize(hidden=192, layers=6, heads=3, time_width=128, latent_height=12, latent_width=18),
    encoder=EncoderSize(text_width=64, image_width=224, hidden=192),
    vae=VaeSize(channels=16, multipliers=(1, 2, 4, 8), res_blocks=0, norm_groups=4, scale=1.0),
)
"""The model trained from scratch and shipped (`animegamer_pocket`): frames of 96 x 144 pixels."""

RANDOM_SIZES: Mapping[str, ModelSizes] = {"full": FULL, "pocket": POCKET, "tiny": TINY}
"""Sizes by name. A vocabulary of 0 means the tokenizer's size."""


def tower_sizes(encoder: EncoderSize) -> tuple[TextTowerSize, ImageTowerSize]:
    """Sizes of an encoder's towers: the published ones, or two layers with the encoder's input widths."""
    if encoder == FULL.encoder:
        return XXL, VIT_B_16
    text, image = encoder.text_width, encoder.image_width
    return (
        TextTowerSize(text, layers=2, heads=2, head_width=8, mlp=2 * text, vocabulary=512, tokens=encoder.text_tokens),
        ImageTowerSize(image, layers=2, heads=2, patch=4, grid=math.isqrt(encoder.image_tokens), mlp=2 * image),
    )
