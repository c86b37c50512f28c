"""Where an export's sizes, weights and tokenizer come from: the release's checkpoints, or a seed.

Nothing is held: weights are made one at a time when asked for. It does not know what is written, or where.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from torch import Tensor

from animegamer_export import checkpoints
from animegamer_export.checkpoints.files import Shape
from animegamer_export.checkpoints.recipe import wanted_shapes
from animegamer_export.command.layout import find_release
from animegamer_export.large.parts import (
    LargePart,
    Weights,
    denoiser_part,
    encoder_part,
    predictor_part,
    vae_part,
)
from animegamer_export.pocket.recipe import FULL as POCKET
from animegamer_export.pocket.tokenizer import added_tokens
from animegamer_rt import bundle as bundles
from animegamer_rt.errors import CheckpointError, ConfigError
from animegamer_rt.manifest import Geometry
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize, position_table
from animegamer_rt.models.encoder import Encoder, EncoderSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

PARTS = ("predictor", "denoiser", "vae", "encoder")
NEEDED_TO_PLAY = ("predictor", "denoiser", "vae")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of all four networks."""

    predictor: PredictorSize
    denoiser: DenoiserSize
    encoder: EncoderSize
    vae: VaeSize

    def record(self) -> dict[str, Any]:
        """As the manifest holds them."""
        return {
            **{name: asdict(getattr(self, name)) for name in PARTS[:2]},
            "encoder": asdict(self.encoder),
            "decoder": asdict(self.vae),
        }

    def geometry(self, window_tokens: int) -> Geometry:
        """Sizes of a turn."""
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
            "predictor": lambda: Predictor(self.predictor),
            "denoiser": lambda: Denoiser(self.denoiser),
            "vae": lambda: VaeDecoder(self.vae),
            "encoder": lambda: Encoder(self.encoder),
        }
        prefix = f"{part}." if part in ("denoiser", "encoder") else ""
        with torch.device("meta"):
            return wanted_shapes({prefix: makers[part]()})


FULL = Sizes(
    predictor=PredictorSize(hidden=4096, layers=32, heads=32, kv_heads=8, mlp=14336, vocabulary=32284, shot_width=1920),
    denoiser=DenoiserSize(hidden=1920, layers=30, heads=30, time_width=512, latent_height=60, latent_width=90),
    encoder=EncoderSize(text_width=4096, image_width=768, hidden=1920),
    vae=VaeSize(),
)
"""The published model's (docs/MODEL.md; the key lists of tests/golden/keys say the same)."""

TINY = Sizes(
    predictor=PredictorSize(hidden=32, layers=2, heads=2, kv_heads=1, mlp=64, vocabulary=0, shot_width=32),
    denoiser=DenoiserSize(hidden=32, layers=2, heads=2, time_width=16, latent_height=8, latent_width=12),
    encoder=EncoderSize(text_width=16, image_width=224, hidden=32),
    vae=VaeSize(channels=4, multipliers=(1, 1, 2), res_blocks=0, norm_groups=2, scale=1.3),
)
"""A few thousand weights, to try the road itself."""

_SHAPE = POCKET.predictor
RANDOM_SIZES: Mapping[str, Sizes] = {
    "full": FULL,
    "pocket": Sizes(
        predictor=PredictorSize(
            hidden=_SHAPE.hidden,
            layers=_SHAPE.layers,
            heads=_SHAPE.heads,
            kv_heads=_SHAPE.kv_heads,
            mlp=_SHAPE.mlp,
            vocabulary=0,
            shot_width=POCKET.denoiser.hidden,
        ),
        denoiser=POCKET.denoiser,
        encoder=POCKET.encoder,
        vae=POCKET.vae,
    ),
    "tiny": TINY,
}
"""vocabulary 0: as many as the tokenizer knows."""


@dataclass(frozen=True, slots=True)
class Source:
    """One model to export. `fingerprint` says what it is made of: another one means that parts must be made again."""

    sizes: Sizes
    weights: Mapping[str, Weights]
    tokenizer_model: bytes
    added_tokens: Mapping[str, int]
    origin: str
    description: str
    fingerprint: Mapping[str, Any]

    def part(self, name: str) -> LargePart:
        """The part's graphs and weights to be made."""
        sizes, weights = self.sizes, self.weights[name]
        if name == "predictor":
            return predictor_part(sizes.predictor, weights)
        if name == "denoiser":
            return denoiser_part(sizes.denoiser, sizes.encoder, weights)
        if name == "vae":
            return vae_part(sizes.vae, weights, sizes.denoiser.latent_height, sizes.denoiser.latent_width)
        return encoder_part(sizes.encoder, weights)


def from_checkpoints(folder: Path, release: str, height: int, width: int) -> Source:
    """The published checkpoints, LoRA merged in float32 as each weight is made; height and width of the pictures.

    Every file is opened and matched key by key before anything is written. Raises CheckpointError.
    """
    found = find_release(folder, release)
    predictor, predictor_weights = checkpoints.open_predictor(found.mistral, found.adapter)
    vae, vae_weights = checkpoints.open_vae(found.vae)
    if height % vae.upscale or width % vae.upscale:
        raise ConfigError(
            "pictures of that size cannot be made",
            where="--picture",
            found=f"{height}x{width}",
            expected=f"multiples of {vae.upscale}",
        )
    denoiser, encoder, both = checkpoints.open_denoiser(found.denoiser, height // vae.upscale, width // vae.upscale)
    if predictor.shot_width != denoiser.hidden:
        raise CheckpointError(
            "the predictor and the denoiser are not of one release: their shots differ in width",
            where=found.adapter,
            misshapen={"shot": (predictor.shot_width, denoiser.hidden)},
        )
    model, tokens = found.tokenizer.read_bytes(), _published_tokens(found.tokenizer, predictor.vocabulary)
    stamps = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in found.files()]
    return Source(
        Sizes(predictor, denoiser, encoder, vae),
        {"predictor": predictor_weights, "denoiser": both, "encoder": both, "vae": vae_weights},
        model,
        tokens,
        "checkpoints",
        f"AnimeGamer, {release}: from the published checkpoints",
        {"checkpoints": stamps, "release": release, "picture": [height, width]},
    )


def from_seed(seed: int, size: str) -> Source:
    """Random weights of a size by name, with pocket's tokenizer: for time and memory, its pictures mean nothing."""
    pocket = bundles.find("pocket")
    tokens: dict[str, int] = json.loads((pocket / "added_tokens.json").read_text(encoding="utf-8"))
    sizes = RANDOM_SIZES[size]
    if sizes.predictor.vocabulary == 0:
        sizes = replace(
            sizes, predictor=replace(sizes.predictor, vocabulary=math.ceil((max(tokens.values()) + 1) / 8) * 8)
        )
    weights: dict[str, Weights] = {name: RandomWeights(seed, name, sizes) for name in PARTS}
    # The denoiser's file holds the encoder too: its constant shot is made of it.
    weights["denoiser"] = RandomWeights(seed, "denoiser", sizes, "encoder")
    return Source(
        sizes,
        weights,
        (pocket / "tokenizer.model").read_bytes(),
        tokens,
        "random weights",
        f"random weights (seed {seed}) of {size} size: for time and memory only",
        {"seed": seed, "size": size},
    )


class RandomWeights:
    """Weights drawn by seed and name, so that each is the same whenever it is made, alone or after others."""

    def __init__(self, seed: int, part: str, sizes: Sizes, *more: str) -> None:
        self.seed, self.sizes = seed, sizes
        self.shapes = {name: shape for one in (part, *more) for name, shape in sizes.shapes(one).items()}

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        """Matrices keep the size of what goes through them; norms are about 1, biases about 0."""
        shape = self.shapes[parameter]
        if parameter.endswith("positions"):
            return position_table(self.sizes.denoiser).to(dtype)
        name = hashlib.sha256(f"{self.seed} {parameter}".encode()).digest()
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(int.from_bytes(name[:7], "big")))
        if len(shape) >= 2:
            return drawn.mul_(math.prod(shape[1:]) ** -0.5).to(dtype)
        return drawn.mul_(0.05).add_(1.0 if parameter.endswith("weight") else 0.0).to(dtype)


def _published_tokens(model: Path, vocabulary: int) -> dict[str, int]:
    """The ids of the release's added tokens: they follow the language model's own pieces (MODEL.md section 2)."""
    try:
        pieces = int(sentencepiece.SentencePieceProcessor(model_file=str(model)).get_piece_size())
    except (OSError, RuntimeError) as error:
        raise CheckpointError("not a sentencepiece model", where=model, do="take the published file") from error
    names = added_tokens()
    if pieces + len(names) != vocabulary:
        raise CheckpointError(
            "the tokenizer is not the language model's of this release",
            where=model,
            misshapen={"pieces": (pieces, vocabulary - len(names))},
            do="take tokenizer.model of Mistral-7B-Instruct-v0.1",
        )
    return {name: pieces + number for number, name in enumerate(names)}
