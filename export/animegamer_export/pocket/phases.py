"""The pocket build: the phases in order, each reading what earlier ones left in the work folder and leaving its own.

corpus (with the tokenizer) -> frames -> autoencoder -> decoder, denoiser -> predictor -> adapt -> adapt_decoder ->
bundle, judge -> plans -> answers, quality.
Knows the order and the files; how a network learns is its own room's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn

from animegamer_export.build.default_plans import COMPATIBILITY
from animegamer_export.onnx_io.write import Precision
from animegamer_export.plan_search import measuring
from animegamer_export.plan_search.command import write_plans
from animegamer_export.plan_search.measuring import SearchBudget
from animegamer_rt.backends.onnxruntime import open_engines
from animegamer_rt.bundle.coarse_plan import coarse_plan
from animegamer_rt.bundle.loader import load
from animegamer_rt.diagnose.selftest import write_record
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.stages.vae import Vae

from . import bundle, quality
from .context import BuildContext
from .evaluation.reconstruction import vae_figures
from .judge import training as judge_training
from .judge.model import load_judge, save_judge
from .judge.scorer import open_scorer
from .training import autoencoder, checkpoint, diffusion, prediction
from .training.optimiser import averaged
from .training.progress import run_phase
from .world.captions import caption
from .world.clips import render_many

DRAWN_AS_PREDICTED = 1 / 3
"""Of the clips that the decoder sees as drawn: by the predicted shot, the others by the true one."""


def make_corpus(shop: BuildContext) -> None:
    """Render the games and train the tokenizer."""
    print(f"{len(shop.corpus.clips)} clips, {len(shop.held.clips)} held out, {len(shop.stories.clips)} first frames")
    print(f"vocabulary of {shop.vocabulary} tokens")


def train_frames(shop: BuildContext) -> None:
    """Encoder and decoder on single frames; leaves frames.pt."""
    if shop.at("frames").exists():
        return
    phase, seed = shop.recipe.frames_phase, shop.recipe.seed
    torch.manual_seed(seed)
    encoder, decoder = shop.new_autoencoder()
    autoencoder.start_plain(decoder)
    run_phase("frames", autoencoder.train_frames(encoder, decoder, shop.corpus.clips, phase, seed), phase.steps)
    checkpoint.save(shop.at("frames"), ("encoder", encoder), ("decoder", decoder))


def train_autoencoder(shop: BuildContext) -> None:
    """Encoder and decoder on whole clips; leaves autoencoder.pt with the latent scale."""
    if shop.at("autoencoder").exists():
        return
    phase, seed = shop.recipe.autoencoder_phase, shop.recipe.seed + 5
    encoder, decoder = shop.new_autoencoder()
    checkpoint.load(shop.at("frames"), ("encoder", encoder), ("decoder", decoder))
    autoencoder.settle_taps(decoder)
    losses = autoencoder.train_autoencoder(encoder, decoder, shop.corpus.clips, phase, seed)
    run_phase("autoencoder", losses, phase.steps)
    spread = float(autoencoder.encode_all(encoder, shop.corpus.clips[:256]).astype(np.float32).std())
    checkpoint.save(shop.at("autoencoder"), ("encoder", encoder), ("decoder", decoder), scale=1.0 / spread)


def train_decoder(shop: BuildContext) -> None:
    """The decoder alone on frozen latents; leaves decoder.pt."""
    if shop.at("decoder").exists():
        return
    phase, seed = shop.recipe.decoder_phase, shop.recipe.seed + 1
    encoder, decoder = shop.new_autoencoder()
    checkpoint.load(shop.at("autoencoder"), ("encoder", encoder), ("decoder", decoder))
    ema = averaged(decoder)
    losses = autoencoder.train_decoder(decoder, shop.means("corpus"), shop.corpus.clips, phase, ema, seed)
    run_phase("decoder", losses, phase.steps)
    checkpoint.save(shop.at("decoder"), ("decoder", ema.module))
    finished = cast(VaeDecoder, ema.module)
    decibels = autoencoder.psnr_db(finished, shop.means("held", 60), shop.held.clips[:60])
    print("held-out psnr", decibels.mean())


def train_denoiser(shop: BuildContext) -> None:
    """Phase one: encoder and denoiser; leaves denoiser.pt."""
    if shop.at("denoiser").exists():
        return
    phase, seed = shop.recipe.denoiser_phase, shop.recipe.seed + 2
    torch.manual_seed(seed)
    denoiser, shot_encoder = shop.new_denoiser()
    both = nn.ModuleList([denoiser, shot_encoder])
    ema = averaged(both)
    examples = shop.examples(shop.corpus, shop.latents("corpus"))
    losses = diffusion.train_denoiser(denoiser, shot_encoder, examples, phase, ema, seed)
    run_phase("denoiser", losses, phase.steps)
    checkpoint.save(shop.at("denoiser"), ("both", ema.module))
    held = shop.examples(shop.held, shop.latents("held", 40), 40)
    drawer, shots = cast(nn.ModuleList, ema.module)
    print("held-out v loss", diffusion.held_out_loss(drawer, shots, held))


def train_predictor(shop: BuildContext) -> None:
    """Phase two: the predictor on true shots, then on games of its own; leaves predictor.pt."""
    if shop.at("predictor").exists():
        return
    phase, seed = shop.recipe.predictor_phase, shop.recipe.seed + 3
    torch.manual_seed(seed)
    _, shot_encoder = shop.load_denoiser("denoiser")
    turns = shop.turns(shop.stories, shop.true_shots(shot_encoder, shop.stories))
    predictor = shop.new_predictor()
    ema = averaged(predictor)
    history, prompt_builder = COMPATIBILITY.history_turns, shop.prompt_builder
    losses = prediction.train_predictor(predictor, prompt_builder, turns, history, phase, ema, seed)
    run_phase("predictor", losses, phase.steps)
    predictor = cast(Predictor, ema.module)
    # True shots say nothing of how its own look; so it goes on over games that it has played.
    phase, games = shop.recipe.played_phase, range(min(turns.games, shop.recipe.played_games))
    played, _ = prediction.predict_games(predictor, prompt_builder, turns, games, history)
    ema = averaged(predictor)
    losses = prediction.train_predictor(predictor, prompt_builder, turns, history, phase, ema, seed + 100, played)
    run_phase("predictor", losses, phase.steps)
    checkpoint.save(shop.at("predictor"), ("predictor", ema.module))


def adapt_denoiser(shop: BuildContext) -> None:
    """Phase three: the denoiser learns to draw from the predictor's shots; leaves adapted.pt."""
    if shop.at("adapted").exists():
        return
    phase, seed = shop.recipe.adapt_phase, shop.recipe.seed + 4
    denoiser, shot_encoder = shop.load_denoiser("denoiser")
    examples = replace(shop.examples(shop.corpus, shop.latents("corpus")), predicted=shop.predicted_shots())
    ema = averaged(nn.ModuleList([denoiser, shot_encoder]))
    losses = diffusion.train_denoiser(denoiser, shot_encoder, examples, phase, ema, seed)
    run_phase("adapt", losses, phase.steps)
    checkpoint.save(shop.at("adapted"), ("both", ema.module))


def adapt_decoder(shop: BuildContext) -> None:
    """The decoder learns to read what the adapted denoiser draws; leaves adapted_decoder.pt."""
    if shop.at("adapted_decoder").exists():
        return
    recipe, seed = shop.recipe, shop.recipe.seed + 6
    denoiser, shot_encoder = shop.load_denoiser("adapted")
    latents, rng = shop.latents("corpus"), np.random.default_rng(seed)
    chances = diffusion.motion_chances(latents)
    rows = np.sort(rng.choice(len(latents), min(recipe.drawn_clips, len(latents)), replace=False, p=chances))
    # A predicted shot may mean another place than its clip's, which would teach the decoder to blur: true ones mostly.
    shots = shop.true_shots(shot_encoder, shop.corpus)[rows]
    shots = np.where((rng.random(len(rows)) < DRAWN_AS_PREDICTED)[:, None, None], shop.predicted_shots()[rows], shots)
    shown = shop.examples(shop.corpus, latents)
    shown = replace(shown, latents=latents[rows], motion_scopes=shown.motion_scopes[rows])
    plan = coarse_plan(10, conditional_below=0.2)
    drawn = diffusion.draw(denoiser, shot_encoder, shots, shown, plan, seed).astype(np.float32)
    means = (drawn / shop.scale).transpose(0, 2, 1, 3, 4).astype(np.float16)
    _, decoder = shop.new_autoencoder()
    checkpoint.load(shop.at("decoder"), ("decoder", decoder))
    ema, phase = averaged(decoder), recipe.adapt_decoder_phase
    both = autoencoder.Drawn(rows, means)
    losses = autoencoder.train_decoder(decoder, shop.means("corpus"), shop.corpus.clips, phase, ema, seed, both)
    run_phase("adapt decoder", losses, phase.steps)
    checkpoint.save(shop.at("adapted_decoder"), ("decoder", ema.module))


def make_bundle(shop: BuildContext) -> None:
    """Export every network into the bundle, with the plans not measured yet."""
    write_networks(shop, shop.out)


def write_networks(shop: BuildContext, out: Path, precision: Precision = "fp16") -> None:
    """The trained networks as a bundle in that folder; fp32 is what precisions are measured against."""
    denoiser, shot_encoder = shop.load_denoiser("adapted")
    bundle.write_bundle(
        out,
        bundle.Networks(
            predictor=shop.load_predictor().cpu(),
            denoiser=denoiser.cpu(),
            encoder=shot_encoder.encoder.cpu(),
            decoder=shop.load_decoder(),
            text_tower=shot_encoder.text_tower.cpu(),
            image_tower=shot_encoder.image_tower,
        ),
        shop.work / "tokenizer",
        provenance={"recipe": shop.recipe.name, "seed": shop.recipe.seed, "latent_scale": shop.scale},
        precision=precision,
    )


def record_answers(shop: BuildContext) -> None:
    """What each part answers, beside the bundle: `animegamer-rt selftest` holds other machines against it."""
    write_record(load(shop.out))


def make_judge(shop: BuildContext) -> None:
    """Train the judge on rendered clips; leaves judge.pt."""
    if shop.at("judge").exists():
        return
    scenes = judge_training.judge_scenes(shop.recipe.judge_clips, shop.recipe.seed)
    judge = judge_training.train_judge(render_many(scenes, 2), scenes, shop.recipe.judge_epochs, shop.recipe.seed)
    save_judge(judge, shop.at("judge"))


def calibrate_plans(shop: BuildContext) -> None:
    """Search plans on held-out instructions, and write them with their figures, the judge's too, into the manifest."""
    recipe, written = shop.recipe, load(shop.out)
    held = [caption(scene) for scene in shop.held.scenes[:: shop.held.turns][: 2 * recipe.plan_turns]]
    scorer = open_scorer(shop.at("judge"))
    budget = SearchBudget(recipe.plan_rows, recipe.plan_turns)
    points = measuring.curve(written, open_engines(written, eight_bit=True), held, budget, scorer=scorer)
    write_plans(written, measuring.choose(points))


def measure_quality(shop: BuildContext) -> None:
    """Measure the bundle as it is played: figures into its manifest, contact sheets into the work folder."""
    recipe, judge = shop.recipe, load_judge(shop.at("judge"))
    encoder, decoder = shop.new_autoencoder()
    checkpoint.load(shop.at("autoencoder"), ("encoder", encoder), ("decoder", decoder))
    written = load(shop.out)
    engines = open_engines(written, eight_bit=True)

    def reconstruct(clips: np.ndarray) -> np.ndarray:
        latents = autoencoder.encode_all(encoder, clips).astype(np.float32).transpose(0, 2, 1, 3, 4)
        vae = Vae(engines.vae)
        return np.stack([np.stack(list(vae.decode(latent[None] * shop.scale))) for latent in latents])

    figures = {
        "vae": vae_figures(reconstruct, recipe.judged_turns),
        **quality.measure(
            written,
            engines,
            judge,
            recipe.judged_plans,
            recipe.judged_turns,
            recipe.judged_games,
            shop.work / "pictures",
        ),
    }
    bundle.update_bundle(shop.out, figures)
    print(json.dumps(figures, indent=1))


PHASES: dict[str, Callable[[BuildContext], None]] = {
    "corpus": make_corpus,
    "frames": train_frames,
    "autoencoder": train_autoencoder,
    "decoder": train_decoder,
    "denoiser": train_denoiser,
    "predictor": train_predictor,
    "adapt": adapt_denoiser,
    "adapt_decoder": adapt_decoder,
    "bundle": make_bundle,
    "judge": make_judge,
    "plans": calibrate_plans,
    "answers": record_answers,
    "quality": measure_quality,
}
