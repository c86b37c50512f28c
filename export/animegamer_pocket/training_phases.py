"""The phases that train pocket's networks. Each reads earlier phases' files in the work folder and leaves one file.

A phase that was stopped goes on (`Progress`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import nn

from animegamer_export.build.default_plans import COMPATIBILITY
from animegamer_export.distill.optimiser import exponential_average
from animegamer_export.support.plans import coarse_plan
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder

from .context import BuildContext
from .reader.picture import picture_accuracy, train_picture_reader
from .reader.training import train_reader
from .training import autoencoder, checkpoint, decoder_start, diffusion, prediction

PREDICTED_SHOT_SHARE = 1 / 3
"""The share of generated clips that come from a predicted shot; the others come from the encoder's shot."""


def make_corpus(context: BuildContext) -> None:
    """Renders the games and trains the tokenizer."""
    clips, held_out, first_frames = context.corpus.clips, context.held_out.clips, context.predictor_corpus.clips
    print(f"{len(clips)} clips, {len(held_out)} held out, {len(first_frames)} first frames")
    print(f"vocabulary of {context.vocabulary_size} tokens")


def train_frames(context: BuildContext) -> None:
    """Trains the VAE's encoder and decoder on single frames; leaves frames.pt."""
    phase, seed = context.config.frames_phase, context.config.seed
    torch.manual_seed(seed)
    encoder, decoder = context.new_autoencoder()
    decoder_start.init_latent_norms(decoder)
    progress = context.progress("frames", phase, seed)
    progress.run(autoencoder.train_frames(encoder, decoder, context.corpus.clips, phase, progress))
    checkpoint.save(context.weights_path("frames"), ("encoder", encoder), ("decoder", decoder))


def train_autoencoder(context: BuildContext) -> None:
    """Trains the VAE's encoder and decoder on whole clips; leaves autoencoder.pt with the latent scale."""
    phase, seed = context.config.autoencoder_phase, context.config.seed + 5
    encoder, decoder = context.load_autoencoder("frames")
    decoder_start.init_temporal_taps(decoder)
    progress = context.progress("autoencoder", phase, seed)
    progress.run(autoencoder.train_autoencoder(encoder, decoder, context.corpus.clips, phase, progress))
    spread = float(autoencoder.encode_all(encoder, context.corpus.clips[:256]).astype(np.float32).std())
    checkpoint.save(context.weights_path("autoencoder"), ("encoder", encoder), ("decoder", decoder), scale=1.0 / spread)


def train_decoder(context: BuildContext) -> None:
    """Trains the decoder alone, on latents of the frozen encoder; leaves decoder.pt."""
    phase, seed = context.config.decoder_phase, context.config.seed + 1
    encoder, decoder = context.load_autoencoder("autoencoder")
    ema = exponential_average(decoder)
    progress, latents = context.progress("decoder", phase, seed), context.mean_latents("corpus")
    progress.run(autoencoder.train_decoder(decoder, latents, context.corpus.clips, phase, ema, progress))
    checkpoint.save(context.weights_path("decoder"), ("decoder", ema.module))
    finished = cast(VaeDecoder, ema.module)
    decibels = autoencoder.psnr_db(finished, context.mean_latents("held", 60), context.held_out.clips[:60])
    print("held-out psnr", decibels.mean())


def train_denoiser(context: BuildContext) -> None:
    """Trains the shot encoder and the denoiser together (the paper's phase one); leaves denoiser.pt."""
    phase, seed = context.config.denoiser_phase, context.config.seed + 2
    torch.manual_seed(seed)
    denoiser, shot_encoder = context.new_denoiser()
    both = nn.ModuleList([denoiser, shot_encoder])
    ema = exponential_average(both)
    examples = context.denoiser_examples(context.corpus, context.latents("corpus"))
    progress = context.progress("denoiser", phase, seed)
    progress.run(diffusion.train_denoiser(denoiser, shot_encoder, examples, phase, ema, progress))
    checkpoint.save(context.weights_path("denoiser"), ("both", ema.module))
    held_out = context.denoiser_examples(context.held_out, context.latents("held", 40), 40)
    averaged_denoiser, averaged_encoder = cast(nn.ModuleList, ema.module)
    print("held-out v loss", diffusion.held_out_loss(averaged_denoiser, averaged_encoder, held_out))


def train_predictor(context: BuildContext) -> None:
    """Trains the predictor on the encoder's shots, then on its own rollouts (phase two); leaves predictor.pt."""
    phase, seed = context.config.predictor_phase, context.config.seed + 3
    torch.manual_seed(seed)
    _, shot_encoder = context.load_denoiser("denoiser")
    turns = context.game_turns(context.predictor_corpus, context.encoder_shots(shot_encoder, context.predictor_corpus))
    predictor = context.new_predictor()
    ema = exponential_average(predictor)
    history, prompt_builder = COMPATIBILITY.history_turns, context.prompt_builder
    progress = context.progress("predictor", phase, seed)
    progress.run(prediction.train_predictor(predictor, prompt_builder, turns, history, phase, ema, progress))
    predictor = cast(Predictor, ema.module)
    # At play the history holds predicted shots, which differ from the encoder's.
    phase, games = context.config.rollout_phase, range(min(turns.games, context.config.rollout_games))
    rollouts, _ = prediction.roll_out_games(predictor, prompt_builder, turns, games, history)
    ema = exponential_average(predictor)
    progress = context.progress("rollout", phase, seed + 100)
    progress.run(prediction.train_predictor(predictor, prompt_builder, turns, history, phase, ema, progress, rollouts))
    checkpoint.save(context.weights_path("predictor"), ("predictor", ema.module))


def adapt_denoiser(context: BuildContext) -> None:
    """Trains the denoiser further, half of the time on the predictor's shots (phase three); leaves adapted.pt."""
    phase, seed = context.config.adapt_phase, context.config.seed + 4
    denoiser, shot_encoder = context.load_denoiser("denoiser")
    examples = context.denoiser_examples(context.corpus, context.latents("corpus"))
    examples = replace(examples, predicted=context.predicted_shots())
    ema = exponential_average(nn.ModuleList([denoiser, shot_encoder]))
    progress = context.progress("adapt", phase, seed)
    progress.run(diffusion.train_denoiser(denoiser, shot_encoder, examples, phase, ema, progress))
    checkpoint.save(context.weights_path("adapted"), ("both", ema.module))


def adapt_decoder(context: BuildContext) -> None:
    """Trains the decoder further on latents that the adapted denoiser generates; leaves adapted_decoder.pt."""
    config, seed = context.config, context.config.seed + 6
    denoiser, shot_encoder = context.load_denoiser("adapted")
    latents, rng = context.latents("corpus"), np.random.default_rng(seed)
    probabilities = diffusion.motion_probabilities(latents)
    rows = np.sort(rng.choice(len(latents), min(config.generated_clips, len(latents)), replace=False, p=probabilities))
    # A predicted shot may place the character elsewhere than its clip does, which would teach the decoder to blur, so
    # most shots are the encoder's.
    shots = context.encoder_shots(shot_encoder, context.corpus)[rows]
    is_predicted = rng.random(len(rows)) < PREDICTED_SHOT_SHARE
    shots = np.where(is_predicted[:, None, None], context.predicted_shots()[rows], shots)
    examples = context.denoiser_examples(context.corpus, latents)
    examples = replace(examples, latents=latents[rows], motion_scopes=examples.motion_scopes[rows])
    plan = coarse_plan(10, conditional_below=0.2)
    generated = diffusion.generate_latents(denoiser, shot_encoder, shots, examples, plan, seed).astype(np.float32)
    means = (generated / context.latent_scale).transpose(0, 2, 1, 3, 4).astype(np.float16)
    _, decoder = context.new_autoencoder()
    checkpoint.load(context.weights_path("decoder"), ("decoder", decoder))
    ema, phase = exponential_average(decoder), config.adapt_decoder_phase
    progress = context.progress("adapt_decoder", phase, seed)
    losses = autoencoder.train_decoder(
        decoder,
        context.mean_latents("corpus"),
        context.corpus.clips,
        phase,
        ema,
        progress,
        autoencoder.GeneratedLatents(rows, means),
    )
    progress.run(losses)
    checkpoint.save(context.weights_path("adapted_decoder"), ("decoder", ema.module))


def train_readers(context: BuildContext) -> None:
    """Trains the readers of instructions and of pictures; leaves reader.pt and picture_reader.pt."""
    train_reader(context.weights_path("reader"), context.config.reader_phase, context.config.seed + 7)
    path, phase = context.weights_path("picture_reader"), context.config.picture_reader_phase
    reader = train_picture_reader(path, phase, context.config.seed + 8)
    print("pictures read correctly", picture_accuracy(reader, 10 * context.config.evaluated_turns))
