"""A tiny bundle and tiny engines with the real interfaces, for tests: whole turns in milliseconds, no training.

`write_bundle(folder)` writes a bundle whose ONNX parts are a few operators each but keep the contract's names, shapes
and arithmetic. `fake_engines()` are numpy parts behind the same contract, which can be told what to answer.
"""

from __future__ import annotations

import functools
import io
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import sentencepiece
from tiny_parts import PARTS

from animegamer_rt.backends.interface import Engines, FloatArray, Frames, IntArray, Prefill, TokenBatch
from animegamer_rt.bundle import denoise_plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Compatibility, Geometry, Manifest, Part, PlanEntry, World
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.noise import AnyNoise, as_array
from animegamer_rt.state.game import STRENGTH_VALUES

GEOMETRY = Geometry(height=16, width=24, latent_height=2, latent_width=3, shot_width=8, window_tokens=2048)
WORLD = World(
    characters=("Mia", "Tobo"),
    motions=("wave", "run", "fly on a kite"),
    adverbs=("gently", "quickly"),
    places=("day town", "night forest"),
    examples=("Character: Mia; Motion: gently wave; Background: day town.", "Tobo runs to the forest."),
)
PLANS = {"exact": 6, "balanced": 3}


@functools.cache
def tokenizer_model() -> bytes:
    """A sentencepiece model with byte fallback, of about 300 pieces."""
    text = [*WORLD.examples, "Character: Tobo; Motion: quickly run; Background: night forest.", "a kite flies"] * 8
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_writer=model,
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=9,
        bos_id=1,
        eos_id=2,
        unk_id=0,
    )
    return model.getvalue()


def added_tokens(first: int) -> dict[str, int]:
    """The tokens that every tokenizer adds to its sentencepiece model, ids from `first` on."""
    names = [f"<frame_{n:05d}>" for n in range(256)] + ["<img>", "</img>", "<frame>", "</frame>"]
    names += [f"<Strength_{strength}>" for strength in STRENGTH_VALUES]
    names += [f"<{slash}{tag}>" for tag in ("ML", "SC", "ET", "ST", "TURN") for slash in ("", "/")]
    return {name: first + n for n, name in enumerate(names)}


def vocabulary() -> int:
    """Size of the tiny vocabulary, added tokens included."""
    words = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_model())
    return max(added_tokens(words.get_piece_size()).values()) + 1


def plan_with_reuse(steps: int) -> denoise_plan.DenoisePlan:
    """An even plan in which every second step guides by the difference of the pair before."""
    branches: list[denoise_plan.Branch] = ["pair" if k % 2 == 0 else "reuse" for k in range(steps)]
    return denoise_plan.build_plan(even_timesteps(steps), branches=branches)


def write_bundle(folder: Path, *, compatibility: Compatibility | None = None, name: str = "tiny") -> Bundle:
    """Writes a whole bundle of a few kilobytes and returns it; it plays in milliseconds."""
    folder.mkdir(parents=True, exist_ok=True)
    words = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_model())
    (folder / "tokenizer.model").write_bytes(tokenizer_model())
    (folder / "added_tokens.json").write_text(json.dumps(added_tokens(words.get_piece_size())))
    for part, text in PARTS.items():
        model = onnx.parser.parse_model(text.replace("VOCABULARY", str(vocabulary())))
        onnx.checker.check_model(model)
        onnx.save(model, folder / f"{part}.onnx")
    plans = {
        plan: PlanEntry(denoise_plan.build_plan(even_timesteps(steps)).to_dict(), {"psnr_db": 40.0}, plan == "balanced")
        for plan, steps in PLANS.items()
    }
    manifest = Manifest(
        format="",
        format_version=0,
        name=name,
        description="a tiny bundle for tests",
        origin="random weights",
        geometry=GEOMETRY,
        parts={part: Part(f"{part}.onnx", "fp32") for part in PARTS},
        plans=plans,
        files={},
        compatibility=compatibility or Compatibility(history_turns=2),
        world=WORLD,
    )
    return write_manifest(folder, manifest)


@dataclass
class FakePredictor:
    """Answers with `strengths` (ML, SC, ET, ST) or, if given, with the logits of `answer(slot)`; keeps what it read.

    The shot depends on the prompt's ids and on the shots of the history, as a real one's does. A cache is the number
    of the slot that comes next, and what was read before the slots began.
    """

    strengths: tuple[int, ...] = (3, 1, 0, -2)
    answer: Callable[[int], FloatArray] | None = None
    read: list[TokenBatch] = field(default_factory=list)
    extended: list[list[int]] = field(default_factory=list)

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        assert past is None or isinstance(past, tuple)
        self.read.append(tokens)
        shots = tokens.history_shots.mean(0) * len(tokens.history_shots)
        total, seen = tokens.ids.sum(), shots
        if past is not None:
            total, seen = total + past[1], seen + past[2]
        waves = np.sin(total + np.arange(len(tokens.readout) * GEOMETRY.shot_width)).reshape(-1, GEOMETRY.shot_width)
        shot = (waves + 0.5 * seen / 226).astype(np.float32)
        return Prefill(shot, self._logits(0), (1, total, seen))

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        assert isinstance(cache, tuple)
        slot, *read = cache
        self.extended.append(tokens.tolist())
        return self._logits(slot), (slot + 1, *read)

    def _logits(self, slot: int) -> FloatArray:
        if self.answer is not None:
            return self.answer(slot)
        words = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_model())
        logits = np.zeros(vocabulary(), np.float32)
        logits[added_tokens(words.get_piece_size())[f"<Strength_{self.strengths[slot]}>"]] = 1.0
        return logits


@dataclass
class FakeDenoising:
    """Keeps what each step was given; the latent depends on the start, the shot and the noise."""

    now: FloatArray
    steps: list[tuple[tuple[float, ...], float, tuple[int, ...]]]
    fail_at: int | None
    error: Exception

    def step(self, coefficients: FloatArray, timestep: float, rows: tuple[int, ...], noise: AnyNoise) -> None:
        if self.fail_at == len(self.steps):
            raise self.error
        self.steps.append((tuple(coefficients.tolist()), timestep, rows))
        self.now = 0.5 * self.now + 0.1 * as_array(noise)

    def latent(self) -> FloatArray:
        return self.now.copy()


@dataclass
class FakeDenoiser:
    """Counts turns and keeps their steps; `fail_at` makes that step (from 0) fail with `error`."""

    fail_at: int | None = None
    error: Exception = field(default_factory=lambda: MemoryError("no memory for this step"))
    steps: list[tuple[tuple[float, ...], float, tuple[int, ...]]] = field(default_factory=list)
    motion_scopes: list[float] = field(default_factory=list)

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> FakeDenoising:
        self.motion_scopes.append(motion_scope)
        self.steps.clear()
        now = (as_array(latent) + np.tanh(shot.sum())).astype(np.float32)
        return FakeDenoising(now, self.steps, self.fail_at, self.error)


class HeldDenoiser(FakeDenoiser):
    """Says that it has `reached` the step `held_at` (from 0), and stays there until it is let go."""

    def __init__(self, held_at: int, patience_s: float) -> None:
        super().__init__()
        self.held_at, self.patience_s = held_at, patience_s
        self.reached, self.let_go = threading.Event(), threading.Event()

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> FakeDenoising:
        turn = super().start(latent, shot, motion_scope)
        step = turn.step

        def held(*arguments: Any) -> None:
            if len(self.steps) == self.held_at:
                self.reached.set()
                assert self.let_go.wait(self.patience_s)
            step(*arguments)

        turn.step = held  # type: ignore[method-assign]
        return turn


class FakeVae:
    """Paints each frame with its latent's values; the first row is brighter, so that a flip shows."""

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        return self._paint(latent, 9, channel_order, flip), latent[:, -1:]

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        assert isinstance(caches, np.ndarray)
        return self._paint(latent + caches, 8, channel_order, flip)

    def _paint(self, latent: FloatArray, frames: int, channel_order: tuple[int, ...], flip: bool) -> Frames:
        size = (GEOMETRY.height // GEOMETRY.latent_height, GEOMETRY.width // GEOMETRY.latent_width)
        picture = np.kron(latent[0].mean(0)[:3].transpose(1, 2, 0), np.ones((*size, 1)))
        rgb = np.clip(128 + 60 * picture, 0, 200).astype(np.uint8)
        rgb[0] += 50
        rgba = np.concatenate([rgb, np.full((*rgb.shape[:2], 1), 255, np.uint8)], -1)[..., list(channel_order)]
        return np.stack([rgba[::-1] if flip else rgba] * frames)


def fake_engines(predictor: FakePredictor | None = None, denoiser: FakeDenoiser | None = None) -> Engines:
    """All parts of the tiny bundle in numpy."""
    return Engines(predictor or FakePredictor(), denoiser or FakeDenoiser(), FakeVae(), None, "numpy")


def with_format_version(bundle: Bundle, version: int) -> None:
    """Rewrites a bundle's manifest as if written by another version."""
    path = bundle.folder / "manifest.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"format_version": version}))


def renamed(bundle: Bundle, name: str) -> Bundle:
    """The same bundle under another name."""
    return write_manifest(bundle.folder, replace(bundle.manifest, name=name))
