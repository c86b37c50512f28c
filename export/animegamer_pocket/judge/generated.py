"""Clips that a bundle draws of known content: what generated clips look like, for the judge to learn from.

Some come from a caption, as first turns of a game. The others come from the first frame of a rendered clip, through the
bundle's encoder, so that figures stand anywhere. A few of these frames hold a character twice. Others are the mean of
two shots, which looks as the later turns of a game do when the predictor is unsure who is there. They are written in
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

from animegamer_pocket.world.captions import complete_caption
from animegamer_pocket.world.drawing import downsample
from animegamer_pocket.world.places import paint_place
from animegamer_pocket.world.render import render
from animegamer_pocket.world.sampling import sample_scene
from animegamer_pocket.world.scene import (
    ADVERBS,
    CHARACTERS,
    MOTIONS,
    OUTFITS,
    Scene,
    position_x,
    strengths,
    x_range,
)
from animegamer_rt.backends.interface import FloatArray
from animegamer_rt.backends.registry import open_engines, open_towers
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.stages.image import prepare
from animegamer_rt.stages.image_start import motion_ids
from animegamer_rt.state.game import motion_scope
from animegamer_rt.state.instruction import Instruction

from .reading import halve
from .shown import Figure, Frames, Mask, Shown, figure_mask

PART_CLIPS = 50
_CAPTION_SHARE, _DOUBLED_SHARE, _UNSURE_SHARE = 0.2, 0.15, 0.3
_APART_PX = 34
"""A character's second copy stands at least this far from the first."""


class Artist:
    """Draws clips with a bundle: from captions, and from a first frame with its motion."""

    def __init__(self, bundle: str | Path) -> None:
        config = EngineConfig(threads=1)
        self._bundle = open_bundle(bundle)
        self._engines, self._towers = open_engines(self._bundle, config), open_towers(self._bundle, config)
        self._pipeline = Pipeline.open(self._bundle, self._engines, "fast")
        balanced = DenoisePlan.from_dict(self._bundle.plan("balanced"))
        fast = self._pipeline.denoiser
        self._denoisers = (fast, fast, fast.with_plan(balanced))

    def caption_shot(self, scene: Scene) -> FloatArray:
        """The predictor's shot for a scene's complete caption as the first turn of a game, float32 [226, D]."""
        return self._pipeline.predictor.predict((), Instruction.parse(complete_caption(scene))).shot

    def picture_shot(self, scene: Scene, first_frame: npt.NDArray[np.uint8]) -> FloatArray:
        """The encoder's shot of a first frame, uint8 [96, 144, 3], and a scene's motion, float32 [226, D]."""
        picture = prepare(first_frame, self._towers.height, self._towers.width, first_frame.shape[1] / len(first_frame))
        ids = motion_ids(self._bundle, f"{ADVERBS[scene.level - 1]} {scene.motion}", self._towers.tokens)
        assert self._engines.encoder is not None
        return self._engines.encoder.encode(self._towers.text(ids), self._towers.image(picture))

    def draw(self, shot: FloatArray, scene: Scene, seed: int) -> Frames:
        """The clip of a shot with a scene's strength of motion, at half size."""
        rules = self._bundle.manifest.compatibility
        scope = motion_scope(strengths(scene), rules.motion_table, rules.motion_source)
        denoiser = self._denoisers[seed % len(self._denoisers)]
        *_, last = denoiser.denoise(shot, scope, denoiser.draw_noise(seed, 1))
        return halve(np.stack(list(self._pipeline.vae.decode(last.latent))))


def draw_one(artist: Artist, rng: random.Random, train: bool) -> tuple[Frames, Mask, Shown]:
    """A random generated clip at half size, where its figures are if it were rendered, and what it shows."""
    scene, seed, kind = sample_scene(rng, train), rng.getrandbits(31), rng.random()
    if kind < _CAPTION_SHARE:
        scene = dataclasses.replace(scene, start_x=position_x("centre", len(scene.characters)))
    rendered, shown = render(scene), Shown.of(scene)
    mask = figure_mask(halve(rendered), scene.place, scene.night)
    if kind < _CAPTION_SHARE:
        return artist.draw(artist.caption_shot(scene), scene, seed), mask, shown
    shot, second = artist.picture_shot(scene, rendered[0]), None
    if kind > 1 - _UNSURE_SHARE:
        second = _another(scene, rng)
        share = rng.uniform(0.4, 0.6)
        shot = shot + share * (artist.picture_shot(second, render(second, 1)[0]) - shot)
        motion = scene.motion if scene.motion == second.motion else None
        shown = dataclasses.replace(shown, smeared=True, motion=motion)
    elif kind > 1 - _UNSURE_SHARE - _DOUBLED_SHARE and (second := _copy_of_one(scene, shown, rng)) is not None:
        again = render(second, 1)[0]
        empty = downsample(paint_place(scene.place, scene.night))
        away = np.abs(again.astype(int) - empty).sum(axis=2, keepdims=True) > 14
        shot = artist.picture_shot(scene, np.where(away, again, rendered[0]))
        shown = dataclasses.replace(shown, smeared=None)
    if second is not None:
        mask |= figure_mask(halve(render(second)), scene.place, scene.night)
        shown = dataclasses.replace(shown, figures=(*shown.figures, *Shown.of(second).figures))
    return artist.draw(shot, scene, seed), mask, shown


def _another(scene: Scene, rng: random.Random) -> Scene:
    """A scene of other characters in the same place at the same hour, mostly with the same motion."""
    others = [name for name in CHARACTERS if name not in scene.characters]
    characters = tuple(rng.sample(others, 2 if rng.random() < 0.25 else 1))
    near = scene.start_x + rng.choice((-16, -8, 0, 0, 8, 16))
    low, high = x_range(len(characters))
    return dataclasses.replace(
        scene,
        characters=characters,
        outfits=tuple(rng.choice(OUTFITS) for _ in characters),
        motion=scene.motion if rng.random() < 0.7 else rng.choice(MOTIONS),
        start_x=min(high, max(low, near)),
    )


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
