"""Reads clips of the pocket world with the shipped judge: characters, place, hour, motion, clothes.

Runs in onnxruntime without torch. `python -m animegamer_pocket.judge` trains the network of model.py.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

from animegamer_pocket.world.scene import CHARACTERS, FRAMES, HEIGHT, MOTIONS, OUTFITS, PLACES, WIDTH
from animegamer_rt.errors import ConfigError

SHIPPED = Path(__file__).with_name("judge.onnx")
SEEN_FRAMES = (0, 2, 4, 6, 8, 10, 12, 14, 16)
"""The frames of a clip that the judge sees."""
COLUMNS = 36
"""Columns along the width where a figure may stand, 4 px each."""
OUTPUTS = ("counts", "where", "outfits", "offsets", "smeared", "place", "night", "motion", "level")
_BATCH = 16


def halve(frames: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Frames uint8 [T, 96, 144, 3] at half size, uint8 [T, 48, 72, 3], by averaging."""
    wide = frames.astype(np.uint16)
    summed = wide[:, ::2, ::2] + wide[:, 1::2, ::2] + wide[:, ::2, 1::2] + wide[:, 1::2, 1::2]
    return ((summed + 2) // 4).astype(np.uint8)


def judge_input(halves: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Seen frames at half size, uint8 [N, 9, 48, 72, 3] -> the judge's input, float32 [N, 27, 48, 72], -1..1."""
    channels_first = halves.transpose(0, 1, 4, 2, 3).reshape(len(halves), -1, *halves.shape[2:4])
    return channels_first.astype(np.float32) / 127.5 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """The judge's reading of one clip.

    counts: of each of the five characters, 0, 1 or 2 (two or more). smeared: a figure is half transparent, cut, blended
    with another or blurred away. outfits: of the characters seen. level: motion level 1..5. positions: each seen
    character's x in the first and the last frame, px.
    """

    counts: dict[str, int]
    smeared: bool
    place: str
    night: bool
    motion: str
    level: int
    outfits: dict[str, str]
    positions: dict[str, tuple[float, float]]

    @property
    def characters(self) -> frozenset[str]:
        """The characters seen, regardless of count."""
        return frozenset(name for name, count in self.counts.items() if count)

    @property
    def doubled(self) -> bool:
        """Whether a character is seen more than once."""
        return any(count > 1 for count in self.counts.values())

    @property
    def one_of_each(self) -> bool:
        """Whether no character is doubled or smeared."""
        return not self.doubled and not self.smeared

    @property
    def start_x(self) -> float | None:
        """The centre of all seen characters in the first frame, px; None if there are none."""
        starts = [start for start, _ in self.positions.values()]
        return sum(starts) / len(starts) if starts else None

    def shows_once_each(self, names: frozenset[str]) -> bool:
        """Whether exactly these characters are seen, once each."""
        return all(count == (name in names) for name, count in self.counts.items())


class Judge:
    """The trained judge in onnxruntime. Not thread-safe."""

    def __init__(self, path: Path = SHIPPED) -> None:
        """Opens a judge. Raises ConfigError for an invalid file."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
            outputs = tuple(output.name for output in session.get_outputs())
        except Exception as error:
            raise _not_a_judge(path, getattr(error, "strerror", None) or str(error).partition("\n")[0]) from error
        if outputs != OUTPUTS:
            raise _not_a_judge(path, f"outputs {', '.join(outputs)}")
        self._session = session

    def read(self, clips: npt.NDArray[np.uint8]) -> list[Reading]:
        """Reads clips, uint8 [N, 17, 96, 144, 3] RGB. Raises ValueError for another shape."""
        if clips.ndim != 5 or clips.shape[1:] != (FRAMES, HEIGHT, WIDTH, 3):
            raise ValueError(f"clips are {clips.shape}, expected [N, {FRAMES}, {HEIGHT}, {WIDTH}, 3]")
        return self.read_seen(np.stack([halve(clip[list(SEEN_FRAMES)]) for clip in clips]))

    def read_seen(self, frames: npt.NDArray[np.uint8]) -> list[Reading]:
        """Reads clips reduced to `SEEN_FRAMES` at half size: uint8 [N, 9, 48, 72, 3]."""
        readings: list[Reading] = []
        for start in range(0, len(frames), _BATCH):
            feeds = {"clips": judge_input(frames[start : start + _BATCH])}
            rows = zip(*self._session.run(list(OUTPUTS), feeds), strict=True)
            readings += [reading_of(dict(zip(OUTPUTS, row, strict=True))) for row in rows]
        return readings


def reading_of(found: dict[str, npt.NDArray[np.float32]]) -> Reading:
    """One clip's reading from its row of every output (`model.Network` has their shapes)."""
    counts = {name: int(found["counts"][index].argmax()) for index, name in enumerate(CHARACTERS)}
    outfits, positions = {}, {}
    for index, name in enumerate(CHARACTERS):
        if not counts[name]:
            continue
        column = int(found["where"][index].argmax())
        outfits[name] = OUTFITS[int(found["outfits"][index, :, column].argmax())]
        middle = (column + 0.5) * WIDTH / COLUMNS
        start, end = (middle + WIDTH * float(offset) for offset in found["offsets"][index, :, column])
        positions[name] = (round(start, 1), round(end, 1))
    return Reading(
        counts=counts,
        smeared=bool(found["smeared"][0] > 0),
        place=PLACES[int(found["place"].argmax())],
        night=bool(found["night"][0] > 0),
        motion=MOTIONS[int(found["motion"].argmax())],
        level=1 + int(found["level"].argmax()),
        outfits=outfits,
        positions=positions,
    )


def _not_a_judge(path: Path, found: str) -> ConfigError:
    return ConfigError("not pocket's judge", where=path, found=found, expected="judge.onnx of animegamer_pocket.judge")
