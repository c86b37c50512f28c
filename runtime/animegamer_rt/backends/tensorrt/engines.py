"""Implements the engine interface over TensorRT engines: buffers, bindings, and the order of executions.

It uses the interface in `device` only. Parts that share a scratch run on one stream, so they need no waits between
them; the host waits when it reads a result (shot, logits, latent, frames). A predictor with its own scratch has its own
stream. Only the shot passes from it to the denoiser, through host memory, and the host has waited for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from animegamer_rt.backends.interface import FloatArray, Frames, IntArray, Prefill, TokenBatch
from animegamer_rt.bundle.roles import CACHE_PREFIX, DEFAULT_PARTS, DENOISER, ENCODER, PREDICTOR, VAE, PlanParts
from animegamer_rt.errors import BackendError
from animegamer_rt.noise import AnyNoise, Noise, as_array, load_table

from . import runtime_cache
from .buffers import Buffers
from .device import Array, Context, Device, Engine, Shape, Stream

STATE_TENSORS = (("latent", "next_latent"), ("x0_prev", "x0"), ("difference", "next_difference"))
"""(input, output) of a step: each output is copied to its input, so that all steps use the same addresses and share one
graph per kind of step. It costs three copies of 1.7 MB per step at full size."""
NOISE_KEY, NOISE_TABLE = "noise.key", "noise.table"
"""Buffers for drawing noise: of `Noise.key` and of `noise.load_table`."""
PAIR, SINGLE = (0, 1), (1,)
SLOTS = 2
"""Pinned staging slots for a step's host values: the host fills one while the GPU may still read the other."""


def scratch_index(graph: str, scratches: int) -> int:
    """The index of a graph's scratch, out of one or two: the predictor's is the last."""
    return scratches - 1 if graph == PREDICTOR else 0


@dataclass(frozen=True, slots=True)
class StreamScratch:
    """A stream, and the address and bytes of the scratch for all executions on it."""

    stream: Stream
    scratch: int
    scratch_bytes: int


class EngineSet:
    """The loaded engines of one bundle, their buffers, streams and contexts. `allocate` comes before `context`."""

    streams: Mapping[str, StreamScratch]
    """Part -> its stream and scratch; set by `allocate`."""

    def __init__(
        self,
        device: Device,
        engines: Mapping[str, Engine],
        sha256: Mapping[str, str],
        parts: PlanParts = DEFAULT_PARTS,
    ) -> None:
        """engines: by graph of `parts`. sha256: graph -> hash of the engine's file."""
        self.device, self.engines, self.buffers, self.parts = device, engines, Buffers(), parts
        self._sha256, self._saved = sha256, False
        for part, engine in engines.items():
            sizes = {name: tensor.bytes for name, tensor in engine.tensors.items()}
            if part == PREDICTOR:
                for cache, longer in self.predictor_caches:
                    # The profile allows the longest past followed by the longest prompt, twice what is ever used.
                    sizes.pop(longer)
                    most = sizes.pop(cache)
                    self.buffers.declare({_slot(cache, slot): most for slot in range(SLOTS)})
            shared = {name: sizes.pop(name) for name in list(sizes) if name.startswith(CACHE_PREFIX)}
            self.buffers.declare(shared)
            self.buffers.declare({f"{part}.{name}": size for name, size in sizes.items()})
        if device.draws:
            self.buffers.declare({NOISE_KEY: 24, NOISE_TABLE: load_table().nbytes})
        self.buffers.declare({f"{DENOISER}.rows.{len(rows)}": 8 * len(rows) for rows in (PAIR, SINGLE)})

    @property
    def predictor_caches(self) -> list[tuple[str, str]]:
        """(input, output) of each of the predictor's caches."""
        tensors = self.engines[PREDICTOR].tensors
        names = (
            [name for name in tensors if name.startswith(CACHE_PREFIX) and tensors[name].is_input is given]
            for given in (True, False)
        )
        return list(zip(*names, strict=True))

    def save_compiled(self) -> None:
        """Saves compiled kernels, once, after every part has run; stops at the first file that cannot be written."""
        if not self._saved:
            self._saved = True
            contents = ((part, engine.compiled()) for part, engine in self.engines.items())
            all(runtime_cache.save(self._sha256[part], content) for part, content in contents if content)

    def allocate(self, scratches: Sequence[int]) -> None:
        """Allocates all buffers, and a stream with a scratch of each of these sizes. Raises BackendError."""
        device = self.device
        self.buffers.allocate(device)
        # The second stream is the predictor's. Its work is short, and the player waits for the state.
        streams = [
            StreamScratch(device.stream(urgent=number > 0), device.allocate(max(size, 1)), size)
            for number, size in enumerate(scratches)
        ]
        self.streams = {part: streams[scratch_index(part, len(streams))] for part in self.engines}

    def context(self, part: str, profile: int = 0, *, few_shapes: bool = True) -> Context:
        """A context of a part; every tensor but the attention caches is bound to its buffer."""
        assigned = self.streams[part]
        context = self.engines[part].context(
            profile, assigned.stream, assigned.scratch, assigned.scratch_bytes, few_shapes
        )
        for name in self.engines[part].tensors:
            if not name.startswith(CACHE_PREFIX):
                context.bind(name, self.buffers[f"{part}.{name}"])
            elif part != PREDICTOR:
                context.bind(name, self.buffers[name])
        return context

    def send(self, context: Context, part: str, values: Mapping[str, Array]) -> None:
        """Sets inputs' shapes and queues copies of their values. Raises BackendError for a shape beyond the profile."""
        for name, value in values.items():
            most = self.engines[part].tensors[name].shape
            if len(most) != value.ndim or any(length > limit for length, limit in zip(value.shape, most, strict=True)):
                raise _too_large(name, part, value.shape, most)
            context.shape(name, value.shape)
            self.streams[part].stream.copy_in(self.buffers[f"{part}.{name}"], np.ascontiguousarray(value))

    def receive(self, context: Context, part: str, name: str, dtype: type[np.generic]) -> Array:
        """An output as a new array; waits for the execution."""
        array = np.empty(context.output_shape(name), dtype)
        self.streams[part].stream.copy_out(array, self.buffers[f"{part}.{name}"])
        return array


def _too_large(what: str, part: str, found: object, most: object) -> BackendError:
    return BackendError(
        f"{what} is larger than the engine of {part} was built for",
        found=found,
        expected=f"at most {most}",
        do="use a shorter instruction, or build with a larger --longest-prompt",
    )


@dataclass(frozen=True, slots=True)
class _Cache:
    """A handle on one set of caches; a later call that writes the set makes it invalid."""

    slot: int
    written: int
    shape: Shape


class Predictor:
    """Implements interface.PredictorEngine. Prompts and extends use one profile, so the engine holds weights once.

    There are two sets of caches: a call reads one and writes the other, so what it read stays valid.
    """

    def __init__(self, parts: EngineSet) -> None:
        # Hardly any two prompts have the same length.
        self._parts, self._context = parts, parts.context(PREDICTOR, few_shapes=False)
        self._caches = parts.predictor_caches
        one, heads, self._most_tokens, width = parts.engines[PREDICTOR].tensors[self._caches[0][0]].shape
        self._empty_past = _Cache(1, 0, (one, heads, 0, width))
        self._shot_width = parts.engines[PREDICTOR].tensors["history_shots"].shape[1]
        self._written = [0] * SLOTS
        self._calls = 0

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        first, *others = tokens.rows()
        before = self._empty_past if past is None else past
        cache = self._run(first, before)
        shot = self._parts.receive(self._context, PREDICTOR, "shot", np.float32)[0]
        for row in others:
            cache = self._run(row, before)
        return Prefill(shot, self._logits(), cache)

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        longer = self._run(TokenBatch.text(tokens, self._shot_width), cache)
        return self._logits(), longer

    def _run(self, tokens: TokenBatch, past: object) -> _Cache:
        assert isinstance(past, _Cache)
        context = self._context
        self._parts.device.use()
        if past is not self._empty_past and self._written[past.slot] != past.written:
            raise BackendError("an attention cache was used after a later prompt or extend had overwritten it")
        total = past.shape[2] + tokens.ids.shape[1]
        if total > self._most_tokens:
            raise _too_large("the prompt", PREDICTOR, f"{total} tokens with its history", f"{self._most_tokens}")
        self._parts.send(context, PREDICTOR, tokens.arrays())
        slot = 1 - past.slot
        for name, longer in self._caches:
            context.shape(name, past.shape)
            context.bind(name, self._parts.buffers[_slot(name, past.slot)])
            context.bind(longer, self._parts.buffers[_slot(name, slot)])
        # Set before the execution, because a failed execution invalidates the caches too.
        self._calls += 1
        self._written[slot] = self._calls
        context.execute()
        return _Cache(slot, self._calls, context.output_shape(self._caches[0][1]))

    def _logits(self) -> FloatArray:
        logits: FloatArray = self._parts.receive(self._context, PREDICTOR, "logits", np.float32)[0]
        return logits


class Denoiser:
    """Implements interface.DenoiserEngine. Profile 0 runs a pair, profile 1 a single row, over the same buffers."""

    def __init__(self, parts: EngineSet) -> None:
        (self.graph,) = parts.parts.graphs(DENOISER)
        self.parts, self.stream = parts, parts.streams[self.graph].stream
        self.contexts = {rows: parts.context(self.graph, profile) for profile, rows in enumerate((PAIR, SINGLE))}
        self.turn = 0
        self._graphs: dict[tuple[int, ...], object] = {}
        self._warm: set[tuple[int, ...]] = set()
        device, buffers = parts.device, parts.buffers
        for rows, context in self.contexts.items():
            address = buffers[f"{DENOISER}.rows.{len(rows)}"]
            self.stream.copy_in(address, np.array(rows, np.int64))
            context.shape("rows", (len(rows),))
            context.bind("rows", address)
        self._noise_key = b""
        if device.draws:
            self.stream.copy_in(buffers[NOISE_TABLE], load_table())
        latent = parts.engines[self.graph].tensors["latent"].shape
        self.slots = [
            {
                "noise": device.pinned(latent, np.float32),
                "coefficients": device.pinned((8,), np.float32),
                "timestep": device.pinned((1,), np.float32),
            }
            for _ in range(SLOTS)
        ]
        self.marks: list[object | None] = [None] * SLOTS

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> TensorRTDenoiseRun:
        self.parts.device.use()
        self.turn += 1
        zeros = np.zeros(latent.shape, np.float32)
        values: dict[str, AnyNoise] = {"latent": latent, "x0_prev": zeros, "difference": zeros, "shot": shot[None]}
        values["motion_scope"] = np.array([motion_scope], np.float32)
        for name, value in values.items():
            expected = self.parts.engines[self.graph].tensors[name].shape
            if value.shape != expected:
                raise BackendError(f"{name} has the wrong shape", found=value.shape, expected=expected)
            if not self.draw(name, value):
                address = self.parts.buffers[f"{self.graph}.{name}"]
                self.stream.copy_in(address, np.ascontiguousarray(as_array(value), np.float32))
        return TensorRTDenoiseRun(self, self.turn, latent.shape)

    def draw(self, name: str, noise: AnyNoise) -> bool:
        """Queues noise to be drawn into an input. False where it has to be copied: numbers, or no kernels.

        Only the first noise of a turn waits for the GPU, because its key is copied.
        """
        buffers = self.parts.buffers
        if not isinstance(noise, Noise) or not self.parts.device.draws:
            return False
        if noise.key.tobytes() != self._noise_key:
            self.stream.copy_in(buffers[NOISE_KEY], noise.key)
            self._noise_key = noise.key.tobytes()
        self.stream.draw(noise, buffers[NOISE_KEY], buffers[NOISE_TABLE], buffers[f"{self.graph}.{name}"])
        return True

    def run(self, rows: tuple[int, ...]) -> None:
        """Queues one step: eagerly the first time, when the library may still allocate, then as a graph."""
        if self.parts.device.captures and rows in self._warm:
            if rows not in self._graphs:
                self._graphs[rows] = self.stream.capture(lambda: self._queue(rows))
            self.stream.launch(self._graphs[rows])
        else:
            self._queue(rows)
            self._warm.add(rows)

    def _queue(self, rows: tuple[int, ...]) -> None:
        self.contexts[rows].execute()
        buffers = self.parts.buffers
        for current, next_value in STATE_TENSORS:
            size = buffers.bytes(f"{self.graph}.{current}")
            self.stream.copy(buffers[f"{self.graph}.{current}"], buffers[f"{self.graph}.{next_value}"], size)


class TensorRTDenoiseRun:
    """Implements interface.DenoiseRun. One turn at a time, because all turns share the buffers."""

    def __init__(self, denoiser: Denoiser, turn: int, shape: Shape) -> None:
        self._denoiser, self._turn, self._shape = denoiser, turn, shape
        self._steps = 0

    def step(self, coefficients: FloatArray, timestep: float, rows: tuple[int, ...], noise: AnyNoise) -> None:
        self._check()
        denoiser = self._denoiser
        if rows not in denoiser.contexts:
            raise BackendError("a denoising step has unsupported rows", found=rows, expected=f"{PAIR} or {SINGLE}")
        stream, buffers = denoiser.stream, denoiser.parts.buffers
        slot = self._steps % SLOTS
        mark, denoiser.marks[slot] = denoiser.marks[slot], None
        if mark is not None:
            stream.wait(mark)
        given: dict[str, FloatArray | float] = {"coefficients": coefficients, "timestep": timestep}
        if not denoiser.draw("noise", noise):
            given["noise"] = as_array(noise)
        for name, value in given.items():
            pinned = denoiser.slots[slot][name]
            pinned[...] = value
            stream.copy_in(buffers[f"{denoiser.graph}.{name}"], pinned)
        denoiser.marks[slot] = stream.record()
        denoiser.run(rows)
        self._steps += 1

    def latent(self) -> FloatArray:
        self._check()
        latent: FloatArray = np.empty(self._shape, np.float32)
        self._denoiser.stream.copy_out(latent, self._denoiser.parts.buffers[f"{self._denoiser.graph}.latent"])
        return latent

    def _check(self) -> None:
        self._denoiser.parts.device.use()
        if self._turn != self._denoiser.turn:
            raise BackendError("a turn's denoising continued after the next turn had started")


class Vae:
    """Implements interface.VaeEngine; `first` writes its caches where `next` reads them."""

    def __init__(self, parts: EngineSet) -> None:
        self._parts, self._clip, self._graphs = parts, 0, parts.parts.graphs(VAE)
        self._contexts = {graph: parts.context(graph) for graph in self._graphs}

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        frames = self._run(self._graphs[0], latent, channel_order, flip)
        self._clip += 1
        return frames, self._clip

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        if caches != self._clip:
            raise BackendError("a clip's second chunk was requested after another clip had started")
        frames = self._run(self._graphs[1], latent, channel_order, flip)
        self._parts.save_compiled()  # now every part of a turn has run
        return frames

    def _run(self, graph: str, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> Frames:
        self._parts.device.use()
        context, order = self._contexts[graph], np.array(channel_order, np.int64)
        self._parts.send(context, graph, {"latent": latent, "channel_order": order, "flip": np.array([flip])})
        context.execute()
        return self._parts.receive(context, graph, "frames", np.uint8)


class Encoder:
    """Implements interface.EncoderEngine."""

    def __init__(self, parts: EngineSet) -> None:
        self._parts, self._context = parts, parts.context(ENCODER)

    def encode(self, text_features: FloatArray, image_features: FloatArray) -> FloatArray:
        self._parts.device.use()
        values = {"text_features": text_features, "image_features": image_features}
        self._parts.send(self._context, ENCODER, values)
        self._context.execute()
        shot: FloatArray = self._parts.receive(self._context, ENCODER, "shot", np.float32)[0]
        return shot


def _slot(cache: str, slot: int) -> str:
    return f"{PREDICTOR}.{cache}.{slot}"
