"""The phases of the pocket build in order.

corpus (with the tokenizer) -> frames -> autoencoder -> decoder, denoiser -> predictor -> adapted -> adapted_decoder ->
readers -> bundle -> plans -> answers, quality.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from animegamer_export.plan_search import measure, results
from animegamer_export.plan_search.command import write_plans
from animegamer_export.plan_search.measure import SearchBudget
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.stages.vae import Vae

from . import bundle, held_out
from . import training_phases as train
from .context import BuildContext
from .evaluation.reconstruction import vae_figures
from .judge.reading import Judge
from .judge.scorer import JudgeScorer
from .reader.export import add_readers
from .reader.picture import train_picture_reader
from .reader.samples import vocabulary
from .reader.training import load_reader
from .training import autoencoder
from .world.captions import caption


def make_bundle(context: BuildContext) -> None:
    """Exports every network into the bundle. Its plans have no figures yet."""
    denoiser, shot_encoder = context.load_denoiser("adapted")
    bundle.write_bundle(
        context.out,
        bundle.Networks(
            predictor=context.load_predictor().cpu(),
            denoiser=denoiser.cpu(),
            encoder=shot_encoder.encoder.cpu(),
            decoder=context.load_decoder(),
            text_tower=shot_encoder.text_tower.cpu(),
            image_tower=shot_encoder.image_tower,
        ),
        context.work / "tokenizer",
        provenance={"recipe": context.config.name, "seed": context.config.seed, "latent_scale": context.latent_scale},
    )
    pictures = train_picture_reader(context.weights_path("picture_reader"), context.config.picture_reader_phase)
    words = vocabulary(context.config.vocabulary_turns)
    add_readers(context.out, load_reader(context.weights_path("reader")), pictures, words)


def calibrate_plans(context: BuildContext) -> None:
    """Searches plans on held-out instructions; writes the best and their figures into the manifest."""
    config, exported = context.config, load(context.out)
    instructions = [
        caption(scene) for scene in context.held_out.scenes[:: context.held_out.turns][: 2 * config.plan_turns]
    ]
    budget = SearchBudget(config.plan_rows, config.plan_turns)
    points = measure.measure_plans(
        exported, open_engines(exported, plan=EXACT), instructions, budget, judge=JudgeScorer(Judge())
    )
    write_plans(exported, results.choose_plans(points))


def measure_quality(context: BuildContext) -> None:
    """Measures the bundle's quality; the figures go into its manifest.

    Run it again when `distill` has added a plan. Without the build's autoencoder, the vae keeps its figures.
    """
    config, exported = context.config, load(context.out)
    figures = held_out.measure_quality(exported, Judge(), config.evaluated_turns, config.evaluated_games)
    bundle.update_bundle(context.out, {"vae": _vae_figures(context, exported), **figures})
    print(json.dumps(figures, indent=1))


def _vae_figures(context: BuildContext, exported: Bundle) -> Mapping[str, Any]:
    if not context.weights_path("autoencoder").exists():
        kept: Mapping[str, Any] = exported.manifest.quality["vae"]
        return kept
    encoder, _ = context.load_autoencoder("autoencoder")
    vae = Vae(open_engines(exported, plan=EXACT).vae)

    def reconstruct(clips: np.ndarray) -> np.ndarray:
        latents = autoencoder.encode_all(encoder, clips).astype(np.float32).transpose(0, 2, 1, 3, 4)
        return np.stack([np.stack(list(vae.decode(latent[None] * context.latent_scale))) for latent in latents])

    return vae_figures(reconstruct, context.config.evaluated_turns)


PHASES: dict[str, Callable[[BuildContext], None]] = {
    "corpus": train.make_corpus,
    "frames": train.train_frames,
    "autoencoder": train.train_autoencoder,
    "decoder": train.train_decoder,
    "denoiser": train.train_denoiser,
    "predictor": train.train_predictor,
    "adapted": train.adapt_denoiser,
    "adapted_decoder": train.adapt_decoder,
    "readers": train.train_readers,
    "bundle": make_bundle,
    "plans": calibrate_plans,
    "quality": measure_quality,
}
"""Phases in order, by name. One that leaves weights has the name of their file, and is skipped if that exists."""
