"""The interface of engines: the networks, with the same names, shapes and dtypes in every library.

Arguments and results are numpy arrays; what stays on a device (attention caches, vae caches) is passed as opaque
objects. One turn at a time (batch 1). Letters: D shot width, V vocabulary, r positions where the shot is read (226 in a
turn).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import DEFAULT_PARTS, PLAY_ROLES, PlanParts
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.engine_identity import EngineIdentity
from animegamer_rt.errors import UnusableOutputError
from animegamer_rt.noise import AnyNoise

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Frames = npt.NDArray[np.uint8]

PIXEL_FORMATS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"rgb24": (0, 1, 2), "rgba32": (0, 1, 2, 3), "bgra32": (2, 1, 0, 3)}
)
"""Pixel format -> `channel_order` of the vae parts: indices into R, G, B, A (A is always 255)."""


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Input of one predictor run: n tokens after a cached past, in b rows.

    ids i64 [1, n], the same in all rows; history_index i64 [b, n] (-1: the token's embedding, k >= 0: row k of the
    resampled shots); masks bool [b, n, n] (True: may attend; all may attend to the past), None: causal; history_shots
    f32 [s, D], s >= 1; readout i64 [r]: positions where the first row reads the shot. `extend` continues the last row.
    """

    ids: IntArray
    history_index: IntArray
    masks: npt.NDArray[np.bool_] | None
    history_shots: npt.NDArray[np.float32]
    readout: IntArray

    @classmethod
    def text(cls, ids: IntArray, shot_width: int) -> TokenBatch:
        """One causal row of text i64 [n]. The graph needs a shot output too: it is read at position 0 and unused."""
        count = len(ids)
        return cls(
            ids=ids[None],
            history_index=np.full((1, count), -1, np.int64),
            masks=None,
            history_shots=np.zeros((1, shot_width), np.float32),
            readout=np.zeros(1, np.int64),
        )

    def span(self, row: int, start: int, stop: int) -> TokenBatch:
        """One row's tokens from `start` to `stop`, for a run after those before them; only row 0 keeps its readout."""
        index = self.history_index[row : row + 1, start:stop]
        used = index[index >= 0]
        first, end = (int(used.min()), int(used.max()) + 1) if len(used) else (0, 1)
        return TokenBatch(
            ids=self.ids[:, start:stop],
            history_index=np.where(index < 0, -1, index - first),
            masks=None if self.masks is None else self.masks[row : row + 1, start:stop, start:stop],
            history_shots=self.history_shots[first:end],
            readout=np.zeros(1, np.int64) if row else (self.readout - start).clip(0),
        )

    def rows(self) -> list[TokenBatch]:
        """Each row alone."""
        return [self.span(row, 0, self.ids.shape[1]) for row in range(len(self.history_index))]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays by name, with causal masks written out."""
        arrays = {name: getattr(self, name) for name in self.__slots__}
        if self.masks is None:
            rows, count = self.history_index.shape
            arrays["masks"] = np.stack([np.tri(count, dtype=np.bool_)] * rows)
        return arrays

    def same_as(self, other: TokenBatch) -> bool:
        """Whether all arrays are equal."""
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class StateSlots:
    """The slots of a game state, each filled with the likeliest of the `options` (ids).

    between: the fixed ids that follow each choice but the last, and lead to the next slot.
    """

    options: tuple[int, ...]
    between: tuple[tuple[int, ...], ...]


ChooseNext = Callable[[StateSlots, int], FloatArray]
"""(slots, index of the option in the first one) -> the choices in the others, f32 [slots - 1]: indices of options, NaN
if an option's logits were not finite. Must be called before any other call of the predictor."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """Result of a predictor run.

    shot f32 [r, D]. logits f32 [V]: of the token after the last row. cache: keys and values of that row and the past.
    choose_next: chooses the rest of a state in one call; None if only `extend` is available.
    """

    shot: FloatArray
    logits: FloatArray
    cache: object
    choose_next: ChooseNext | None = None


class PredictorEngine(Protocol):
    """Prompt -> shot, and logits of the state."""

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        """Runs tokens after a past: a history (one row), or a turn (one row per readout).

        past: an earlier call's cache, or None. A call without a past may reuse the memory of all earlier caches. A call
        with a past leaves that cache valid until then, or until an `extend`.
        """
        ...

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        """Runs text i64 [n] after a cache; returns logits f32 [V] of the following token, and the longer cache."""
        ...


class DenoiseRun(Protocol):
    """One turn's denoising in progress; latent, last x0 and last difference stay on the device."""

    def step(self, coefficients: FloatArray, timestep: float, rows: tuple[int, ...], noise: AnyNoise) -> None:
        """One engine execution: network, guidance and solver. coefficients f32 [8]; noise: of the latent's shape.

        rows: (0, 1) for a CFG pair, (1,) for the conditional row alone (row 0 is unconditional).
        """
        ...

    def latent(self) -> FloatArray:
        """A copy of the current latent, f32 [1, 5, 16, h, w]."""
        ...


class DenoiserEngine(Protocol):
    """Noise + shot + motion scope -> latent."""

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> DenoiseRun:
        """Starts a turn from a latent of pure noise [1, 5, 16, h, w] and a shot f32 [226, D]."""
        ...


class VaeEngine(Protocol):
    """Latent -> frames u8 [n, H, W, C]; `channel_order` as in PIXEL_FORMATS, `flip` = bottom row first."""

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        """latent f32 [1, 3, 16, h, w] -> 9 frames, and the caches that `next` needs."""
        ...

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        """latent f32 [1, 2, 16, h, w] -> 8 frames."""
        ...


class EncoderEngine(Protocol):
    """Text features f32 [1, 30, C] and image features f32 [1, 196, C] -> shot f32 [226, D]. Not needed to play."""

    def encode(self, text_features: FloatArray, image_features: FloatArray) -> FloatArray:
        """The shot of a picture and its motion text."""
        ...


class TowerEngines(Protocol):
    """The towers that compute the encoder's inputs. They run once, when a game starts from a picture.

    tokens: number of ids of the motion text; height, width: of the picture in pixels.
    """

    tokens: int
    height: int
    width: int

    def text(self, ids: IntArray) -> FloatArray:
        """ids i64 [1, tokens] -> text features f32 [1, 30, C]."""
        ...

    def image(self, picture: FloatArray) -> FloatArray:
        """picture f32 [1, 3, height, width] in -1..1 -> image features f32 [1, 196, C]."""
        ...


NOTES = ("nothing", "no_motion", "second_motion", "substitute", "crowd", "undo", "goes_on")
"""What an instruction reader says of a text besides its scene.

nothing: the text asks for nothing that the bundle has. no_motion: a first turn names none. second_motion: it asks for
two. substitute: the nearest motion is drawn. crowd: it asks for more people than fit. undo: the last turn goes.
goes_on: it asks for what is shown already.
"""


@dataclass(frozen=True, slots=True)
class ReaderLogits:
    """Output of the instruction reader, float32; P people, C clothes, M motions, L places of the bundle.

    people [P, 3]: absent, named first, named second. clothes [P, C]. motion [M]. level [5]: levels 1..5. place [L].
    night [2]: day, night. position [N]. Above 0: refused [P] for people whom the text asks for and who find no
    room, notes for those of NOTES that hold, unknown [words] for a word that asks for what cannot be drawn.
    """

    people: FloatArray
    clothes: FloatArray
    motion: FloatArray
    level: FloatArray
    place: FloatArray
    night: FloatArray
    position: FloatArray
    refused: FloatArray
    notes: FloatArray
    unknown: FloatArray


class ReaderEngine(Protocol):
    """Words of an instruction and the scene before it -> the requested scene, as logits.

    scene_numbers: length of its scene input, P + 5, 2 P + 5 or 3 P + 10 for P people.
    """

    scene_numbers: int

    def read(self, features: IntArray, scene: IntArray) -> ReaderLogits:
        """features i64 [1, words, pieces] of `language.words`, scene i64 [1, numbers] of `stages.reader`."""
        ...


class PictureReaderEngine(Protocol):
    """A picture -> the scene in it, as logits; a picture shows no unknown words."""

    height: int
    width: int

    def read(self, picture: FloatArray) -> ReaderLogits:
        """picture f32 [1, 3, height, width] in -1..1."""
        ...


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Peak memory of the engines on their device since they were opened, including loading; `source`: who counted.

    allocated_bytes: how much of the peak was in use, if the library keeps a larger pool.
    """

    peak_bytes: int
    source: str
    allocated_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Engines:
    """The loaded engines of one bundle, for all plans with the same `parts`. `device` describes where they run.

    kind, library, machine, kernels, settings: as in `EngineIdentity`; `registry.open_engines` sets kind and parts.
    precision: role -> precision of its part, where that differs from the bundle's.
    attention: the denoiser's attention, of `engine_config.ATTENTIONS`; None where there is no choice.
    memory: reads the peak memory on the device; None if the library does not report it.
    reader, picture_reader: of a bundle that has them; they always run on the CPU.
    concurrent_prediction: the predictor may run in one thread while the denoiser or the vae runs in another: if they
    share no memory that is written to, and are faster together than one after the other.
    """

    predictor: PredictorEngine
    denoiser: DenoiserEngine
    vae: VaeEngine
    encoder: EncoderEngine | None = None
    device: str = "CPU"
    kind: str = ""
    library: str = ""
    machine: str = ""
    kernels: str = ""
    settings: str = ""
    concurrent_prediction: bool = False
    precision: Mapping[str, str] = field(default_factory=dict)
    attention: str | None = None
    memory: Callable[[], DeviceMemory] | None = None
    reader: ReaderEngine | None = None
    picture_reader: PictureReaderEngine | None = None
    parts: PlanParts = DEFAULT_PARTS

    def precision_of(self, bundle: Bundle, role: str) -> str:
        """The precision of a role's part, as far as known: its engine's, else that of its weights.

        Simulated engines also play bundles without parts: "no weights".
        """
        found = bundle.manifest.parts.get(self.parts.graphs(role)[0])
        return self.precision.get(role) or (found.precision if found is not None else "no weights")

    def identity(self, bundle: Bundle) -> str:
        """The text of their `EngineIdentity`: equal ones can continue each other's games to the same bytes."""
        precision = {role: self.precision_of(bundle, role) for role in PLAY_ROLES}
        parts = {role: bundle.part_hash(role, self.parts[role]) for role in PLAY_ROLES}
        built = self.library, self.machine, self.attention or "", self.kernels, parts, self.settings
        rules = bundle.rules_hash(self.parts)
        return str(EngineIdentity(self.kind, precision, *built, rules))


class EngineProvider(Protocol):
    """A backend: a module that loads a bundle's parts with one library. Chosen by `registry.open_engines`."""

    def load(self, bundle: Bundle, config: EngineConfig, parts: PlanParts = DEFAULT_PARTS) -> Engines:
        """The engines of these parts of a bundle, as `registry.open_engines` describes them. Raises BackendError."""
        ...


SAMPLED = 16
"""One in this many of a frame's rows and columns is compared first: nearly every picture already differs there."""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """Checks the output of a role's engine. precision: the engine's, for errors.

    Half precision can overflow. Infinity then becomes NaN, which spreads over the whole clip, and the conversion to
    uint8 paints it black: a turn that fails without an error. A frame is refused only if all of its pixels are equal:
    a night in which one pixel differs from the others by 1 of 255 is a picture.
    """

    stage: str
    precision: str = ""

    def numbers(self, what: str, values: FloatArray) -> FloatArray:
        """Returns `values`, float32 of any shape. Raises UnusableOutputError if one is NaN or infinite."""
        finite = np.isfinite(values)
        if not finite.all():
            found = f"{values.size - int(finite.sum())} of {values.size} are NaN or infinite"
            raise self._error(f"the {what} cannot be used", found, "finite numbers")
        return values

    def frames(self, first: int, frames: Frames) -> Frames:
        """Returns `frames`, u8 [n, H, W, C]; `first`: the index of the first of them in its turn.

        Raises UnusableOutputError if all pixels of a frame are equal.
        """
        for index, frame in enumerate(frames, first):
            pixel = frame[0, 0]
            if (frame[::SAMPLED, ::SAMPLED] == pixel).all() and (frame[0] == pixel).all() and (frame == frame[0]).all():
                what, found = f"frame {index} is empty", f"{pixel.tolist()} in all its pixels"
                raise self._error(what, found, "a picture")
        return frames

    def _error(self, what: str, found: str, expected: str) -> UnusableOutputError:
        return UnusableOutputError(what, stage=self.stage, precision=self.precision, found=found, expected=expected)
