"""The content of a clip of the pocket world: a frozen `Scene` and what follows from it."""

from __future__ import annotations

import dataclasses
import hashlib

from animegamer_rt.state.game import GameState

CHARACTERS = ("Mirel", "Dovan", "Zelki", "Bixo", "Tofi")
MOTIONS = ("walk", "run", "jump", "wave", "dance", "sit", "lie down", "fly", "bow", "stand")
ADVERBS = ("barely", "gently", "smoothly", "quickly", "wildly")
PLACES = ("meadow", "forest", "beach", "city", "room", "snowfield", "desert", "cloudland")
OUTFITS = ("everyday", "raincoat", "party")
TRAVELLING = ("walk", "run", "fly")

HEIGHT, WIDTH, FRAMES = 96, 144, 17

DEFAULT_PLACE, DEFAULT_NIGHT, DEFAULT_OUTFIT, DEFAULT_LEVEL = "meadow", False, "everyday", 3
POSITIONS = {"left": 40, "centre": 64, "right": 104}
PAIR_POSITIONS = {"left": 56, "centre": 64, "right": 88}
"""Named start positions, px. A pair stands 48 px apart around its centre, so it has less room."""

COLUMNS_PX = range(40, 105, 8)
"""Where a character or the centre of a pair may stand; every clip also ends at one of these."""

SPOTS = tuple(f"{column} {side}" for column in range(1, len(COLUMNS_PX) + 1) for side in ("left", "right"))
"""Names of column and facing, as in captions: the predictor cannot read an exact px off earlier shots."""

TRAVEL_PX = (8, 16, 24, 24, 32)
"""How far a travelling motion goes in a clip, by level: 0.5 px per frame at level 1, 2 at level 5."""
PAIR_SPACING_PX = 48

_HELD_OUT_SHARE_PERCENT = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """One clip: characters, motion, level, place and hour.

    level: 1..5. outfits: one per character. start_x: px, the centre of the character or of the pair. facing: where they
    look at the start, +1 (right) or -1. before: the motion in whose last pose they start; "": in their own. seed:
    varies swings a little.
    """

    characters: tuple[str, ...]
    motion: str
    level: int
    place: str
    night: bool
    outfits: tuple[str, ...]
    start_x: int = POSITIONS["centre"]
    seed: int = 0
    facing: int = 1
    before: str = ""

    def __post_init__(self) -> None:
        assert 1 <= len(self.characters) <= 2 and len(self.outfits) == len(self.characters)
        assert self.motion in MOTIONS and 1 <= self.level <= 5 and self.place in PLACES

    @property
    def is_pair(self) -> bool:
        """Whether the clip has two characters."""
        return len(self.characters) == 2

    def _room(self, direction: int) -> int:
        low, high = x_range(len(self.characters))
        return high - self.start_x if direction > 0 else self.start_x - low

    @property
    def direction(self) -> int:
        """The side they face at the end. Travellers turn round if there is too little room ahead and more behind."""
        ahead, behind = self._room(self.facing), self._room(-self.facing)
        turns = self.motion in TRAVELLING and ahead < min(behind, TRAVEL_PX[self.level - 1])
        return -self.facing if turns else self.facing

    @property
    def travel(self) -> int:
        """How far the characters travel during the clip, px."""
        if self.motion not in TRAVELLING:
            return 0
        return min(TRAVEL_PX[self.level - 1], self._room(self.direction))

    @property
    def end_x(self) -> int:
        """The x at the clip's end, px. The next turn of a game starts there (`follow`)."""
        return self.start_x + self.direction * self.travel

    @property
    def spot(self) -> str:
        """The name, one of SPOTS, of where they stand and look at the start."""
        column = min(range(len(COLUMNS_PX)), key=lambda index: abs(COLUMNS_PX[index] - self.start_x))
        return SPOTS[2 * column + (self.facing > 0)]


def x_range(characters: int) -> tuple[int, int]:
    """The minimum and maximum x, px, of one character or of the centre of a pair."""
    return (56, 88) if characters == 2 else (40, 104)


def follow(before: Scene | None, scene: Scene, position: str = "") -> Scene:
    """The scene as it begins after another: where that one ended, in its last pose, everybody on the same side.

    position: a named one to start at instead. Without a scene before, or if nobody stays, it is the centre.
    """
    count = len(scene.characters)
    first = dataclasses.replace(scene, start_x=position_x(position or "centre", count), facing=1, before="")
    if position == "right":
        first = dataclasses.replace(first, facing=-1)
    if before is None:
        return first
    stay = [name for name in before.characters if name in scene.characters]
    first = dataclasses.replace(first, before=before.motion)
    if not stay:
        return first
    x = before.end_x + _offset(before, stay[0]) if len(stay) == 1 else before.end_x
    on_right = before.characters.index(stay[0]) == 1 if before.is_pair else x > sum(x_range(1)) / 2
    if count == 2 and (scene.characters.index(stay[0]) == 1) != on_right:
        swapped = {"characters": scene.characters[::-1], "outfits": scene.outfits[::-1]}
        first = dataclasses.replace(first, **swapped)  # type: ignore[arg-type]
    if position:
        return first if position != "centre" else dataclasses.replace(first, facing=before.direction)
    if len(stay) == 1:
        x -= _offset(first, stay[0])
    low, high = x_range(count)
    return dataclasses.replace(first, start_x=max(low, min(high, x)), facing=before.direction)


def _offset(scene: Scene, name: str) -> int:
    """How far, px, a character of the scene stands from its x."""
    return (2 * scene.characters.index(name) - 1) * PAIR_SPACING_PX // 2 if scene.is_pair else 0


def position_x(name: str, characters: int) -> int:
    """The start x, px, of a named position: left, centre or right."""
    return (PAIR_POSITIONS if characters == 2 else POSITIONS)[name]


_ENTERTAINMENT = {"dance": 3, "fly": 2, "wave": 1, "jump": 1, "sit": -1, "lie down": -2}
_EFFORT = {"lie down": 3, "sit": 2, "stand": 1, "walk": -1, "fly": -1, "dance": -2, "jump": -2, "run": -3}


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
    entertainment = _ENTERTAINMENT.get(scene.motion, 0) + (1 if strong and not resting else 0)
    stamina = _EFFORT.get(scene.motion, 0) - (1 if strong else 0)
    return GameState(motion_level=scene.level, social=social, entertainment=entertainment, stamina=stamina)


def scene_labels(scene: Scene) -> list[float]:
    """The content of a shot as 0s and 1s: characters, outfits, place, night, motion, first pose, column, facing."""
    worn = dict(zip(scene.characters, scene.outfits, strict=True))
    labels = [
        *(name in worn for name in CHARACTERS),
        *(worn.get(name) == outfit for name in CHARACTERS for outfit in OUTFITS),
        *(scene.place == place for place in PLACES),
        scene.night,
        *(scene.motion == motion for motion in MOTIONS),
        *((scene.before or scene.motion) == motion for motion in MOTIONS),
        *(scene.start_x == x for x in COLUMNS_PX),
        scene.facing > 0,
    ]
    return [float(label) for label in labels]


def is_held_out(scene: Scene) -> bool:
    """Whether first character, motion, place and night are a combination excluded from training, about 6 % of all."""
    return is_held_out_combination(scene.characters[0], scene.motion, scene.place, scene.night)


def is_held_out_combination(character: str, motion: str, place: str, night: bool) -> bool:
    """The rule of `is_held_out`: a hash of the combination, the same on every machine."""
    digest = hashlib.sha256(f"{character}|{motion}|{place}|{night}".encode()).digest()
    return digest[0] * 100 < _HELD_OUT_SHARE_PERCENT * 256
