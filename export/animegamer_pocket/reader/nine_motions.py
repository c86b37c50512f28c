"""The readers as parts of a bundle whose pictures have nine motions and three named positions.

Such a bundle cannot draw somebody who stands: they wave, as little as there is. A spot of the readers' world becomes
the nearest named position, and the other way round.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from animegamer_pocket.world.scene import CHARACTERS, COLUMNS_PX, DEFAULT_LEVEL, MOTIONS, POSITIONS, SPOTS

from .model import LEVELS, SCENE_SIZES

STAND, WAVE = MOTIONS.index("stand"), MOTIONS.index("wave")
NINE = tuple(motion for motion in MOTIONS if motion != "stand")
SURELY = 100.0
"""Added to the logit of the lowest level for somebody who stands."""


def nearest(x: int) -> int:
    """The number of the named position nearest to an x, px."""
    return min(range(len(POSITIONS)), key=lambda index: abs(list(POSITIONS.values())[index] - x))


def spot_of(position: str) -> int:
    """The number of the spot at a named position, looking to where there is more room."""
    column = COLUMNS_PX.index(POSITIONS[position])
    return SPOTS.index(f"{column + 1} {'left' if position == 'right' else 'right'}")


class NineMotions(nn.Module):
    """A reader, or picture reader, whose scenes have NINE motions and the POSITIONS."""

    motions: Tensor
    spots: Tensor
    positions: Tensor

    def __init__(self, reader: nn.Module, heads: tuple[str, ...]) -> None:
        """heads: the names of the reader's outputs."""
        super().__init__()
        self.reader, self.heads = reader, heads
        self.register_buffer("motions", torch.tensor([*range(len(NINE)), len(MOTIONS)]), persistent=False)
        spots = [*(spot_of(name) for name in POSITIONS), len(SPOTS)]
        self.register_buffer("spots", torch.tensor(spots), persistent=False)
        near = [nearest(x) for x in COLUMNS_PX for _ in ("left", "right")]
        at = nn.functional.one_hot(torch.tensor(near), len(POSITIONS)).T
        self.register_buffer("positions", torch.where(at == 1, 0.0, -SURELY), persistent=False)

    def forward(self, given: Tensor, scene: Tensor | None = None) -> tuple[Tensor, ...]:
        """As the reader's."""
        read = self.reader(given) if scene is None else self.reader(given, self._in_ten(scene))
        found = dict(zip(self.heads, read, strict=True))
        motion = found["motion"]
        stands = (motion.argmax(1, keepdim=True) == STAND).to(motion.dtype)
        least = nn.functional.pad(SURELY * stands, (0, LEVELS - 1))
        found["motion"] = torch.cat(
            [motion[:, :WAVE], motion[:, [WAVE, STAND]].amax(1, keepdim=True), motion[:, WAVE + 1 : STAND]], 1
        )
        found["level"] = found["level"] + least
        found["position"] = (found["position"][:, None] + self.positions).amax(2)
        return tuple(found[name] for name in self.heads)

    def _in_ten(self, scene: Tensor) -> Tensor:
        """The scene's numbers for the reader."""
        now, left, earlier = scene.split((len(SCENE_SIZES), len(CHARACTERS), len(SCENE_SIZES)), 1)
        return torch.cat([self._row_in_ten(now), left, self._row_in_ten(earlier)], 1)

    def _row_in_ten(self, row: Tensor) -> Tensor:
        people, motion, level, between, position = row.split((len(CHARACTERS), 1, 1, 2, 1), 1)
        stands = (motion == WAVE) & (level == 0)
        motion = torch.where(stands, STAND, self.motions[motion])
        level = torch.where(stands, DEFAULT_LEVEL - 1, level)
        return torch.cat([people, motion, level, between, self.spots[position]], 1)
