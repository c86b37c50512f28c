"""The pocket build: the phases in order, each reading what earlier ones left in the work folder and leaving its own.

corpus -> tokenizer -> autoencoder -> decoder, denoiser -> predictor -> adapt -> bundle. Knows the order and the files;
how a network learns is its own room's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from animegamer_rt.backends.onnxruntime import open_engines
from animegamer_rt.bundle import load
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.encoder import Encoder
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.prompt import Prompter
from animegamer_rt.state import GameState, motion_scope
from animegamer_rt.vae import Vae
from torch import nn

from animegamer_export.pocket import (
    autoencoder,
    bundle,
    diffusion,
    judge_training,
    prediction,
    quality,
    training,
)
from animegamer_export.pocket.captions import caption
from animegamer_export.pocket.corpus import Corpus, build
from animegamer_export.pocket.dataset import render_many
from animegamer_export.pocket.diffusion import Examples, ShotEncoder
from animegamer_export.pocket.frame_encoder import FrameEncoder
from animegamer_export.pocket.judge import load_judge, save_judge
from animegamer_export.pocket.recipe import Recipe
from animegamer_export.pocket.reconstruction import vae_figures
from animegamer_export.pocket.scene import ADVERBS, Scene, strengths
from animegamer_export.pocket.tokenizer import train_tokenizer
from animegamer_export.pocket.towers import TextTower, pad_text

COMPATIBILITY, WINDOW_TOKENS = bundle.COMPATIBILITY, bundle.WINDOW_TOKENS


class Workshop:
    """The work folder of one build: what has been made, loaded when asked for."""

    def __init__(self, recipe: Recipe, work: Path, out: Path) -> None:
        self.recipe, self.work, self.out = recipe, work, out

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
    def prompter(self) -> Prompter:
        """The runtime's own prompt writer over the pocket tokenizer."""
        assert self.vocabulary
        files = self.work / "tokenizer"
        width = self.recipe.denoiser.hidden
        return Prompter(files / "tokenizer.model", files / "added_tokens.json", COMPATIBILITY, width, WINDOW_TOKENS)

    def new_autoencoder(self) -> tuple[FrameEncoder, VaeDecoder]:
        """Fresh encoder and decoder, in the memory layout that convolutions like."""
        encoder: FrameEncoder = FrameEncoder().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        decoder: VaeDecoder = VaeDecoder(self.recipe.vae).to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
        return encoder, decoder

    def new_denoiser(self) -> tuple[Denoiser, ShotEncoder]:
        """Fresh denoiser and shot encoder."""
        tower = TextTower(self.vocabulary, self.recipe.text_width)
        return Denoiser(self.recipe.denoiser), ShotEncoder(tower, Encoder(self.recipe.encoder))

    def new_predictor(self) -> Predictor:
        """A fresh predictor."""
        shape = self.recipe.predictor
        size = PredictorSize(
            hidden=shape.hidden,
            layers=shape.layers,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            mlp=shape.mlp,
            vocabulary=self.vocabulary,
            shot_width=self.recipe.denoiser.hidden,
        )
        return Predictor(size)

    def latents(self, corpus: Corpus) -> tuple[np.ndarray, float]:
        """Unit-variance latents float16 [N, 5, 16, h, w] of a corpus, and the scale that made them so."""
        encoder, decoder = self.new_autoencoder()
        facts = training.load(self.at("autoencoder"), ("encoder", encoder), ("decoder", decoder))
        scale = float(str(facts["scale"]))
        means = autoencoder.encode_all(encoder, corpus.clips).astype(np.float32) * scale
        return means.transpose(0, 2, 1, 3, 4).astype(np.float16), scale

    def motion_ids(self, scenes: list[Scene]) -> np.ndarray:
        """The motion texts as the text tower reads them: int64 [N, 30]."""
        texts = [f"{ADVERBS[scene.level - 1]} {scene.motion}" for scene in scenes]
        return np.asarray([pad_text(self.prompter.words(text)) for text in texts], np.int64)

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
            pictures = diffusion.to_pictures(corpus.clips[start : start + 64, 0])
            parts.append(shot_encoder(torch.from_numpy(ids[start : start + 64]), pictures).half().numpy())
        return np.concatenate(parts)

    def turns(self, corpus: Corpus, shots: np.ndarray) -> prediction.Turns:
        """A corpus as the predictor sees it."""
        return prediction.Turns(corpus.instructions, [strengths(s) for s in corpus.scenes], shots, corpus.turns)


def make_corpus(shop: Workshop) -> None:
    """Render the games and train the tokenizer."""
    print(f"{len(shop.corpus.clips)} clips, {len(shop.held.clips)} held out, {len(shop.stories.clips)} first frames")
    print(f"vocabulary of {shop.vocabulary} tokens")


def train_frames(shop: Workshop) -> None:
    """Encoder and decoder on single frames; leaves frames.pt."""
    if shop.at("frames").exists():
        return
    phase, seed = shop.recipe.frames_phase, shop.recipe.seed
    torch.manual_seed(seed)
    encoder, decoder = shop.new_autoencoder()
    autoencoder.start_plain(decoder)
    training.run("frames", autoencoder.train_frames(encoder, decoder, shop.corpus.clips, phase, seed), phase.steps)
    training.save(shop.at("frames"), ("encoder", encoder), ("decoder", decoder))


def train_autoencoder(shop: Workshop) -> None:
    """Encoder and decoder on whole clips; leaves autoencoder.pt with the latent scale."""
    if shop.at("autoencoder").exists():
        return
    phase, seed = shop.recipe.autoencoder_phase, shop.recipe.seed + 5
    encoder, decoder = shop.new_autoencoder()
    training.load(shop.at("frames"), ("encoder", encoder), ("decoder", decoder))
    autoencoder.settle_taps(decoder)
    losses = autoencoder.train_autoencoder(encoder, decoder, shop.corpus.clips, phase, seed)
    training.run("autoencoder", losses, phase.steps)
    spread = float(autoencoder.encode_all(encoder, shop.corpus.clips[:256]).astype(np.float32).std())
    training.save(shop.at("autoencoder"), ("encoder", encoder), ("decoder", decoder), scale=1.0 / spread)


def train_decoder(shop: Workshop) -> None:
    """The decoder alone on frozen latents; leaves decoder.pt."""
    if shop.at("decoder").exists():
        return
    phase, seed = shop.recipe.decoder_phase, shop.recipe.seed + 1
    encoder, decoder = shop.new_autoencoder()
    training.load(shop.at("autoencoder"), ("encoder", encoder), ("decoder", decoder))
    ema = training.averaged(decoder)
    latents = autoencoder.encode_all(encoder, shop.corpus.clips)
    losses = autoencoder.train_decoder(decoder, latents, shop.corpus.clips, phase, ema, seed)
    training.run("decoder", losses, phase.steps)
    training.save(shop.at("decoder"), ("decoder", ema.module))
    held = shop.held.clips[:60]
    print("held-out psnr", autoencoder.psnr_db(ema.module, autoencoder.encode_all(encoder, held), held).mean())


def load_autoencoder(shop: Workshop) -> tuple[FrameEncoder, VaeDecoder, dict[str, object]]:
    """The frozen encoder, the finished decoder with its scale, and the facts kept beside them."""
    encoder, decoder = shop.new_autoencoder()
    facts = training.load(shop.at("autoencoder"), ("encoder", encoder), ("decoder", decoder))
    scaled = VaeDecoder(replace(shop.recipe.vae, scale=float(str(facts["scale"]))))
    training.load(shop.at("decoder"), ("decoder", scaled))
    return encoder, scaled.eval(), facts


def train_denoiser(shop: Workshop) -> None:
    """Phase one: encoder and denoiser; leaves denoiser.pt."""
    if shop.at("denoiser").exists():
        return
    phase, seed = shop.recipe.denoiser_phase, shop.recipe.seed + 2
    torch.manual_seed(seed)
    denoiser, shot_encoder = shop.new_denoiser()
    both = nn.ModuleList([denoiser, shot_encoder])
    ema = training.averaged(both)
    latents, scale = shop.latents(shop.corpus)
    losses = diffusion.train_denoiser(denoiser, shot_encoder, shop.examples(shop.corpus, latents), phase, ema, seed)
    training.run("denoiser", losses, phase.steps)
    training.save(shop.at("denoiser"), ("both", ema.module), scale=scale)
    held, _ = shop.latents(shop.held)
    print("held-out v loss", diffusion.held_out_loss(ema.module[0], ema.module[1], shop.examples(shop.held, held, 40)))


def load_denoiser(shop: Workshop, name: str) -> tuple[Denoiser, ShotEncoder]:
    """The denoiser and shot encoder of a phase ("denoiser" or "adapted")."""
    denoiser, shot_encoder = shop.new_denoiser()
    training.load(shop.at(name), ("both", nn.ModuleList([denoiser, shot_encoder])))
    return denoiser, shot_encoder


def train_predictor(shop: Workshop) -> None:
    """Phase two: the predictor on true shots; leaves predictor.pt."""
    if shop.at("predictor").exists():
        return
    phase, seed = shop.recipe.predictor_phase, shop.recipe.seed + 3
    torch.manual_seed(seed)
    _, shot_encoder = load_denoiser(shop, "denoiser")
    turns = shop.turns(shop.stories, shop.true_shots(shot_encoder, shop.stories))
    predictor = shop.new_predictor()
    ema = training.averaged(predictor)
    history = COMPATIBILITY.history_turns
    losses = prediction.train_predictor(predictor, shop.prompter, turns, history, phase, ema, seed)
    training.run("predictor", losses, phase.steps)
    training.save(shop.at("predictor"), ("predictor", ema.module))


def load_predictor(shop: Workshop) -> Predictor:
    """The trained predictor."""
    predictor = shop.new_predictor()
    training.load(shop.at("predictor"), ("predictor", predictor))
    return predictor


def adapt_denoiser(shop: Workshop) -> None:
    """Phase three: the denoiser learns to draw from the predictor's shots; leaves adapted.pt."""
    if shop.at("adapted").exists():
        return
    phase, seed = shop.recipe.adapt_phase, shop.recipe.seed + 4
    denoiser, shot_encoder = load_denoiser(shop, "denoiser")
    games = range(min(shop.corpus.games, shop.recipe.adapt_games))
    turns = shop.turns(shop.corpus, shop.true_shots(shot_encoder, shop.corpus))
    history = COMPATIBILITY.history_turns
    shots, right = prediction.predict_games(load_predictor(shop), shop.prompter, turns, games, history)
    error = float(np.mean((shots.astype(np.float32) - turns.shots[: len(shots)].astype(np.float32)) ** 2))
    print(f"predicted shots: mean squared error {error:.4f}, motion level right {right:.3f}")
    latents, scale = shop.latents(shop.corpus)
    examples = replace(shop.examples(shop.corpus, latents, len(shots)), predicted=shots)
    ema = training.averaged(nn.ModuleList([denoiser, shot_encoder]))
    losses = diffusion.train_denoiser(denoiser, shot_encoder, examples, phase, ema, seed)
    training.run("adapt", losses, phase.steps)
    training.save(shop.at("adapted"), ("both", ema.module), scale=scale)


def make_bundle(shop: Workshop) -> None:
    """Export every network into the bundle, with the plans not measured yet."""
    denoiser, shot_encoder = load_denoiser(shop, "adapted")
    _, decoder, facts = load_autoencoder(shop)
    bundle.write_bundle(
        shop.out,
        bundle.Networks(
            predictor=load_predictor(shop),
            denoiser=denoiser,
            encoder=shot_encoder.encoder,
            decoder=decoder,
            text_tower=shot_encoder.text_tower,
            image_tower=shot_encoder.image_tower,
        ),
        shop.work / "tokenizer",
        provenance={"recipe": shop.recipe.name, "seed": shop.recipe.seed, "latent_scale": facts["scale"]},
    )


def make_judge(shop: Workshop) -> None:
    """Train the judge on rendered clips; leaves judge.pt."""
    if shop.at("judge").exists():
        return
    scenes = judge_training.judge_scenes(shop.recipe.judge_clips, shop.recipe.seed)
    judge = judge_training.train_judge(render_many(scenes, 2), scenes, shop.recipe.judge_epochs, shop.recipe.seed)
    save_judge(judge, shop.at("judge"))


def measure_quality(shop: Workshop) -> None:
    """Measure the bundle as it is played; writes the figures into its manifest and contact sheets into the work folder."""
    recipe, judge = shop.recipe, load_judge(shop.at("judge"))
    encoder, _, facts = load_autoencoder(shop)
    written = load(shop.out)
    engines = open_engines(written)
    plans = bundle.default_plans()
    held = [caption(scene) for scene in shop.held.scenes[:: shop.held.turns][: recipe.fidelity_turns]]
    fidelity = quality.fidelities(written, engines, [name for name in plans if name != "exact"], held)

    def reconstruct(clips: np.ndarray) -> np.ndarray:
        latents = autoencoder.encode_all(encoder, clips).astype(np.float32).transpose(0, 2, 1, 3, 4)
        vae = Vae(engines.vae)
        return np.stack([np.stack(list(vae.decode(latent[None] * float(str(facts["scale"]))))) for latent in latents])

    figures = {
        "vae": vae_figures(reconstruct, recipe.judged_turns),
        **quality.measure(
            written, engines, judge, recipe.judged_plans, recipe.judged_turns, recipe.judged_games, shop.work / "pictures"
        ),
    }
    bundle.update_bundle(shop.out, plans=plans, fidelity=fidelity, quality=figures)
    print(json.dumps({"quality": figures, "fidelity": fidelity}, indent=1))


PHASES: dict[str, Callable[[Workshop], None]] = {
    "corpus": make_corpus,
    "frames": train_frames,
    "autoencoder": train_autoencoder,
    "decoder": train_decoder,
    "denoiser": train_denoiser,
    "predictor": train_predictor,
    "adapt": adapt_denoiser,
    "bundle": make_bundle,
    "judge": make_judge,
    "quality": measure_quality,
}
