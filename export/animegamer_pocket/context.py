"""The work folder of one pocket build: corpora, networks, latents and shots, created or loaded on first use."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from animegamer_export.build.default_plans import COMPATIBILITY, WINDOW_TOKENS
from animegamer_export.distill.optimiser import PhaseConfig
from animegamer_export.distill.progress import Progress
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.encoder import Encoder
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.stages.prompt import PromptBuilder
from animegamer_rt.state.game import motion_scope

from .config import BuildConfig
from .tokenizer import train_tokenizer
from .towers import TextTower, pad_text
from .training import autoencoder, checkpoint, diffusion, prediction
from .training.corpus import Corpus, build_corpus
from .training.diffusion import DenoiserExamples, ShotEncoder
from .training.vae_encoder import VaeEncoder
from .world.scene import ADVERBS, Scene, scene_labels, strengths

MOVED_WEIGHT = 2.0
"""Added to the weight of a turn that starts at another spot than the turn before (others have weight 1)."""
HARD_WEIGHT = 1.5
"""Added for two characters, and for lying down: their shots are the hardest to predict (docs/LOG.md)."""

Split: TypeAlias = Literal["corpus", "held"]
"""Training games or held-out ones. The names are part of file names in the work folder."""


class BuildContext:
    """One build: its configuration, work folder, output folder and device."""

    def __init__(self, config: BuildConfig, work: Path, out: Path, device: str = "cpu") -> None:
        self.config, self.work, self.out, self.device = config, work, out, torch.device(device)

    def weights_path(self, name: str) -> Path:
        """The file of a phase's weights."""
        return self.work / f"{name}.pt"

    def progress(self, name: str, phase: PhaseConfig, seed: int) -> Progress:
        """The steps of a phase, with its checkpoint in the work folder."""
        return Progress(name, phase.steps, self.work / f"{name}.state", seed)

    @cached_property
    def corpus(self) -> Corpus:
        """The training games, all frames rendered."""
        config = self.config
        return build_corpus(self.work / "corpus", config.games, config.turns_per_game, config.seed)

    @cached_property
    def held_out(self) -> Corpus:
        """Games that end with a combination excluded from training."""
        config = self.config
        games, turns = config.held_out_games, config.turns_per_game
        return build_corpus(self.work / "held", games, turns, config.seed + 1, train=False)

    @cached_property
    def predictor_corpus(self) -> Corpus:
        """Many more games for the predictor: instructions and first frames only."""
        config = self.config
        games, turns = config.predictor_games, config.turns_per_game
        return build_corpus(self.work / "stories", games, turns, config.seed + 2, frames=1)

    @cached_property
    def vocabulary_size(self) -> int:
        """Trains the tokenizer on the training games' instructions and captions; returns the vocabulary size."""
        texts = [*self.corpus.instructions, *self.corpus.captions]
        return train_tokenizer(texts, self.config.vocabulary_pieces, self.work / "tokenizer")

    @cached_property
    def prompt_builder(self) -> PromptBuilder:
        """The runtime's prompt builder with the pocket tokenizer."""
        assert self.vocabulary_size
        files = self.work / "tokenizer"
        width = self.config.denoiser.hidden
        return PromptBuilder(
            files / "tokenizer.model", files / "added_tokens.json", COMPATIBILITY, width, WINDOW_TOKENS
        )

    def new_autoencoder(self) -> tuple[VaeEncoder, VaeDecoder]:
        """An untrained VAE encoder and decoder, in channels-last layout, which is the fastest for convolutions."""
        encoder: VaeEncoder = VaeEncoder().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        decoder: VaeDecoder = VaeDecoder(self.config.vae).to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
        return encoder.to(self.device), decoder.to(self.device)

    def load_autoencoder(self, name: str) -> tuple[VaeEncoder, VaeDecoder]:
        """The VAE encoder and decoder of a phase ("frames" or "autoencoder")."""
        encoder, decoder = self.new_autoencoder()
        checkpoint.load(self.weights_path(name), ("encoder", encoder), ("decoder", decoder))
        return encoder, decoder

    def new_denoiser(self) -> tuple[Denoiser, ShotEncoder]:
        """An untrained denoiser and shot encoder."""
        tower = TextTower(self.vocabulary_size, self.config.text_width)
        shot_encoder = ShotEncoder(tower, Encoder(self.config.encoder)).to(self.device)
        return Denoiser(self.config.denoiser).to(self.device), shot_encoder

    def new_predictor(self) -> Predictor:
        """An untrained predictor."""
        return Predictor(self.config.predictor_size(self.vocabulary_size)).to(self.device)

    def _corpus_of(self, split: Split) -> Corpus:
        return self.corpus if split == "corpus" else self.held_out

    def mean_latents(self, split: Split, rows: int | None = None) -> np.ndarray:
        """The frozen encoder's mean latents, float16 [N, 16, 5, h, w]; cached if all rows are requested."""
        path = self.work / f"latents-{split}.npy"
        if path.exists():
            means: np.ndarray = np.load(path)[:rows]
            return means
        encoder, _ = self.load_autoencoder("autoencoder")
        means = autoencoder.encode_all(encoder, self._corpus_of(split).clips[:rows])
        if rows is None:
            np.save(path, means)
        return means

    @cached_property
    def latent_scale(self) -> float:
        """The factor that gives the mean latents unit variance."""
        return float(str(checkpoint.load(self.weights_path("autoencoder"))["scale"]))

    def latents(self, split: Split, rows: int | None = None) -> np.ndarray:
        """Unit-variance latents, float16 [N, 5, 16, h, w]."""
        means = self.mean_latents(split, rows).astype(np.float32)
        return (means * self.latent_scale).transpose(0, 2, 1, 3, 4).astype(np.float16)

    def motion_ids(self, scenes: list[Scene]) -> np.ndarray:
        """Token ids of the scenes' motion texts for the text tower, int64 [N, 30]."""
        texts = [f"{ADVERBS[scene.level - 1]} {scene.motion}" for scene in scenes]
        return np.asarray([pad_text(self.prompt_builder.encode_text(text)) for text in texts], np.int64)

    def denoiser_examples(self, corpus: Corpus, latents: np.ndarray, rows: int | None = None) -> DenoiserExamples:
        """The training examples of the first `rows` clips of a corpus."""
        scenes = corpus.scenes[:rows]
        scopes = [motion_scope(strengths(scene), COMPATIBILITY.motion_table) for scene in scenes]
        pictures = np.ascontiguousarray(corpus.clips[:rows, 0])
        return DenoiserExamples(latents[:rows], np.asarray(scopes, np.float32), self.motion_ids(scenes), pictures)

    @torch.no_grad()
    def encoder_shots(self, shot_encoder: ShotEncoder, corpus: Corpus) -> np.ndarray:
        """The encoder's shot of every turn, float16 [N, 226, D]."""
        ids, shots = self.motion_ids(corpus.scenes), np.empty((0,), np.float16)
        for start in range(0, len(ids), 64):
            pictures = diffusion.to_pictures(corpus.clips[start : start + 64, 0], self.device)
            motion_ids = torch.from_numpy(ids[start : start + 64]).to(self.device)
            part = shot_encoder(motion_ids, pictures).half().cpu().numpy()
            if start == 0:
                shots = np.empty((len(ids), *part.shape[1:]), np.float16)  # gigabytes: never twice
            shots[start : start + len(part)] = part
        return shots

    def predicted_shots(self) -> np.ndarray:
        """The predictor's shot of every turn of a corpus, after its own earlier shots: float16 [N, 226, D]; cached."""
        path = self.work / "predicted.npy"
        if not path.exists():
            _, shot_encoder = self.load_denoiser("denoiser")
            turns = self.game_turns(self.corpus, self.encoder_shots(shot_encoder, self.corpus))
            history, games = COMPATIBILITY.history_turns, range(turns.games)
            shots, right = prediction.roll_out_games(self.load_predictor(), self.prompt_builder, turns, games, history)
            error = float(np.mean((shots.astype(np.float32) - turns.shots.astype(np.float32)) ** 2))
            print(f"predicted shots: mean squared error {error:.4f}, motion level correct {right:.3f}")
            np.save(path, shots)
        predicted: np.ndarray = np.load(path, mmap_mode="r")
        return predicted

    def game_turns(self, corpus: Corpus, shots: np.ndarray) -> prediction.GameTurns:
        """The turns of a corpus as training data for the predictor; shots: float16 [N, 226, D]."""
        labels = np.asarray([scene_labels(scene) for scene in corpus.scenes], np.float32)
        hard = [scene.is_pair + (scene.motion == "lie down") for scene in corpus.scenes]
        weights = 1.0 + MOVED_WEIGHT * np.asarray(corpus.moved) + HARD_WEIGHT * np.asarray(hard)
        states = [strengths(scene) for scene in corpus.scenes]
        return prediction.GameTurns(corpus.captions, states, shots, labels, weights, corpus.turns)

    def load_decoder(self) -> VaeDecoder:
        """The trained decoder. Its size holds the measured latent scale."""
        decoder = VaeDecoder(replace(self.config.vae, scale=self.latent_scale))
        checkpoint.load(self.weights_path("adapted_decoder"), ("decoder", decoder))
        return decoder.eval()

    def load_denoiser(self, name: str) -> tuple[Denoiser, ShotEncoder]:
        """The denoiser and shot encoder of a phase ("denoiser" or "adapted")."""
        denoiser, shot_encoder = self.new_denoiser()
        checkpoint.load(self.weights_path(name), ("both", nn.ModuleList([denoiser, shot_encoder])))
        return denoiser, shot_encoder

    def load_predictor(self) -> Predictor:
        """The trained predictor."""
        predictor = self.new_predictor()
        checkpoint.load(self.weights_path("predictor"), ("predictor", predictor))
        return predictor
