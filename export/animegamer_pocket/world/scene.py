"""The content of a clip of the pocket world: a frozen `Scene` and what follows from it."""

from __future__ import annotations

import dataclasses
import hashlib

from animegamer_rt.state.game import GameState

CHARACTERS = ("Mirel", "Dovan", "Zelki", "Bixo", "Tofi")
MOTIONS = ("walk", "run", "jump", "wave", "dance", "sit", "lie down", "fly", "bow")
ADVERBS = ("barely", "gently", "smoothly", "quickly", "wildly")
PLACES = ("meadow", "forest", "beach", "city", "room", "snowfield", "desert", "cloudland")
OUTFITS = ("everyday", "raincoat", "party")
TRAVELLING = ("walk", "run", "fly")

HEIGHT, WIDTH, FRAMES = 96, 144, 17

DEFAULT_PLACE, DEFAULT_NIGHT, DEFAULT_OUTFIT, DEFAULT_LEVEL = "meadow", False, "everyday", 3
POSITIONS = {"left": 40, "centre": 64, "right": 104}
PAIR_POSITIONS = {"left": 48, "centre": 56, "right": 96}
"""Named start positions, px. A pair stands 48 px apart around its centre, so it has less room."""

TRAVEL_PER_LEVEL_PX = 8
"""A travelling motion covers 8 px per level in a clip: 0.5 px per frame at level 1, 2.5 at level 5."""
PAIR_SPACING_PX = 48

_HELD_OUT_SHARE_PERCENT = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """One clip: characters, motion, level, place and hour.

    level: 1..5. outfits: one per character. start_x: px, the centre of the character or of the pair. seed: shifts
    characters by a pixel or two.
    """

    characters: tuple[str, ...]
    motion: str
    level: int
    place: str
    night: bool
    outfits: tuple[str, ...]
    start_x: int = POSITIONS["centre"]
    seed: int = 0

    def __post_init__(self) -> None:
        assert 1 <= len(self.characters) <= 2 and len(self.outfits) == len(self.characters)
        assert self.motion in MOTIONS and 1 <= self.level <= 5 and self.place in PLACES

    @property
    def is_pair(self) -> bool:
        """Whether the clip has two characters."""
        return len(self.characters) == 2

    @property
    def direction(self) -> int:
        """+1 (right) or -1: the side with more space, which the characters face."""
        return 1 if self.start_x <= WIDTH // 2 else -1

    @property
    def travel(self) -> int:
        """How far the characters travel during the clip, px."""
        if self.motion not in TRAVELLING:
            return 0
        low, high = x_range(len(self.characters))
        space = high - self.start_x if self.direction > 0 else self.start_x - low
        return min(TRAVEL_PER_LEVEL_PX * self.level, space)

    @property
    def end_x(self) -> int:
        """The x at the clip's end, px. The next turn of a game starts near it (`next_start_x`)."""
        return self.start_x + self.direction * self.travel


def x_range(characters: int) -> tuple[int, int]:
    """The minimum and maximum x, px, of one character or of the centre of a pair."""
    return (48, 96) if characters == 2 else (32, 112)


def next_start_x(previous: Scene, characters: tuple[str, ...]) -> int:
    """The x at which the next turn starts, px: the named position nearest to the last clip's end.

    The predictor could not read an exact x off earlier shots (docs/LOG.md). If no character stays, it is the centre, as
    in a first turn.
    """
    if not set(characters) & set(previous.characters):
        return position_x("centre", len(characters))
    before = len(previous.characters)
    nearest = min(POSITIONS, key=lambda name: abs(position_x(name, before) - previous.end_x))
    return position_x(nearest, len(characters))


def position_x(name: str, characters: int) -> int:
    """The start x, px, of a named position: left, centre or right."""
    return (PAIR_POSITIONS if characters == 2 else POSITIONS)[name]


def position_name(x: int) -> str:
    """The name of the picture's third at an x, px: left, centre or right."""
    return "left" if x < 52 else "centre" if x < 92 else "right"


_ENTERTAINMENT = {"dance": 3, "fly": 2, "wave": 1, "jump": 1, "bow": 0, "walk": 0, "run": 0, "sit": -1, "lie down": -2}
_EFFORT = {"sit": 2, "lie down": 3, "wave": 0, "bow": 0, "walk": -1, "fly": -1, "dance": -2, "jump": -2, "run": -3}


def strengths(scene: Scene) -> GameState:
    """The state after a clip: motion level 1..5, and social, entertainment, stamina in -5..5.

    Social: 0 alone, -1 alone and resting, 1 in a pair, 2 in a pair that dances, waves or bows. Entertainment and
    stamina depend on the motion; the two strongest levels change them by one.
    """
    resting = scene.motion in ("sit", "lie down")
    strong = scene.level >= 4
    if scene.is_pair:
        social = 2 if scene.motion in ("dance", "wave", "bow") else 1
    else:
        social = -1 if resting else 0
    entertainment = _ENTERTAINMENT[scene.motion] + (1 if strong and not resting else 0)
    stamina = _EFFORT[scene.motion] - (1 if strong else 0)
    return GameState(motion_level=scene.level, social=social, entertainment=entertainment, stamina=stamina)


_COLUMNS_PX = range(32, 113, 10)


def scene_labels(scene: Scene) -> list[float]:
    """The content of a clip's first frame as 0s and 1s: characters, outfits, place, night, motion, nearest column."""
    worn = dict(zip(scene.characters, scene.outfits, strict=True))
    nearest = min(_COLUMNS_PX, key=lambda x: abs(x - scene.start_x))
    labels = [
        *(name in worn for name in CHARACTERS),
        *(worn.get(name) == outfit for name in CHARACTERS for outfit in OUTFITS),
        *(scene.place == place for place in PLACES),
        scene.night,
        *(scene.motion == motion for motion in MOTIONS),
        *(nearest == x for x in _COLUMNS_PX),
    ]
    return [float(label) for label in labels]


def is_held_out(scene: Scene) -> bool:
    """Whether first character, motion, place and night are a combination excluded from training, about 6 % of all."""
    return is_held_out_combination(scene.characters[0], scene.motion, scene.place, scene.night)


def is_held_out_combination(character: str, motion: str, place: str, night: bool) -> bool:
    """The rule of `is_held_out`: a hash of the combination, the same on every machine."""
    digest = hashlib.sha256(f"{character}|{motion}|{place}|{night}".encode()).digest()
    return digest[0] * 100 < _HELD_OUT_SHARE_PERCENT * 256
