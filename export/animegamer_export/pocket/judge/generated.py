"""Clips that a bundle draws of known content: what generated clips look like, for the judge to learn from.

A third come from a caption, as first turns of a game. The others come from the first frame of a rendered clip, through
the bundle's encoder, so that figures stand anywhere; a few of these frames hold a character twice. They are written in
parts, and a run goes on where the last one ended.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

import animegamer_rt
from animegamer_export.pocket.world.captions import caption
from animegamer_export.pocket.world.drawing import downsample
from animegamer_export.pocket.world.places import paint_place
from animegamer_export.pocket.world.render import render
from animegamer_export.pocket.world.sampling import sample_scene
from animegamer_export.pocket.world.scene import ADVERBS, Scene, position_x, strengths
from animegamer_rt.backends.registry import open_towers
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.stages.image import prepare
from animegamer_rt.stages.image_start import motion_ids
from animegamer_rt.state.game import GameState, motion_scope
from animegamer_rt.state.instruction import Instruction

from .reading import halve
from .shown import Figure, Frames, Mask, Shown, figure_mask

PART_CLIPS = 50
_CAPTION_SHARE, _DOUBLED_SHARE = 0.35, 0.18
_APART_PX = 34
"""A character's second copy stands at least this far from the first."""


class Artist:
    """Draws clips with a bundle: from captions, and from a first frame with its motion."""

    def __init__(self, bundle: str | Path, threads: int = 1) -> None:
        self._player = animegamer_rt.open(bundle, plan="fast", threads=threads)
        self._bundle = self._player.bundle
        self._towers = open_towers(self._bundle, EngineConfig(threads=threads))
        balanced = DenoisePlan.from_dict(self._bundle.plan("balanced"))
        fast = self._player.pipeline.denoiser
        self._denoisers = (fast, fast, fast.with_plan(balanced))

    def draw(self, scene: Scene, first_frame: npt.NDArray[np.uint8] | None, seed: int) -> npt.NDArray[np.uint8]:
        """The clip of a scene, uint8 [17, 96, 144, 3]. first_frame: uint8 [96, 144, 3]; None: from its caption."""
        pipeline, rules = self._player.pipeline, self._bundle.manifest.compatibility
        if first_frame is None:
            prediction = pipeline.predictor.predict((), Instruction.parse(caption(scene)))
            shot, state = prediction.shot, prediction.game_state
        else:
            picture = prepare(first_frame, self._towers.height, self._towers.width, 1.5)
            ids = motion_ids(self._bundle, f"{ADVERBS[scene.level - 1]} {scene.motion}", self._towers.tokens)
            assert self._player._engines is not None and self._player._engines.encoder is not None
            shot = self._player._engines.encoder.encode(self._towers.text(ids), self._towers.image(picture))
            state = GameState(*strengths(scene))
        scope = motion_scope(state, rules.motion_table, rules.motion_source)
        denoiser = self._denoisers[seed % len(self._denoisers)]
        *_, last = denoiser.denoise(shot, scope, denoiser.draw_noise(seed, 1))
        return np.stack(list(pipeline.vae.decode(last.latent)))


def draw_one(artist: Artist, rng: random.Random, train: bool) -> tuple[Frames, Mask, Shown]:
    """A random generated clip at half size, where its figures are if it were rendered, and what it shows."""
    scene, seed, kind = sample_scene(rng, train), rng.getrandbits(31), rng.random()
    if kind < _CAPTION_SHARE:
        scene = dataclasses.replace(scene, start_x=position_x("centre", len(scene.characters)))
    rendered, shown = render(scene), Shown.of(scene)
    mask = figure_mask(halve(rendered), scene.place, scene.night)
    first = None if kind < _CAPTION_SHARE else rendered[0]
    if kind > 1 - _DOUBLED_SHARE and (copy := _copy_of_one(scene, shown, rng)) is not None:
        again = render(copy)
        away = np.abs(again[0].astype(int) - downsample(paint_place(scene.place, scene.night))).sum(axis=2) > 14
        first = np.where(away[..., None], again[0], rendered[0])
        mask |= figure_mask(halve(again), scene.place, scene.night)
        shown = dataclasses.replace(shown, figures=(*shown.figures, *Shown.of(copy).figures), smeared=None)
    return halve(artist.draw(scene, first, seed)), mask, shown


def _copy_of_one(scene: Scene, shown: Shown, rng: random.Random) -> Scene | None:
    """A scene with one of the characters elsewhere, doing the same; None if there is no room for it."""
    chosen = rng.choice(shown.figures)
    free = [
        x
        for x in range(24, 124, 4)
        if all(min(abs(x - figure.start_x), abs(x - figure.end_x)) >= _APART_PX for figure in shown.figures)
    ]
    if not free:
        return None
    return dataclasses.replace(
        scene, characters=(chosen.name,), outfits=(chosen.outfit,), start_x=rng.choice(free), seed=rng.getrandbits(31)
    )


def write_parts(bundle: str | Path, folder: Path, clips: int, seed: int, train: bool = True) -> None:
    """Draw `clips` clips into numbered files of 50. A part that is there already is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    artist: Artist | None = None
    for part in range(-(-clips // PART_CLIPS)):
        path = folder / f"part-{part:03d}.npz"
        if path.exists():
            continue
        artist = artist or Artist(bundle)
        rng = random.Random(seed * 1000 + part)
        drawn = [draw_one(artist, rng, train) for _ in range(PART_CLIPS)]
        unfinished = path.with_suffix(".part.npz")
        np.savez(
            unfinished,
            frames=np.stack([frames for frames, _, _ in drawn]),
            masks=np.packbits(np.stack([mask for _, mask, _ in drawn]), axis=-1),
            shown=np.array([json.dumps(dataclasses.asdict(shown)) for _, _, shown in drawn]),
        )
        unfinished.replace(path)
        print(f"{path}: {(part + 1) * PART_CLIPS} of {clips} clips", flush=True)


def read_parts(folder: Path) -> tuple[Frames, Mask, list[Shown]]:
    """All clips that `write_parts` wrote: uint8 [N, 17, 48, 72, 3], bool [N, 17, 48, 72] and what they show."""
    frames, masks, shown = [], [], []
    for path in sorted(folder.glob("part-[0-9][0-9][0-9].npz")):
        with np.load(path) as part:
            frames.append(part["frames"])
            masks.append(np.unpackbits(part["masks"], axis=-1).astype(bool))
            shown += [_shown(line) for line in part["shown"]]
    return np.concatenate(frames), np.concatenate(masks), shown


def _shown(line: str) -> Shown:
    fields = json.loads(line)
    figures: Sequence[dict[str, object]] = fields.pop("figures")
    return Shown(tuple(Figure(**figure) for figure in figures), **fields)  # type: ignore[arg-type]
