"""The work folder of one pocket build: corpora, fresh and trained networks, latents and shots, made or read when asked.

Knows what lies where and what fits together; the order of the phases is `build`'s.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from animegamer_export.build.default_plans import COMPATIBILITY, WINDOW_TOKENS
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.encoder import Encoder
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.stages.prompt import PromptBuilder
from animegamer_rt.state.game import GameState, motion_scope

from .config import Recipe
from .tokenizer import train_tokenizer
from .towers import TextTower, pad_text
from .training import autoencoder, checkpoint, diffusion, prediction
from .training.corpus import Corpus, build
from .training.diffusion import Examples, ShotEncoder
from .training.frame_encoder import FrameEncoder
from .world.scene import ADVERBS, Scene, facts, strengths

SHIFTED_WEIGHT = 2.0
"""How much more often a turn is learned from that starts elsewhere than the one before."""


class BuildContext:
    """The work folder of one build: what has been made, loaded when asked for."""

    def __init__(self, recipe: Recipe, work: Path, out: Path, device: str = "cpu") -> None:
        self.recipe, self.work, self.out, self.device = recipe, work, out, torch.device(device)

    def at(self, name: str) -> Path:
        """Where a phase's weights lie."""
        return self.work / f"{name}.pt"

    @cached_property
    def corpus(self) -> Corpus:
        """The training games, rendered whole."""
        r = self.recipe
        return build(self.work / "corpus", r.games, r.turns_per_game, r.seed)

    @cached_property
    def held(self) -> Corpus:
        """Games that hold combinations never trained on."""
        r = self.recipe
        return build(self.work / "held", r.held_out_games, r.turns_per_game, r.seed + 1, train=False)

    @cached_property
    def stories(self) -> Corpus:
        """Many more games as text and first frames, for the predictor."""
        r = self.recipe
        return build(self.work / "stories", r.stories, r.turns_per_game, r.seed + 2, frames=1)

    @cached_property
    def vocabulary(self) -> int:
        """Train the tokenizer on the training games' instructions; gives back the vocabulary's size."""
        return train_tokenizer(self.corpus.instructions, self.recipe.vocabulary_pieces, self.work / "tokenizer")

    @cached_property
    def prompt_builder(self) -> PromptBuilder:
        """The runtime's own prompt writer over the pocket tokenizer."""
        assert self.vocabulary
        files = self.work / "tokenizer"
        width = self.recipe.denoiser.hidden
        return PromptBuilder(
            files / "tokenizer.model", files / "added_tokens.json", COMPATIBILITY, width, WINDOW_TOKENS
        )

    def new_autoencoder(self) -> tuple[FrameEncoder, VaeDecoder]:
        """Fresh encoder and decoder, in the memory layout that convolutions like."""
        encoder: FrameEncoder = FrameEncoder().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        decoder: VaeDecoder = VaeDecoder(self.recipe.vae).to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
        return encoder.to(self.device), decoder.to(self.device)

    def new_denoiser(self) -> tuple[Denoiser, ShotEncoder]:
        """Fresh denoiser and shot encoder."""
        tower = TextTower(self.vocabulary, self.recipe.text_width)
        shot_encoder = ShotEncoder(tower, Encoder(self.recipe.encoder)).to(self.device)
        return Denoiser(self.recipe.denoiser).to(self.device), shot_encoder

    def new_predictor(self) -> Predictor:
        """A fresh predictor."""
        return Predictor(self.recipe.predictor_size(self.vocabulary)).to(self.device)

    def means(self, which: str, rows: int | None = None) -> np.ndarray:
        """The frozen encoder's mean latents float16 [N, 16, 5, h, w] of "corpus" or "held", kept once all are made."""
        kept = self.work / f"latents-{which}.npy"
        if kept.exists():
            means: np.ndarray = np.load(kept)[:rows]
            return means
        encoder, decoder = self.new_autoencoder()
        checkpoint.load(self.at("autoencoder"), ("encoder", encoder), ("decoder", decoder))
        means = autoencoder.encode_all(encoder, getattr(self, which).clips[:rows])
        if rows is None:
            np.save(kept, means)
        return means

    @cached_property
    def scale(self) -> float:
        """What makes the mean latents' variance one."""
        encoder, decoder = self.new_autoencoder()
        return float(str(checkpoint.load(self.at("autoencoder"), ("encoder", encoder), ("decoder", decoder))["scale"]))

    def latents(self, which: str, rows: int | None = None) -> np.ndarray:
        """Unit-variance latents float16 [N, 5, 16, h, w] of "corpus" or "held"."""
        means = self.means(which, rows).astype(np.float32)
        return (means * self.scale).transpose(0, 2, 1, 3, 4).astype(np.float16)

    def motion_ids(self, scenes: list[Scene]) -> np.ndarray:
        """The motion texts as the text tower reads them: int64 [N, 30]."""
        texts = [f"{ADVERBS[scene.level - 1]} {scene.motion}" for scene in scenes]
        return np.asarray([pad_text(self.prompt_builder.words(text)) for text in texts], np.int64)

    def examples(self, corpus: Corpus, latents: np.ndarray, rows: int | None = None) -> Examples:
        """What the denoiser learns from, for the first `rows` clips of a corpus."""
        scenes = corpus.scenes[:rows]
        scopes = [motion_scope(GameState(*strengths(scene)), COMPATIBILITY.motion_table) for scene in scenes]
        pictures = np.ascontiguousarray(corpus.clips[:rows, 0])
        return Examples(latents[:rows], np.asarray(scopes, np.float32), self.motion_ids(scenes), pictures)

    @torch.no_grad()
    def true_shots(self, shot_encoder: ShotEncoder, corpus: Corpus) -> np.ndarray:
        """The encoder's shot of every turn: float16 [N, 226, D]."""
        ids, parts = self.motion_ids(corpus.scenes), []
        for start in range(0, len(ids), 64):
            pictures = diffusion.to_pictures(corpus.clips[start : start + 64, 0], self.device)
            motion_ids = torch.from_numpy(ids[start : start + 64]).to(self.device)
            parts.append(shot_encoder(motion_ids, pictures).half().cpu().numpy())
        return np.concatenate(parts)

    def predicted_shots(self) -> np.ndarray:
        """The predictor's shot of every turn of the corpus, on its own earlier ones: float16 [N, 226, D], kept."""
        kept = self.work / "predicted.npy"
        if not kept.exists():
            _, shot_encoder = self.load_denoiser("denoiser")
            turns = self.turns(self.corpus, self.true_shots(shot_encoder, self.corpus))
            history, games = COMPATIBILITY.history_turns, range(turns.games)
            shots, right = prediction.predict_games(self.load_predictor(), self.prompt_builder, turns, games, history)
            error = float(np.mean((shots.astype(np.float32) - turns.shots.astype(np.float32)) ** 2))
            print(f"predicted shots: mean squared error {error:.4f}, motion level right {right:.3f}")
            np.save(kept, shots)
        predicted: np.ndarray = np.load(kept, mmap_mode="r")
        return predicted

    def turns(self, corpus: Corpus, shots: np.ndarray) -> prediction.Turns:
        """A corpus as the predictor sees it."""
        shown = np.asarray([facts(scene) for scene in corpus.scenes], np.float32)
        weights = np.asarray([1.0 + SHIFTED_WEIGHT * shifted for shifted in corpus.shifted])
        states = [strengths(scene) for scene in corpus.scenes]
        return prediction.Turns(corpus.instructions, states, shots, shown, weights, corpus.turns)

    def load_decoder(self) -> VaeDecoder:
        """The finished decoder, with the latent scale that training measured."""
        decoder = VaeDecoder(replace(self.recipe.vae, scale=self.scale))
        checkpoint.load(self.at("adapted_decoder"), ("decoder", decoder))
        return decoder.eval()

    def load_denoiser(self, name: str) -> tuple[Denoiser, ShotEncoder]:
        """The denoiser and shot encoder of a phase ("denoiser" or "adapted")."""
        denoiser, shot_encoder = self.new_denoiser()
        checkpoint.load(self.at(name), ("both", nn.ModuleList([denoiser, shot_encoder])))
        return denoiser, shot_encoder

    def load_predictor(self) -> Predictor:
        """The trained predictor."""
        predictor = self.new_predictor()
        checkpoint.load(self.at("predictor"), ("predictor", predictor))
        return predictor
