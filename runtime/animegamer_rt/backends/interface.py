"""What an engine must offer: the four parts of the model, with names, shapes and dtypes the same in every library.

Knows numpy arrays only; whatever stays on a device (attention caches, vae caches) passes through as opaque objects.
One turn at a time (batch 1). r places read, N = 226 shot tokens, D shot width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from animegamer_rt.bundle.denoise_plan import BlockCache
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import EngineConfig

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Frames = npt.NDArray[np.uint8]

PartCache = dict[str, Any]
"""Parts that are loaded, by the hash of their files: kept from one bundle to the next, on one device."""

PIXEL_FORMATS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"rgb24": (0, 1, 2), "rgba32": (0, 1, 2, 3), "bgra32": (2, 1, 0, 3)}
)
"""Pixel format -> `channel_order` of the vae parts: indices into R, G, B, A (A is always 255)."""


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """n tokens after a past of c, in b rows: what one run of the predictor is given beside that past.

    ids i64 [1, n], of all rows; history_index i64 [b, n] (-1 = the token's own embedding, k >= 0 = row k of the
    resampled shots); masks bool [b, n, n] (True = may attend; the past is open to all); history_shots f32 [s, D],
    s >= 1; readout i64 [r]: where the first row reads the shot. The last row's text goes on.
    """

    ids: IntArray
    history_index: IntArray
    masks: npt.NDArray[np.bool_]
    history_shots: npt.NDArray[np.float32]
    readout: IntArray

    @classmethod
    def text(cls, ids: IntArray, shot_width: int) -> TokenBatch:
        """One causal row of text i64 [n]; the shot it reads, of its first place, is for nobody."""
        count = len(ids)
        return cls(
            ids=ids[None],
            history_index=np.full((1, count), -1, np.int64),
            masks=np.tri(count, dtype=np.bool_)[None],
            history_shots=np.zeros((1, shot_width), np.float32),
            readout=np.zeros(1, np.int64),
        )

    def same_as(self, other: TokenBatch) -> bool:
        """Whether all arrays are equal."""
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.__slots__)


@dataclass(frozen=True, slots=True)
class Prefill:
    """shot f32 [r, D]; logits f32 [V] after the last row's last token; its cache, with the past's."""

    shot: FloatArray
    logits: FloatArray
    cache: object


class PredictorEngine(Protocol):
    """Prompt -> shot and state logits."""

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        """Reads tokens after a past, in one run: a history, or a turn in a row for each of its read-outs.

        past: an earlier call's cache, or None for none. A call without a past may take the memory of every cache
        before it; one with a past leaves that valid until then or until an `extend`.
        """
        ...

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        """Feeds text i64 [n] after what is cached; logits f32 [V] after the last one, and the longer cache."""
        ...


class DenoiseRun(Protocol):
    """One turn's denoising under way; latent, last x0 and last difference stay where the engine runs."""

    def step(
        self,
        coefficients: FloatArray,
        timestep: float,
        rows: tuple[int, ...],
        noise: FloatArray,
        blocks: BlockCache | None = None,
    ) -> None:
        """One engine execution: network, guidance and solver. coefficients f32 [8], noise f32 as the latent.

        rows: (0, 1) for a pair, (1,) for the conditional row alone (row 0 is unconditional).
        blocks: what of the network is kept for later steps or taken from earlier ones; None always where
        `skippable_blocks` is 0.
        """
        ...

    def latent(self) -> FloatArray:
        """The latent now, f32 [1, T', 16, h, w], as a copy."""
        ...


class DenoiserEngine(Protocol):
    """Noise + shot + motion scope -> latent.

    skippable_blocks: how many blocks of its transformer can be taken from a cache; 0 where it keeps none.
    """

    skippable_blocks: int

    def start(self, latent: FloatArray, shot: FloatArray, motion_scope: float) -> DenoiseRun:
        """Starts from a latent of pure noise f32 [1, T', 16, h, w] and a shot f32 [226, D]."""
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
        """The shot of a described picture."""
        ...


class TowerEngines(Protocol):
    """What makes the encoder's features: used once, to start a game from a picture, and never to play on.

    tokens: length of the motion's ids; height, width: of the picture.
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


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The most that engines have held on their device since they were opened, loading included, and by whose count.

    allocated_bytes: what of it was in use, where the library keeps more than it uses.
    """

    peak_bytes: int
    source: str
    allocated_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Engines:
    """The parts of one bundle, loaded. `device` says in words where they run.

    precision: what a part computes in, by its name in the bundle, where that is not what the bundle says.
    attention: how the denoiser's tokens attend, of `choose.ATTENTIONS`; None where it cannot be chosen.
    memory: asks for the peak on the device; None where the library does not say.
    concurrent_prediction: the predictor may run in one thread while the denoiser or the vae runs in another: true where
    they share no memory that is written to, and where the two together are faster than one after the other.
    """

    predictor: PredictorEngine
    denoiser: DenoiserEngine
    vae: VaeEngine
    encoder: EncoderEngine | None = None
    device: str = "CPU"
    concurrent_prediction: bool = False
    precision: Mapping[str, str] = field(default_factory=dict)
    attention: str | None = None
    memory: Callable[[], DeviceMemory] | None = None


class EngineProvider(Protocol):
    """A backend: the module that loads a bundle's parts with one library. `registry.open_engines` chooses it."""

    def load(self, bundle: Bundle, config: EngineConfig, cache: PartCache | None = None) -> Engines:
        """The engines of a bundle, as `registry.open_engines` describes them. Raises BackendError."""
        ...
