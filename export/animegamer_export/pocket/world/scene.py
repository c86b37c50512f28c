"""What a clip of the pocket world shows: one frozen `Scene`, and the facts that follow from it.

It does not know how anything is drawn or worded.
"""

from __future__ import annotations

import dataclasses
import hashlib

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
"""Named start positions, px. Pairs stand 48 px apart around their centre, so they have less room."""

TRAVEL_PER_LEVEL_PX = 8
"""A travelling motion covers 8 px a level in one clip (0.5 px a frame at level 1, 2.5 at level 5)."""
PAIR_SPACING_PX = 48

_HELD_OUT_SHARE_PERCENT = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """One clip: who does what, how strongly, where and when.

    `start_x` is the centre of the one character, or of the pair, in px; `level` is 1..5; `outfits` has one entry a
    character; `seed` only moves things by a pixel or two.
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
        """True when two characters are in the clip."""
        return len(self.characters) == 2

    @property
    def direction(self) -> int:
        """+1 (to the right) or -1: the side with more room, which is also where the characters face."""
        return 1 if self.start_x <= WIDTH // 2 else -1

    @property
    def travel(self) -> int:
        """How many px the characters cover during the clip."""
        if self.motion not in TRAVELLING:
            return 0
        low, high = x_range(len(self.characters))
        room = high - self.start_x if self.direction > 0 else self.start_x - low
        return min(TRAVEL_PER_LEVEL_PX * self.level, room)

    @property
    def end_x(self) -> int:
        """Where the clip ends, px: the next turn of a game starts near here (`next_start_x`)."""
        return self.start_x + self.direction * self.travel


def x_range(characters: int) -> tuple[int, int]:
    """The lowest and highest x, px, at which one character or the middle of a pair may stand."""
    return (48, 96) if characters == 2 else (32, 112)


def next_start_x(previous: Scene, characters: tuple[str, ...]) -> int:
    """Where the next turn of a game starts: if somebody stays, at the named position nearest to where the last ended.

    Any px would be too fine to count out from earlier shots (docs/LOG.md). Where nobody stays, the others come in at
    the centre, as in a first turn.
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
    """The coarse name of an x: left, centre or right third of the picture."""
    return "left" if x < 52 else "centre" if x < 92 else "right"


_ENTERTAINMENT = {"dance": 3, "fly": 2, "wave": 1, "jump": 1, "bow": 0, "walk": 0, "run": 0, "sit": -1, "lie down": -2}
_EFFORT = {"sit": 2, "lie down": 3, "wave": 0, "bow": 0, "walk": -1, "fly": -1, "dance": -2, "jump": -2, "run": -3}


def strengths(scene: Scene) -> tuple[int, int, int, int]:
    """The four states after a clip: (motion level 1..5, social, entertainment, stamina), the last three in -5..5.

    Social: 0 alone (-1 alone and resting), 1 with a friend (2 when they dance or wave together). Entertainment and
    stamina: by motion; the two strongest levels push one further.
    """
    resting = scene.motion in ("sit", "lie down")
    strong = scene.level >= 4
    if scene.is_pair:
        social = 2 if scene.motion in ("dance", "wave", "bow") else 1
    else:
        social = -1 if resting else 0
    entertainment = _ENTERTAINMENT[scene.motion] + (1 if strong and not resting else 0)
    stamina = _EFFORT[scene.motion] - (1 if strong else 0)
    return scene.level, social, entertainment, stamina


_COLUMNS_PX = range(32, 113, 10)


def scene_labels(scene: Scene) -> list[float]:
    """What a clip's first frame shows, as 0s and 1s: who, in which clothes, where, when, doing what, how far right."""
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
    """True for the combinations of (first character, motion, place, time) that training never sees, about 6 %."""
    return is_held_out_combination(scene.characters[0], scene.motion, scene.place, scene.night)


def is_held_out_combination(character: str, motion: str, place: str, night: bool) -> bool:
    """The rule behind `is_held_out`: a hash of the combination, the same on every machine."""
    digest = hashlib.sha256(f"{character}|{motion}|{place}|{night}".encode()).digest()
    return digest[0] * 100 < _HELD_OUT_SHARE_PERCENT * 256
