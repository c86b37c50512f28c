"""A game that starts from an image: image and motion text -> towers -> encoder -> a turn 0 without a clip.

The reference never starts like this, but the denoiser was trained on shots of pictures (MODEL.md sections 0 and 1), and
prompts contain earlier shots. So the picture's shot becomes the first entry of the history: later turns continue from
it as from any turn, and it leaves the window like any turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from animegamer_rt.backends.interface import EncoderEngine, TowerEngines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import PICTURE_ROLES
from animegamer_rt.errors import BundleError, ConfigError, InstructionError
from animegamer_rt.state.game import NEUTRAL, Instruction, Scene

from .image import MAX_MEGAPIXELS, Picture, decode_picture, prepare, read_picture
from .prompt import HistoryTurn, open_sentencepiece
from .reader import InstructionReader

_MOTION_FIELD = re.compile(r"\bmotion:\s*([^;.]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ImageStart:
    """What a game starts from. `caption`: the text of turn 0 in the history; `motion`: the text tower's input.

    name: the picture's file name; empty for a picture given as bytes.
    """

    name: str
    picture: Picture
    caption: str
    motion: str


def read_image_start(
    bundle: Bundle, history_turns: int, image: Path | bytes, motion: str, megapixels: int = MAX_MEGAPIXELS
) -> ImageStart:
    """Reads and checks picture and motion; needs no engine.

    image: a file, or its bytes; megapixels: most that bytes may hold.
    motion: words ("gently wave"), or a caption: its `Motion:` goes to the text tower, all of it into the prompt.
    Raises BundleError, ConfigError, InstructionError or PictureError.
    """
    missing = [part for part in PICTURE_ROLES if part not in bundle.manifest.parts]
    if missing:
        raise BundleError(
            "the bundle cannot start a game from a picture",
            where=bundle.folder,
            found=f"no {', '.join(missing)}",
            expected=", ".join(PICTURE_ROLES),
            do="export it with its encoder parts, or omit --image",
        )
    if history_turns == 0:
        raise ConfigError(
            "no turn would see the picture",
            found="a history of 0 turns",
            expected="1 or more",
            do="use --history-turns 1 or more, or omit --image",
        )
    text = Instruction.parse(motion).text
    words = motion_text(text)
    picture = read_picture(image) if isinstance(image, Path) else decode_picture(image, megapixels=megapixels)
    name = image.name if isinstance(image, Path) else ""
    return ImageStart(name, picture, text if _MOTION_FIELD.search(text) else f"Motion: {words}.", words)


def motion_text(text: str) -> str:
    """The text tower's input: a caption's `Motion:` field, or the words unchanged. Raises InstructionError."""
    field = _MOTION_FIELD.search(text)
    if field is None and ":" in text:
        raise InstructionError(
            "the caption has no motion", found=repr(text), expected="a field like 'Motion: gently wave;'"
        )
    return field[1].strip() if field else text.rstrip(" .")


def encode_image_start(
    bundle: Bundle,
    start: ImageStart,
    towers: TowerEngines,
    encoder: EncoderEngine,
    reader: InstructionReader | None = None,
) -> tuple[HistoryTurn, Scene | None]:
    """Turn 0 as the prompts of later turns see it (its state is neutral), and the scene in its picture.

    The scene is None if the bundle has no picture reader, or recognises nobody.
    """
    size = bundle.manifest.geometry
    picture = prepare(start.picture, towers.height, towers.width, size.width / size.height)
    ids = motion_ids(bundle, start.motion, towers.tokens)
    shot = encoder.encode(towers.text(ids), towers.image(picture)).astype(np.float16)
    scene = None if reader is None else reader.read_image(start.picture, Instruction(start.caption))
    return HistoryTurn(start.caption if scene is None else scene.caption, NEUTRAL, shot), scene


def motion_ids(bundle: Bundle, motion: str, tokens: int) -> npt.NDArray[np.int64]:
    """Token ids int64 [1, tokens] of a motion text: truncated to leave room for the end id, then padded with 0."""
    tokenizer = bundle.manifest.motion_tokenizer
    words = list(open_sentencepiece(bundle.path(tokenizer.model), tokenizer.space_first).encode(motion))
    end = [] if tokenizer.end is None else [tokenizer.end]
    ids = [*words[: tokens - len(end)], *end]
    return np.array([ids + [0] * (tokens - len(ids))], np.int64)
