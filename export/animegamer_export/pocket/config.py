"""The pocket recipe: every size, step count and seed of the pocket world, in one place.

`FULL` makes the bundle that ships; `SHORT` walks the same road in a minute or two, so that CI can prove that the road
is whole. Neither knows how a network is trained.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from animegamer_export.build.sizes import POCKET
from animegamer_export.plan_search.measuring import SearchBudget
from animegamer_rt.models.denoiser import DenoiserSize
from animegamer_rt.models.encoder import EncoderSize
from animegamer_rt.models.predictor import PredictorSize
from animegamer_rt.models.vae import VaeSize

LATENT_HEIGHT, LATENT_WIDTH = 12, 18  # 96 x 144 pixels, eight pixels a latent cell
PATCH_PIXELS = 8  # the image tower reads 14 x 14 squares of 8 x 8 pixels from a 112 x 112 picture
PLACE_WAVES = 8  # and tells each square's place in this many waves along each axis


@dataclass(frozen=True, slots=True)
class Phase:
    """One training run: optimiser steps, clips (or games) a step, and the top learning rates."""

    steps: int
    batch: int
    learning_rate: float
    matrix_learning_rate: float = 0.0
    final_share: float = 0.0  # of the top learning rate, at the last step


@dataclass(frozen=True, slots=True)
class PredictorShape:
    """What the recipe chooses of `PredictorSize`; the vocabulary's size is known once the tokenizer is trained."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int

    @classmethod
    def of(cls, size: PredictorSize) -> PredictorShape:
        """The fields of a whole size that are chosen here."""
        return cls(size.hidden, size.layers, size.heads, size.kv_heads, size.mlp)


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that the pocket build needs to know; the same recipe gives the same bundle on the same machine."""

    name: str
    seed: int
    games: int
    held_out_games: int
    stories: int  # games of text and first frames alone, for the predictor
    turns_per_game: int
    judge_clips: int
    judge_epochs: int
    judged_turns: int
    judged_games: int
    judged_plans: tuple[str, ...]
    plan_rows: tuple[int, ...]  # the costs tried when plans are calibrated, in network rows
    plan_turns: int
    vocabulary_pieces: int
    text_width: int
    vae: VaeSize
    denoiser: DenoiserSize
    predictor: PredictorShape
    frames_phase: Phase
    autoencoder_phase: Phase
    decoder_phase: Phase
    denoiser_phase: Phase
    predictor_phase: Phase
    played_phase: Phase  # of the predictor too, on histories that it has played itself
    played_games: int
    adapt_phase: Phase
    drawn_clips: int  # what the adapted denoiser draws of the corpus, for the decoder to learn from
    adapt_decoder_phase: Phase

    @property
    def encoder(self) -> EncoderSize:
        """The shot encoder's size: it reads the pocket towers and writes shots as wide as the denoiser."""
        return EncoderSize(
            text_width=self.text_width, image_width=3 * PATCH_PIXELS**2 + 4 * PLACE_WAVES, hidden=self.denoiser.hidden
        )

    def predictor_size(self, vocabulary: int) -> PredictorSize:
        """The predictor's size over a trained vocabulary; it writes shots as wide as the denoiser."""
        return PredictorSize(**asdict(self.predictor), vocabulary=vocabulary, shot_width=self.denoiser.hidden)


def _denoiser(hidden: int, layers: int) -> DenoiserSize:
    return DenoiserSize(
        hidden=hidden,
        layers=layers,
        heads=hidden // 64,
        time_width=128,
        latent_height=LATENT_HEIGHT,
        latent_width=LATENT_WIDTH,
    )


FULL = Recipe(
    name="full",
    seed=20250421,
    games=900,
    held_out_games=60,
    stories=8000,
    turns_per_game=5,
    judge_clips=5000,
    judge_epochs=8,
    judged_turns=40,
    judged_games=8,
    judged_plans=("balanced", "fast"),
    plan_rows=tuple(SearchBudget().rows),
    plan_turns=8,
    vocabulary_pieces=400,
    text_width=POCKET.encoder.text_width,
    vae=POCKET.vae,
    denoiser=POCKET.denoiser,
    predictor=PredictorShape.of(POCKET.predictor),
    frames_phase=Phase(steps=2000, batch=8, learning_rate=2e-3, final_share=0.2),
    autoencoder_phase=Phase(steps=400, batch=2, learning_rate=1e-3, final_share=0.2),
    decoder_phase=Phase(steps=2050, batch=2, learning_rate=7e-4, final_share=0.1),
    denoiser_phase=Phase(steps=5200, batch=8, learning_rate=1e-3, matrix_learning_rate=1e-2),
    predictor_phase=Phase(steps=4000, batch=2, learning_rate=4e-3, matrix_learning_rate=5e-3),
    played_phase=Phase(steps=14300, batch=2, learning_rate=2e-3, matrix_learning_rate=3e-3),
    played_games=400,
    adapt_phase=Phase(steps=21600, batch=8, learning_rate=7e-4, matrix_learning_rate=6e-3),
    drawn_clips=1100,
    adapt_decoder_phase=Phase(steps=1750, batch=2, learning_rate=5e-4, final_share=0.05),
)

SHORT = Recipe(
    name="short",
    seed=7,
    games=8,
    held_out_games=2,
    stories=8,
    turns_per_game=3,
    judge_clips=32,
    judge_epochs=1,
    judged_turns=2,
    judged_games=1,
    judged_plans=("fast",),
    plan_rows=(97,),
    plan_turns=1,
    vocabulary_pieces=300,
    text_width=16,
    vae=VaeSize(channels=4, multipliers=(1, 1, 2, 2), res_blocks=0, norm_groups=2, scale=1.0),
    denoiser=_denoiser(hidden=64, layers=2),
    predictor=PredictorShape(hidden=64, layers=1, heads=1, kv_heads=1, mlp=128),
    frames_phase=Phase(steps=3, batch=4, learning_rate=2e-3),
    autoencoder_phase=Phase(steps=3, batch=1, learning_rate=1e-3),
    decoder_phase=Phase(steps=3, batch=1, learning_rate=1e-3),
    denoiser_phase=Phase(steps=4, batch=2, learning_rate=1e-3, matrix_learning_rate=1e-2),
    predictor_phase=Phase(steps=4, batch=2, learning_rate=1e-3, matrix_learning_rate=1e-2),
    played_phase=Phase(steps=2, batch=2, learning_rate=1e-3, matrix_learning_rate=1e-2),
    played_games=2,
    adapt_phase=Phase(steps=3, batch=2, learning_rate=3e-4, matrix_learning_rate=3e-3),
    drawn_clips=2,
    adapt_decoder_phase=Phase(steps=2, batch=1, learning_rate=5e-4),
)

RECIPES = {recipe.name: recipe for recipe in (FULL, SHORT)}
