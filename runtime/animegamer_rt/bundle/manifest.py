"""The records of `manifest.json`: what a bundle declares about itself.

`loader` finds, reads and verifies bundles; `writer` writes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from animegamer_rt.errors import ConfigError
from animegamer_rt.state.game import LEVELS, MOTION_SOURCES, MOTION_TABLES
from animegamer_rt.untrusted import short

from .config import check_choice, check_range
from .roles import READER

FORMAT_NAME = "animegamer-bundle"
FORMAT_VERSION = 2
"""Increased whenever one version of the program would misread another's bundles. 2: the predictor is one part."""
READER_FORMAT_VERSION, PARTS_FORMAT_VERSION = 3, 4
"""For bundles with a part `reader`, and for those whose plans name parts: older programs refuse them as too new."""

RANDOM_WEIGHTS = "random weights"
ORIGINS = ("trained", "checkpoints", RANDOM_WEIGHTS)
"""Origin of weights. trained: by this project's script; checkpoints: the user's; random weights: only for timing."""

SIZE_LIMITS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "height": (1, 16_384),
        "width": (1, 16_384),
        "latent_height": (1, 4096),
        "latent_width": (1, 4096),
        "shot_width": (1, 65_536),
        "frames": (1, 1024),
        "fps": (1, 240),
        "latent_frames": (1, 1024),
        "latent_channels": (1, 1024),
        "shot_tokens": (1, 4096),
        "window_tokens": (1, 2**20),
    }
)
"""Field of Geometry -> its range. A full-size clip has 17 frames of 480 x 720."""
MAX_PIXELS = 2**29
"""Over all frames of a clip: 1.5 GB of RGB."""
MAX_TOKEN_ID = 2**31 - 1
MAX_HISTORY_TURNS = 64
MAX_FILE_BYTES = 2**50

EXACT = "exact"
"""The plan that all others are compared with."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of one turn; frames are HWC uint8."""

    height: int
    width: int
    latent_height: int
    latent_width: int
    shot_width: int
    frames: int = 17
    fps: int = 8
    latent_frames: int = 5
    latent_channels: int = 16
    shot_tokens: int = 226
    window_tokens: int = 4096
    """Longest prompt of the predictor, in tokens."""

    def __post_init__(self) -> None:
        for name, (low, high) in SIZE_LIMITS.items():
            check_range(getattr(self, name), low, high, f"geometry: {name}")
        pixels, numbers = self.frames * self.height * self.width, math.prod(self.latent_shape)
        check_range(pixels, 1, MAX_PIXELS, "geometry: frames x height x width")
        check_range(numbers, 1, MAX_PIXELS, "geometry: numbers of a latent")

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Shape of a turn's latent: [1, latent frames, channels, height, width]."""
        return 1, self.latent_frames, self.latent_channels, self.latent_height, self.latent_width


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """File names of the tokenizer: a sentencepiece model, and {token: id} of the tokens added to it."""

    model: str = "tokenizer.model"
    added_tokens: str = "added_tokens.json"
    bos: int = 1

    def __post_init__(self) -> None:
        check_range(self.bos, 0, MAX_TOKEN_ID, "tokenizer: bos")


@dataclass(frozen=True, slots=True)
class MotionTokenizer:
    """How a motion text becomes the text tower's ids: truncated to the tower's number of tokens and padded with 0.

    space_first: a space mark precedes the text. end: the id that ends it. (T5: its own model, True, and 1.)
    """

    model: str = "tokenizer.model"
    space_first: bool = False
    end: int | None = None

    def __post_init__(self) -> None:
        check_range(0 if self.end is None else self.end, 0, MAX_TOKEN_ID, "motion_tokenizer: end")


@dataclass(frozen=True, slots=True)
class Compatibility:
    """How closely a bundle follows the published reference; `REFERENCE` reproduces it with its quirks.

    readout: `aligned` reads the shot at q0..q225, `reference` 3 positions later (MODEL.md section 2).
    history_embeddings_in_state: whether the state readout sees the earlier shots.
    history_strengths: `predicted` strengths in history turns, or `zero` as in the reference.
    motion_table, motion_source: MODEL.md section 3.
    history_turns: earlier turns in the prompt; the reference's demo has 0.
    """

    readout: str = "aligned"
    history_embeddings_in_state: bool = True
    history_strengths: str = "predicted"
    motion_table: str = "paper"
    motion_source: str = "motion_level"
    history_turns: int = 4

    def __post_init__(self) -> None:
        check_choice(self.readout, ("aligned", "reference"), "compatibility: readout")
        check_choice(self.history_strengths, ("predicted", "zero"), "compatibility: history_strengths")
        check_choice(self.motion_table, tuple(MOTION_TABLES), "compatibility: motion_table")
        check_choice(self.motion_source, MOTION_SOURCES, "compatibility: motion_source")
        check_range(self.history_turns, 0, MAX_HISTORY_TURNS, "compatibility: history_turns")


REFERENCE = Compatibility(
    readout="reference",
    history_embeddings_in_state=False,
    history_strengths="zero",
    motion_table="demo",
    motion_source="social",
    history_turns=0,
)
"""The settings of the published demo."""


@dataclass(frozen=True, slots=True)
class Part:
    """One graph of a part: its ONNX file, its data files, and the precision of its weights.

    inputs, outputs: by tensor name, {"dtype": "float32", "shape": [1, 226, 192]}; a variable axis has a name.
    int8_file: the same network over the same data files, computed in 8-bit integers, only for the CPU. Empty: none.
    network: the kind of network, which determines its code and its record of `sizes`. Empty: as in `roles.NETWORKS`.
    """

    file: str
    precision: str = "fp32"
    data_files: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    int8_file: str = ""
    network: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file, *self.data_files, *([self.int8_file] if self.int8_file else []))


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size in bytes and sha256 (lower-case hex) of one file."""

    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        check_range(self.bytes, 0, MAX_FILE_BYTES, "files: bytes")
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ConfigError("not a sha256", where="files", found=short(self.sha256), expected="64 hex digits")


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A denoise plan (`DenoisePlan.to_dict`) with its measured figures.

    fidelity: figures against the plan that `against` names, by default `exact`. A distilled plan may have other goals
    than SSIM; a plan without any figures is not played.
    parts: role of `roles.CHOICES` -> part, where it is not the default one.
    """

    plan: Mapping[str, Any]
    fidelity: Mapping[str, Any] = field(default_factory=dict)
    default: bool = False
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """The words that the model was trained on, for suggestions. Other instructions are allowed but work less well."""

    characters: tuple[str, ...] = ()
    motions: tuple[str, ...] = ()
    adverbs: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReaderWords:
    """The meaning of the part `reader`'s outputs: a caption's words, in the order of each output.

    clothes, positions: names for clients and the store; clothes_words, position_words: the same in a caption
    ("raincoat": "a raincoat"; "left": "on the left"). The first clothes are what everybody wears when a game starts.
    manners: one per level of motion, weakest first. vocabulary: the words of the part's training texts, separated by
    spaces; empty if unknown. undrawable: words for things that the bundle cannot draw, whatever the part makes of them,
    separated by spaces. language: the file of phrases (`language.phrases`); empty: none.
    """

    people: tuple[str, ...]
    clothes: tuple[str, ...]
    clothes_words: tuple[str, ...]
    motions: tuple[str, ...]
    manners: tuple[str, ...]
    places: tuple[str, ...]
    positions: tuple[str, ...]
    position_words: tuple[str, ...]
    vocabulary: str = ""
    undrawable: str = ""
    language: str = ""

    def __post_init__(self) -> None:
        _check_count("clothes_words", self.clothes_words, len(self.clothes))
        _check_count("position_words", self.position_words, len(self.positions))
        _check_count("manners", self.manners, len(LEVELS))
        for name in self.__slots__:
            if name not in ("vocabulary", "undrawable", "language") and not getattr(self, name):
                raise ConfigError("a list of words is empty", where=f"reader: {name}", expected="at least one word")


def _check_count(name: str, words: tuple[str, ...], expected: int) -> None:
    if len(words) != expected:
        raise ConfigError(
            "a list of words has the wrong length", where=f"reader: {name}", found=words, expected=expected
        )


@dataclass(frozen=True, slots=True)
class Engine:
    """A built engine and what it was built for; anything else makes it stale.

    built_for: `library`, its `version`, the GPU's `arch` (sm89) and more; onnx_sha256: `Bundle.part_sha256`.
    """

    file: str
    built_for: Mapping[str, str] = field(default_factory=dict)
    onnx_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of `manifest.json`. `parts` is by graph, `plans` and `files` by name, `sizes` by kind of network or part."""

    format: str
    format_version: int
    name: str
    description: str
    origin: str
    geometry: Geometry
    parts: Mapping[str, Part]
    plans: Mapping[str, PlanEntry]
    files: Mapping[str, FileRecord]
    tokenizer: Tokenizer = Tokenizer()
    motion_tokenizer: MotionTokenizer = MotionTokenizer()
    compatibility: Compatibility = Compatibility()
    sizes: Mapping[str, Any] = field(default_factory=dict)
    quality: Mapping[str, Any] = field(default_factory=dict)
    world: World = World()
    engines: Mapping[str, Engine] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""
    reader: ReaderWords | None = None
    """Set if the bundle has the part `reader`."""

    def __post_init__(self) -> None:
        check_choice(self.origin, ORIGINS, "origin")
        if (READER in self.parts) != (self.reader is not None):
            found = "only the part" if self.reader is None else "only the words"
            raise ConfigError(
                "a part `reader` and its words go together", where="reader", found=found, expected="both, or neither"
            )
