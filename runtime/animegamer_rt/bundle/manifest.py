"""What a bundle says about itself: the records of `manifest.json`.

Knows the fields and their meaning; reading, verifying and finding bundles is `bundle`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from animegamer_rt.state.game import MOTION_SOURCES, MOTION_TABLES

from .config import check_choice

FORMAT_NAME = "animegamer-bundle"
FORMAT_VERSION = 2
"""Raised whenever an older program would read a newer bundle wrongly, or a newer one an older. 2: the predictor is one
part."""

RANDOM_WEIGHTS = "random weights"
ORIGINS = ("trained", "checkpoints", RANDOM_WEIGHTS)
"""trained: by this project's own script; checkpoints: from the user's; random weights: only for time and memory."""

EXACT = "exact"
"""The plan that every other one is measured against."""


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
    """Longest prompt the predictor reads in one go, in tokens."""

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Of the latent of a whole turn."""
        return 1, self.latent_frames, self.latent_channels, self.latent_height, self.latent_width


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """File names of the tokenizer: a sentencepiece model, and {token: id} of the tokens added to it."""

    model: str = "tokenizer.model"
    added_tokens: str = "added_tokens.json"
    bos: int = 1


@dataclass(frozen=True, slots=True)
class MotionTokenizer:
    """How the text tower's ids are made of a motion text; the text is cut to the tower's tokens and filled up with 0.

    space_first: a space mark goes before the text; end: the id that closes it (T5: a model of its own, True, and 1).
    """

    model: str = "tokenizer.model"
    space_first: bool = False
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Compatibility:
    """How closely a bundle follows the published reference; `REFERENCE` reproduces it, quirks and all.

    readout: `aligned` reads the shot at q0..q225, `reference` 3 positions later (MODEL.md section 2).
    history_embeddings_in_state: whether the state read-out sees the earlier shots.
    history_strengths: `predicted` strengths in history turns, or `zero` as the reference formats them.
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


REFERENCE = Compatibility(
    readout="reference",
    history_embeddings_in_state=False,
    history_strengths="zero",
    motion_table="demo",
    motion_source="social",
    history_turns=0,
)
"""The published demo, to the number."""


@dataclass(frozen=True, slots=True)
class Part:
    """One network of the bundle: its file, further data files beside it, and the precision of its weights.

    inputs, outputs: by tensor name, {"dtype": "float32", "shape": [1, 226, 192]}; an axis that varies has a name.
    int8_file: the same over the same data files, computed in 8-bit integers; only the CPU plays it. Empty: none.
    """

    file: str
    precision: str = "fp32"
    data_files: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    int8_file: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """All files that it names."""
        return (self.file, *self.data_files, *([self.int8_file] if self.int8_file else []))


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size in bytes and sha256 (lower-case hex) of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """A denoise plan as written by `schedule`, with its measured fidelity against the exact plan."""

    plan: Mapping[str, Any]
    fidelity: Mapping[str, Any] = field(default_factory=dict)
    default: bool = False


def unmeasured(plans: Mapping[str, PlanEntry]) -> dict[str, PlanEntry]:
    """The plans before anyone has measured them: without figures, and `exact`, which needs none, is the default."""
    return {name: replace(entry, fidelity={}, default=name == EXACT) for name, entry in plans.items()}


@dataclass(frozen=True, slots=True)
class World:
    """What the bundle was taught, for suggestions. Instructions outside it are allowed, with less to expect."""

    characters: tuple[str, ...] = ()
    motions: tuple[str, ...] = ()
    adverbs: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """A built engine and what it was built for; anything else is refused as stale.

    built_for: `library`, its `version`, the GPU's `arch` (sm89) among others; onnx_sha256: `Bundle.part_sha256`.
    """

    file: str
    built_for: Mapping[str, str] = field(default_factory=dict)
    onnx_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of `manifest.json`. `parts`, `plans` and `files` are by name; `sizes` holds each network's size record."""

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

    def __post_init__(self) -> None:
        check_choice(self.origin, ORIGINS, "origin")
