"""How near a plan's clips are to the exact plan's: the same seed, instruction and shot, two plans, five figures.

Knows the runtime's pipeline and nothing of any world; whether a clip still shows what was turns is the business of a
`ClipScorer`, which comes with a world. Source of SSIM: Wang et al. 2004 (11-pixel Gaussian window, sigma 1.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from animegamer_export.evaluate.metrics import Clip, psnr, relative_error, ssim
from animegamer_rt.backends.interface import FloatArray
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.stages.denoiser import Denoiser
from animegamer_rt.state.game import motion_scope
from animegamer_rt.state.instruction import Instruction

NO_JUDGE = "none: no judge of this bundle's world was given"


class ClipScorer(Protocol):
    """Says whether clips show what was turns. `words` says who judges, and what."""

    @property
    def words(self) -> str: ...

    def score(self, clips: Sequence[Clip], instructions: Sequence[str]) -> float:
        """0 to 1 for clips uint8 [17, H, W, 3], each of a first turn, beside the texts that turns for them."""
        ...


@dataclass(frozen=True, slots=True)
class TurnInput:
    """What a first turn's denoising starts from: shot float32 [226, D], motion scope, and the seed of its noise."""

    shot: FloatArray
    motion_scope: float
    seed: int


@dataclass(frozen=True, slots=True)
class TurnOutput:
    """What came of it: the latent float32 [1, 5, 16, h, w] and the frames uint8 [17, H, W, 3]."""

    latent: FloatArray
    clip: Clip


@dataclass(frozen=True, slots=True)
class PlanEvaluator:
    """First turns as the plan of `pipeline` plays them: what other plans are measured against.

    `score` is what the scorer gives these clips, None without one.
    """

    pipeline: Pipeline
    turns: Sequence[TurnInput]
    references: Sequence[TurnOutput]
    instructions: Sequence[str]
    scorer: ClipScorer | None
    score: float | None

    @classmethod
    def play(
        cls, pipeline: Pipeline, instructions: Sequence[str], seed: int, scorer: ClipScorer | None = None
    ) -> PlanEvaluator:
        """Turn k of the instructions has the noise of `seed` + k."""
        turns = predict_first_turns(pipeline, instructions, seed)
        references = [render_turn(pipeline, pipeline.denoiser, turn) for turn in turns]
        score = _score(scorer, [one.clip for one in references], instructions)
        return cls(pipeline, turns, references, instructions, scorer, score)

    def fidelity(self, denoiser: Denoiser) -> dict[str, float | int | str | None]:
        """Mean figures of the same turns drawn by another plan, or another denoiser.

        `latent_relative_error` is |a - b| / |b| of the final latents; `psnr_db` and `ssim` are of the frames;
        `motion_ratio` is the mean absolute frame difference of the plan's clips over the yardstick's;
        `instruction_score` is the scorer's, `instruction_score_exact` what it gives the yardstick's own clips.
        """
        errors, decibels, similarities, motions, clips = [], [], [], [], []
        for turn, true in zip(self.turns, self.references, strict=True):
            tried = render_turn(self.pipeline, denoiser, turn)
            errors.append(relative_error(tried.latent, true.latent))
            decibels.append(psnr(tried.clip, true.clip))
            similarities.append(float(np.mean([ssim(a, b) for a, b in zip(tried.clip, true.clip, strict=True)])))
            motions.append((_motion(tried.clip), _motion(true.clip)))
            clips.append(tried.clip)
        amounts = np.asarray(motions)
        return {
            "against": self.pipeline.plan_name,
            "turns": len(self.turns),
            "seed": self.turns[0].seed,
            "latent_relative_error": round(float(np.mean(errors)), 4),
            "psnr_db": round(float(np.mean(decibels)), 2),
            "ssim": round(float(np.mean(similarities)), 4),
            "motion_ratio": round(float(amounts[:, 0].sum() / max(1e-9, amounts[:, 1].sum())), 4),
            "instruction_score": _score(self.scorer, clips, self.instructions),
            "instruction_score_exact": self.score,
            "instruction_judge": NO_JUDGE if self.scorer is None else self.scorer.words,
        }


def predict_first_turns(pipeline: Pipeline, instructions: Sequence[str], seed: int) -> list[TurnInput]:
    """Predicts a first turn of each instruction; turn k has the noise of `seed` + k."""
    rules, turns = pipeline.bundle.manifest.compatibility, []
    for number, text in enumerate(instructions):
        prediction = pipeline.predictor.predict((), Instruction.parse(text))
        scope = motion_scope(prediction.game_state, rules.motion_table, rules.motion_source)
        turns.append(TurnInput(prediction.shot, scope, seed + number))
    return turns


def denoise_turn(denoiser: Denoiser, turn: TurnInput) -> FloatArray:
    """The latent that a denoiser's plan ends with."""
    *_, last = denoiser.denoise(turn.shot, turn.motion_scope, denoiser.draw_noise(turn.seed, 1))
    return last.latent


def render_turn(pipeline: Pipeline, denoiser: Denoiser, turn: TurnInput) -> TurnOutput:
    """Latent and frames."""
    latent = denoise_turn(denoiser, turn)
    return TurnOutput(latent, np.stack(list(pipeline.vae.decode(latent))))


def _score(scorer: ClipScorer | None, clips: Sequence[Clip], instructions: Sequence[str]) -> float | None:
    return None if scorer is None else round(scorer.score(clips, instructions), 4)


def _motion(clip: Clip) -> float:
    return float(np.abs(np.diff(clip.astype(np.int16), axis=0)).mean())
