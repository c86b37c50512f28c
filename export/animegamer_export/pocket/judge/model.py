"""The judge: a small network that classifies a clip: characters, outfits, place, day or night, motion, positions.

It is trained on rendered clips (training.py) and measures generated ones. It is never shipped.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from animegamer_export.pocket.world.scene import CHARACTERS, FRAMES, HEIGHT, MOTIONS, OUTFITS, PLACES, WIDTH

_Row: TypeAlias = npt.NDArray[np.float32]
SEEN_FRAMES = (0, 3, 6, 9, 12, 16)
"""The frames of a clip that the judge gets."""
_CHANNELS = (32, 64, 96, 128)
_SHRINK = 2
"""Frames are halved: fine blur, which should not count, disappears, and training is four times as fast."""
_ROWS, _COLUMNS = 3, 9
_WHOLE = (len(PLACES), 1, len(MOTIONS), 2)


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What the judge reads off one clip. start_x and end_x: px, in the first and the last frame."""

    characters: frozenset[str]
    outfits: dict[str, str]
    place: str
    night: bool
    motion: str
    start_x: float
    end_x: float


class Judge(nn.Module):
    """Six frames stacked as channels -> logits: characters, their outfits, place, night, motion, two positions.

    Characters and outfits are classified per cell of a 6 x 9 map, so that each of two characters keeps its own clothes:
    a character's logit is the largest of the map, its outfit is averaged where the character is.
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3 * len(SEEN_FRAMES)
        for width, stride in zip(_CHANNELS, (2, 2, 2, 1), strict=True):
            layers += [
                nn.Conv2d(channels, width, 3, stride=stride, padding=1),
                nn.GroupNorm(8, width),
                nn.SiLU(),
                nn.Conv2d(width, width, 3, padding=1),
                nn.GroupNorm(8, width),
                nn.SiLU(),
            ]
            channels = width
        self.trunk = nn.Sequential(*layers)
        self.who = nn.Conv2d(channels, len(CHARACTERS), 1)
        self.worn = nn.Conv2d(channels, len(CHARACTERS) * len(OUTFITS), 1)
        self.hidden = nn.Linear(channels * _ROWS * _COLUMNS, 256)
        self.out = nn.Linear(256, sum(_WHOLE))

    def forward(self, frames: Tensor) -> tuple[Tensor, ...]:
        """float [B, 18, 48, 72] about -1..1 -> who [B, 5], outfits [B, 15], place [B, 8], night [B, 1],
        motion [B, 9] and the first and last x in picture widths [B, 2]."""
        seen = self.trunk(frames)
        presence = self.who(seen).float().flatten(2)
        clothes = self.worn(seen).float().flatten(2).unflatten(1, (len(CHARACTERS), len(OUTFITS)))
        worn = (presence.softmax(dim=2)[:, :, None] * clothes).sum(dim=3).flatten(1)
        whole = nn.functional.adaptive_avg_pool2d(seen, (_ROWS, _COLUMNS)).flatten(1)
        groups = self.out(nn.functional.silu(self.hidden(whole))).float().split(_WHOLE, dim=1)
        return presence.amax(dim=2), worn, *groups


def judge_input(clips: npt.NDArray[np.uint8]) -> Tensor:
    """Clips uint8 [N, 17, 96, 144, 3] -> the judge's input, float32 [N, 18, 48, 72], -1..1.

    Raises:
        ValueError: clips of another shape.
    """
    if clips.shape[1:] != (FRAMES, HEIGHT, WIDTH, 3):
        raise ValueError(f"clips are {clips.shape}, expected [N, {FRAMES}, {HEIGHT}, {WIDTH}, 3]")
    chosen = torch.from_numpy(np.ascontiguousarray(clips[:, list(SEEN_FRAMES)]))
    frames = chosen.permute(0, 1, 4, 2, 3).reshape(len(clips), -1, HEIGHT, WIDTH)
    return nn.functional.avg_pool2d(frames.float(), _SHRINK) / 127.5 - 1


@torch.inference_mode()
def read_clips(judge: Judge, clips: npt.NDArray[np.uint8]) -> list[Reading]:
    """Classify clips, uint8 [N, 17, 96, 144, 3]. A reading has one or two characters."""
    judge.eval()
    readings: list[Reading] = []
    for start in range(0, len(clips), 32):
        groups = [group.numpy() for group in judge(judge_input(clips[start : start + 32]))]
        readings += [_reading(*row) for row in zip(*groups, strict=True)]
    return readings


def _reading(who: _Row, worn: _Row, place: _Row, night: _Row, motion: _Row, where: _Row) -> Reading:
    order = np.argsort(-who)
    present = [index for rank, index in enumerate(order.tolist()) if rank == 0 or (rank == 1 and who[index] > 0)]
    outfits = worn.reshape(len(CHARACTERS), len(OUTFITS)).argmax(axis=1)
    return Reading(
        characters=frozenset(CHARACTERS[index] for index in present),
        outfits={CHARACTERS[index]: OUTFITS[outfits[index]] for index in present},
        place=PLACES[int(place.argmax())],
        night=bool(night[0] > 0),
        motion=MOTIONS[int(motion.argmax())],
        start_x=float(where[0]) * WIDTH,
        end_x=float(where[1]) * WIDTH,
    )


def save_judge(judge: Judge, path: Path) -> None:
    """Write the judge's weights."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(judge.state_dict(), path)


def load_judge(path: Path) -> Judge:
    """Read a judge that `save_judge` wrote."""
    judge = Judge()
    judge.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return judge.eval()
