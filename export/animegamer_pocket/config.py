"""The configuration of the pocket build: every size, step count and seed.

`FULL` makes the bundle that ships. `SHORT` runs the same phases in a minute, for the tests.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from animegamer_export.build.sizes import POCKET
from animegamer_export.plan_search.measure import SearchBudget
from animegamer_rt.models.denoiser import DenoiserSize
from animegamer_rt.models.encoder import EncoderSize
from animegamer_rt.models.predictor import PredictorSize
from animegamer_rt.models.vae import VaeSize

LATENT_HEIGHT, LATENT_WIDTH = 12, 18  # 96 x 144 pixels, eight pixels a latent cell
PATCH_PIXELS = 8  # the image tower cuts a 112 x 112 picture into 14 x 14 patches of 8 x 8 pixels
POSITION_WAVES = 8  # sinusoids that encode a patch's position along each axis


@dataclass(frozen=True, slots=True)
class PhaseConfig:
    """One training phase: optimiser steps, clips (or games) a step, and the peak learning rates."""

    steps: int
    batch: int
    learning_rate: float
    muon_learning_rate: float = 0.0  # of matrices in transformer blocks; 0: AdamW trains them too
    final_ratio: float = 0.0  # learning rate after the last step / peak learning rate


@dataclass(frozen=True, slots=True)
class PredictorShape:
    """`PredictorSize` without the vocabulary's size, which is known once the tokenizer is trained."""

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
class BuildConfig:
    """One pocket build. The same configuration gives the same bundle on the same machine."""

    name: str
    seed: int
    games: int
    held_out_games: int
    predictor_games: int  # games of instructions and first frames only
    turns_per_game: int
    evaluated_turns: int
    evaluated_games: int
    evaluated_plans: tuple[str, ...]
    plan_rows: tuple[int, ...]  # costs of the plans to search, in denoiser rows
    plan_turns: int
    vocabulary_pieces: int
    text_width: int
    vae: VaeSize
    denoiser: DenoiserSize
    predictor: PredictorShape
    frames_phase: PhaseConfig
    autoencoder_phase: PhaseConfig
    decoder_phase: PhaseConfig
    denoiser_phase: PhaseConfig
    predictor_phase: PhaseConfig
    rollout_phase: PhaseConfig  # of the predictor, on its own earlier shots
    rollout_games: int
    adapt_phase: PhaseConfig
    generated_clips: int  # clips that the adapted denoiser generates to train the decoder on
    adapt_decoder_phase: PhaseConfig
    reader_phase: PhaseConfig  # of the instruction reader; a batch is of turns
    picture_reader_phase: PhaseConfig  # a batch is of pictures
    vocabulary_turns: int  # of the language corpus; their words are the instruction reader's vocabulary

    @property
    def encoder(self) -> EncoderSize:
        """The shot encoder's size: its inputs are as wide as the towers, its shots as wide as the denoiser."""
        image_width = 3 * PATCH_PIXELS**2 + 4 * POSITION_WAVES
        return EncoderSize(text_width=self.text_width, image_width=image_width, hidden=self.denoiser.hidden)

    def predictor_size(self, vocabulary: int) -> PredictorSize:
        """The predictor's size with a vocabulary of that many tokens; its shots are as wide as the denoiser."""
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


FULL = BuildConfig(
    name="full",
    seed=20250421,
    games=900,
    held_out_games=60,
    predictor_games=8000,
    turns_per_game=5,
    evaluated_turns=40,
    evaluated_games=8,
    evaluated_plans=("balanced", "fast"),
    plan_rows=tuple(SearchBudget().rows),
    plan_turns=8,
    vocabulary_pieces=400,
    text_width=POCKET.encoder.text_width,
    vae=POCKET.vae,
    denoiser=POCKET.denoiser,
    predictor=PredictorShape.of(POCKET.predictor),
    frames_phase=PhaseConfig(steps=2000, batch=8, learning_rate=2e-3, final_ratio=0.2),
    autoencoder_phase=PhaseConfig(steps=400, batch=2, learning_rate=1e-3, final_ratio=0.2),
    decoder_phase=PhaseConfig(steps=2050, batch=2, learning_rate=7e-4, final_ratio=0.1),
    denoiser_phase=PhaseConfig(steps=5200, batch=8, learning_rate=1e-3, muon_learning_rate=1e-2),
    predictor_phase=PhaseConfig(steps=4000, batch=2, learning_rate=4e-3, muon_learning_rate=5e-3),
    rollout_phase=PhaseConfig(steps=14300, batch=2, learning_rate=2e-3, muon_learning_rate=3e-3),
    rollout_games=400,
    adapt_phase=PhaseConfig(steps=21600, batch=8, learning_rate=7e-4, muon_learning_rate=6e-3),
    generated_clips=1100,
    adapt_decoder_phase=PhaseConfig(steps=1750, batch=2, learning_rate=5e-4, final_ratio=0.05),
    reader_phase=PhaseConfig(steps=9500, batch=256, learning_rate=1.5e-3, final_ratio=0.02),
    picture_reader_phase=PhaseConfig(steps=2500, batch=48, learning_rate=2e-3),
    vocabulary_turns=100_000,
)

SHORT = BuildConfig(
    name="short",
    seed=7,
    games=3,
    held_out_games=1,
    predictor_games=8,
    turns_per_game=2,
    evaluated_turns=1,
    evaluated_games=1,
    evaluated_plans=("fast",),
    plan_rows=(10,),
    plan_turns=1,
    vocabulary_pieces=300,
    text_width=16,
    vae=VaeSize(channels=4, multipliers=(1, 1, 2, 2), res_blocks=0, norm_groups=2, scale=1.0),
    denoiser=_denoiser(hidden=64, layers=1),
    predictor=PredictorShape(hidden=64, layers=1, heads=1, kv_heads=1, mlp=128),
    frames_phase=PhaseConfig(steps=2, batch=4, learning_rate=2e-3),
    autoencoder_phase=PhaseConfig(steps=1, batch=1, learning_rate=1e-3),
    decoder_phase=PhaseConfig(steps=1, batch=1, learning_rate=1e-3),
    denoiser_phase=PhaseConfig(steps=4, batch=2, learning_rate=1e-3, muon_learning_rate=1e-2),
    predictor_phase=PhaseConfig(steps=4, batch=2, learning_rate=1e-3, muon_learning_rate=1e-2),
    rollout_phase=PhaseConfig(steps=2, batch=2, learning_rate=1e-3, muon_learning_rate=1e-2),
    rollout_games=2,
    adapt_phase=PhaseConfig(steps=3, batch=2, learning_rate=3e-4, muon_learning_rate=3e-3),
    generated_clips=2,
    adapt_decoder_phase=PhaseConfig(steps=1, batch=1, learning_rate=5e-4),
    reader_phase=PhaseConfig(steps=2, batch=4, learning_rate=1e-3),
    picture_reader_phase=PhaseConfig(steps=2, batch=2, learning_rate=1e-3),
    vocabulary_turns=100,
)

CONFIGS = {config.name: config for config in (FULL, SHORT)}
