"""The picture reader: a small network that reads a scene from a picture, for games that start from one.

It is trained on frames of rendered clips that are shifted, cropped, recoloured, blurred and downscaled, and on pictures
without characters.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from animegamer_export.distill.optimiser import PhaseConfig, autocast
from animegamer_export.distill.progress import Progress
from animegamer_pocket.training import checkpoint
from animegamer_pocket.world.drawing import downsample
from animegamer_pocket.world.places import paint_place
from animegamer_pocket.world.render import render
from animegamer_pocket.world.sampling import sample_scene
from animegamer_pocket.world.scene import (
    CHARACTERS,
    FRAMES,
    HEIGHT,
    MOTIONS,
    OUTFITS,
    PLACES,
    SPOTS,
    WIDTH,
    Scene,
)

from .model import HEADS
from .samples import NOT_JUDGED

EMPTY_SHARE, NOTHING_SHARE = 0.06, 0.06
PICTURE_HEADS = {name: shape for name, shape in HEADS.items() if name != "level"}
CHANNELS = (24, 48, 72, 96, 128)


class PictureReader(nn.Module):
    """picture f32 [B, 3, 96, 144] in -1..1 -> the logits of `PICTURE_HEADS`, in their order."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for channels in CHANNELS:
            layers += [nn.Conv2d(before, channels, 3, 2, 1), nn.BatchNorm2d(channels), nn.ReLU()]
            layers += [nn.Conv2d(channels, channels, 3, 1, 1), nn.BatchNorm2d(channels), nn.ReLU()]
            before = channels
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * 3 * 5, 256), nn.ReLU())
        self.head = nn.Linear(256, sum(int(np.prod(shape)) for shape in PICTURE_HEADS.values()))

    def forward(self, picture: Tensor) -> tuple[Tensor, ...]:
        sizes = [int(np.prod(shape)) for shape in PICTURE_HEADS.values()]
        parts = self.head(self.body(picture)).split(sizes, 1)
        return tuple(part.unflatten(1, shape) for part, shape in zip(parts, PICTURE_HEADS.values(), strict=True))


def train_picture_reader(path: Path, phase: PhaseConfig, seed: int = 3) -> PictureReader:
    """Trains and saves the weights to `path`. An existing file is loaded instead."""
    reader = PictureReader()
    if path.exists():
        checkpoint.load(path, ("reader", reader))
        return reader.eval()
    torch.manual_seed(seed)
    progress = Progress("picture reader", phase.steps, path.with_suffix(".state"), seed)
    progress.run(_losses(reader, phase, progress))
    checkpoint.save(path, ("reader", reader))
    return reader.eval()


def _losses(reader: PictureReader, phase: PhaseConfig, progress: Progress) -> Iterator[dict[str, float]]:
    optimizer = torch.optim.AdamW(reader.parameters(), lr=phase.learning_rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, phase.learning_rate, total_steps=phase.steps, pct_start=0.1
    )
    progress.resume(network=reader, optimizer=optimizer, schedule=schedule)
    reader.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for step in progress.remaining():
        pictures, truth = picture_batch(random.Random(f"{progress.seed} {step}"), phase.batch)
        with autocast(torch.device("cpu")):
            logits = reader(pictures.contiguous(memory_format=torch.channels_last))
        loss = picture_loss(logits, truth)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        yield {"loss": float(loss.detach())}


def picture_loss(logits: tuple[Tensor, ...], truth: Tensor) -> Tensor:
    """The sum of the cross entropies of all heads; truth int64 [B, 14], see `picture_truth`."""
    people = len(CHARACTERS)
    columns = [truth[:, :people], truth[:, people : 2 * people], *truth[:, 2 * people :].unbind(1)]
    total = torch.zeros(())
    for head, column in zip(logits, columns, strict=True):
        if bool((column != NOT_JUDGED).any()):
            flat, wanted = head.float().reshape(-1, head.shape[-1]), column.reshape(-1)
            total = total + nn.functional.cross_entropy(flat, wanted, ignore_index=NOT_JUDGED)
    return total + 3 * nn.functional.cross_entropy(logits[0].float().reshape(-1, 3), columns[0].reshape(-1))


def picture_truth(scene: Scene | None, place: str, night: bool) -> list[int]:
    """What a picture shows; without a scene, no character."""
    if scene is None:
        unknown = [NOT_JUDGED] * len(CHARACTERS)
        return [*[0] * len(CHARACTERS), *unknown, NOT_JUDGED, PLACES.index(place), int(night), NOT_JUDGED]
    worn = dict(zip(scene.characters, scene.outfits, strict=True))
    people = [1 + scene.characters.index(name) if name in worn else 0 for name in CHARACTERS]
    clothes = [OUTFITS.index(worn[name]) if name in worn else NOT_JUDGED for name in CHARACTERS]
    spot = SPOTS.index(scene.spot)
    return [*people, *clothes, MOTIONS.index(scene.motion), PLACES.index(place), int(night), spot]


def picture_batch(rng: random.Random, size: int) -> tuple[Tensor, Tensor]:
    """Random augmented pictures f32 [B, 3, 96, 144] in -1..1, and what they show."""
    pictures, truth = [], []
    for _ in range(size):
        scene = _scene(rng)
        frame: npt.NDArray[Any]
        if rng.random() < NOTHING_SHARE:
            frame = nothing(rng)
            truth.append([*[0] * len(CHARACTERS), *[NOT_JUDGED] * (len(CHARACTERS) + 4)])
        elif rng.random() < EMPTY_SHARE:
            frame = downsample(paint_place(scene.place, scene.night).copy())
            truth.append(picture_truth(None, scene.place, scene.night))
        else:
            frame = render(scene, 1 + int(rng.random() ** 2 * (FRAMES - 1)))[-1]
            truth.append(picture_truth(scene, scene.place, scene.night))
        pictures.append(change_picture(frame, rng))
    batch = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2) / 127.5 - 1
    return batch, torch.tensor(truth)


def nothing(rng: random.Random) -> npt.NDArray[Any]:
    """A picture of nobody and no place: one colour, a texture of 1/f noise, or a landscape of bands; f32 frame."""
    noise, kind = np.random.default_rng(rng.getrandbits(32)), rng.choice(("flat", "texture", "texture", "landscape"))
    colours = noise.uniform(0, 255, (4, 3))
    if kind == "flat":
        return np.broadcast_to(colours[0], (HEIGHT, WIDTH, 3)).astype(np.float32)
    rows, columns = np.fft.fftfreq(HEIGHT)[:, None], np.fft.fftfreq(WIDTH)[None]
    falloff = np.maximum(np.hypot(rows, columns), 1 / WIDTH) ** -rng.uniform(0.3, 2.5)
    waves = np.fft.fft2(noise.standard_normal((3, HEIGHT, WIDTH))) * falloff
    grain: npt.NDArray[np.float64] = np.fft.ifft2(waves).real.transpose(1, 2, 0)
    grain = (grain - grain.mean((0, 1))) / grain.std((0, 1))
    if kind == "texture":
        texture: npt.NDArray[Any] = (colours[0] + grain * rng.uniform(15, 80)).clip(0, 255).astype(np.float32)
        return texture
    edges = noise.uniform(0, HEIGHT, (3, 1)) + 4 * grain[0, :, 0]
    band = (np.arange(HEIGHT)[:, None, None] > edges).sum(1)
    landscape: npt.NDArray[Any] = (colours[band] + 6 * grain).clip(0, 255).astype(np.float32)
    return landscape


def doubt(reader: nn.Module, pictures: int = 400) -> float:
    """How much likelier than nobody somebody must be to be believed: more than in 99 of 100 pictures of nobody."""
    rng = random.Random(98)
    batch = torch.from_numpy(np.stack([nothing(rng) for _ in range(pictures)])).permute(0, 3, 1, 2) / 127.5 - 1
    with torch.no_grad():
        scores = reader(batch)[0].float().numpy()
    return max(0.0, float(np.quantile((scores[..., 1] - scores[..., 0]).max(1), 0.99)))


def _scene(rng: random.Random) -> Scene:
    """A random scene of any combination; half have two characters, which are harder."""
    pair = rng.random() < 0.5
    while True:
        scene = dataclasses.replace(sample_scene(rng, rng.random() < 0.94), before="")  # a picture shows one motion
        if scene.is_pair == pair:
            return scene


def change_picture(frame: npt.NDArray[Any], rng: random.Random) -> npt.NDArray[np.float32]:
    """A frame shifted, cropped or downscaled, recoloured, blurred and with noise: f32 [96, 144, 3] in 0..255."""
    picture: Any = frame.astype(np.float32)
    if rng.random() < 0.7:
        zoom = rng.uniform(0.85, 1.25)
        spare_x, spare_y = max(0.0, (zoom - 1) * WIDTH / 2), max(0.0, (zoom - 1) * HEIGHT / 2)
        shift_x, shift_y = rng.uniform(-1, 1) * (6 + spare_x * 0.6), rng.uniform(-1, 1) * (4 + spare_y * 0.6)
        matrix = np.array(
            [[zoom, 0, (1 - zoom) * WIDTH / 2 + shift_x], [0, zoom, (1 - zoom) * HEIGHT / 2 + shift_y]], np.float32
        )
        picture = cv2.warpAffine(picture, matrix, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REPLICATE)
    if rng.random() < 0.3:
        small = rng.uniform(0.35, 0.9)
        size = (max(16, round(WIDTH * small)), max(12, round(HEIGHT * small)))
        picture = cv2.resize(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), (WIDTH, HEIGHT))
    if rng.random() < 0.7:
        gains = np.array([rng.uniform(0.8, 1.2) for _ in range(3)], np.float32) * rng.uniform(0.8, 1.15)
        picture = (picture - 128) * rng.uniform(0.75, 1.2) + 128
        picture = picture * gains + rng.uniform(-18, 18)
    if rng.random() < 0.2:
        grey = picture.mean(2, keepdims=True)
        picture = picture + rng.uniform(0.0, 0.6) * (grey - picture)
    if rng.random() < 0.3:
        noise = np.random.default_rng(rng.getrandbits(32)).standard_normal(picture.shape, np.float32)
        picture = picture + rng.uniform(1, 12) * noise
    changed: npt.NDArray[np.float32] = np.clip(picture, 0, 255).astype(np.float32)
    return changed


def picture_accuracy(reader: PictureReader, pictures: int = 400) -> dict[str, float]:
    """The share of augmented pictures whose people, place, hour and clothes are read right."""
    batch, truth = picture_batch(random.Random(99), pictures)
    with torch.no_grad():
        logits = dict(zip(PICTURE_HEADS, reader(batch), strict=True))
    people = len(CHARACTERS)
    asked, worn = truth[:, :people], truth[:, people : 2 * people]
    seen = logits["people"].argmax(-1)
    wears = logits["clothes"].argmax(-1)
    place, hour = truth[:, 2 * people + 1], truth[:, 2 * people + 2]
    return {
        "people": float(((seen > 0) == (asked > 0)).all(1).float().mean()),
        "order": float((seen == asked).all(1).float().mean()),
        "clothes": float(((wears == worn) | (worn == NOT_JUDGED)).all(1).float().mean()),
        "place": float(((logits["place"].argmax(-1) == place) | (place == NOT_JUDGED)).float().mean()),
        "night": float(((logits["night"].argmax(-1) == hour) | (hour == NOT_JUDGED)).float().mean()),
    }
