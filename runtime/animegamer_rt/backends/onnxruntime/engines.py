"""Implements `backends.interface` over ONNX sessions.

The denoise loop's buffers are allocated once per turn and bound alternately; attention and vae caches never leave the
device.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial

import numpy as np
import numpy.typing as npt
import onnxruntime

from animegamer_rt.backends.interface import FloatArray, Frames, IntArray, Prefill, ReaderLogits, TokenBatch
from animegamer_rt.bundle.roles import CACHE_PREFIX
from animegamer_rt.errors import BackendError, DeviceLostError
from animegamer_rt.noise import AnyNoise, as_array

GPU_FAILURE = re.compile(
    r"\b(CUDA|CUDNN|CUBLAS) (failure|error)\b|illegal memory access|devices? .*unavailable", re.IGNORECASE
)
"""Matches onnxruntime's messages after a call of CUDA or its libraries failed. All later calls are refused too."""
OUT_OF_MEMORY = re.compile(r"out of memory|ALLOC_FAILED|failed to allocate memory", re.IGNORECASE)
"""Matches them if only memory was short, so that the next turn may succeed."""

READER_OUTPUTS = tuple(field.name for field in fields(ReaderLogits))
PICTURE_OUTPUTS = READER_OUTPUTS[:-3]
"""A scene, but nothing about words."""
CAUSAL_BLOCK = 192
"""Tokens. With fewer, more of the time is spent on copying the cache; with more, on what the mask hides."""
NO_WORDS: FloatArray = np.zeros(0, np.float32)
MXCSR_WORD, FLUSH = 7, 0x8040
"""Place of the control register of SSE and AVX in glibc's `fenv_t` on x86-64, 32 bytes; its bits FTZ and DAZ."""


class Part:
    """One ONNX file in one session; values are OrtValues, so that they can stay on the device."""

    def __init__(self, session: onnxruntime.InferenceSession, device: str) -> None:
        self.session, self.device = session, device
        self.output_names = [value.name for value in session.get_outputs()]

    def value(self, array: npt.NDArray[np.generic]) -> onnxruntime.OrtValue:
        with translate_errors("an array could not be copied to the device"):
            return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self.device, 0)

    def empty(self, shape: Sequence[int]) -> onnxruntime.OrtValue:
        with translate_errors("a buffer could not be allocated"):
            return onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), np.float32, self.device, 0)

    def bind(
        self,
        inputs: Mapping[str, onnxruntime.OrtValue],
        outputs: Mapping[str, onnxruntime.OrtValue] | None = None,
        on_cpu: Sequence[str] = (),
        again: onnxruntime.IOBinding | None = None,
    ) -> onnxruntime.IOBinding:
        """`outputs` are written in place; those `on_cpu` are copied to the host, the others stay on the device.

        `again`: a binding to reuse; values that are not given stay bound.
        """
        binding = self.session.io_binding() if again is None else again
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.output_names:
            if outputs is not None and name in outputs:
                binding.bind_ortvalue_output(name, outputs[name])
            else:
                binding.bind_output(name, "cpu" if name in on_cpu else self.device)
        return binding

    def run(self, binding: onnxruntime.IOBinding) -> dict[str, onnxruntime.OrtValue]:
        with translate_errors("a part failed to run"), flushed_denormals():
            self.session.run_with_iobinding(binding)
        return dict(zip(self.output_names, binding.get_outputs(), strict=True))


class Predictor:
    """A cache is a list of each layer's keys and values [1, kv, c, width] on the device.

    at_once: run a turn's two rows in two threads.
    """

    def __init__(self, part: Part, at_once: bool = False) -> None:
        self._part, self._second_row = part, ThreadPoolExecutor(1) if at_once else None
        shapes = {value.name: value.shape for value in part.session.get_inputs()}
        self._shot_width: int = shapes["history_shots"][1]
        self._cache = [name for name in shapes if name.startswith(CACHE_PREFIX)]
        self._next_cache = [name for name in part.output_names if name.startswith(CACHE_PREFIX)]
        kept = next(value.type for value in part.session.get_inputs() if value.name == self._cache[0])
        dtype = np.float16 if kept == "tensor(float16)" else np.float32
        one, heads, _, width = shapes[self._cache[0]]
        self._nothing: object = [part.value(np.zeros((one, heads, 0, width), dtype))] * len(self._cache)
        self._begun: tuple[TokenBatch, object] | None = None
        """The whole blocks of the last history, and their cache."""

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        """See interface.PredictorEngine.

        The graph has one row: tokens that two rows share are run once, then each row by itself, both at once if there
        are threads for it. onnxruntime's own threads gain little here: pocket's prediction takes 50 ms with one, 48
        with two and 35 with a row in each. On a CPU attention computes what a mask hides, at twice the cost, so a
        history is run in blocks. The numbers are the same.
        """
        rows, count = tokens.history_index.shape
        if past is None and rows == 1 and self._part.device == "cpu":
            return self._read_history(tokens)
        past = self._nothing if past is None else past
        if tokens.masks is None or rows == 1:
            return self._run(tokens, past)
        apart = (tokens.masks[0] != tokens.masks[1]).any(1) | (tokens.history_index[0] != tokens.history_index[1])
        shared = int(apart.argmax())
        past = self._run(tokens.span(1, 0, shared), past).cache if shared else past
        first = partial(self._run, tokens.span(0, shared, count), past)
        shot = self._second_row.submit(first).result if self._second_row is not None else first
        state = self._run(tokens.span(1, shared, count), past)
        return Prefill(shot().shot, state.logits, state.cache)

    def _read_history(self, tokens: TokenBatch) -> Prefill:
        """Runs a history in blocks, without those that the history before began with, as in a game's first turns.

        Blocks begin at the same tokens whatever was read before, so that a replay has the same bits on any processor.
        """
        count = tokens.ids.shape[1]
        if len(tokens.readout) > 1 or tokens.masks is not None:
            return self._run(tokens, self._nothing)
        start, cache = 0, self._nothing
        if self._begun is not None and tokens.span(0, 0, self._begun[0].ids.shape[1]).same_as(self._begun[0]):
            start, cache = self._begun[0].ids.shape[1], self._begun[1]
        while 2 * (count - start) >= 3 * CAUSAL_BLOCK:
            cache = self._run(tokens.span(0, start, start + CAUSAL_BLOCK), cache).cache
            start += CAUSAL_BLOCK
        self._begun = (tokens.span(0, 0, start), cache) if start else None
        return self._run(tokens.span(0, start, count), cache)

    def _run(self, tokens: TokenBatch, past: object) -> Prefill:
        assert isinstance(past, list)
        inputs = {name: self._part.value(array) for name, array in tokens.arrays().items()}
        inputs |= zip(self._cache, past, strict=True)
        out = self._part.run(self._part.bind(inputs, on_cpu=("shot", "logits")))
        return Prefill(out["shot"].numpy()[0], out["logits"].numpy()[0], [out[name] for name in self._next_cache])

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        longer = self.prefill(TokenBatch.text(tokens, self._shot_width), cache)
        return longer.logits, longer.cache


class Denoiser:
    """Starts turns."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> Denoising:
        return Denoising(self._part, as_array(latent), shot, motion_scope)


class Denoising:
    """One turn: two sets of buffers; each step reads one and writes the other."""

    def __init__(self, part: Part, latent: FloatArray, shot: FloatArray, motion_scope: float) -> None:
        self._part = part
        zeros = np.zeros_like(latent)
        self._now = tuple(part.value(array.copy()) for array in (latent, zeros, zeros))
        self._after = tuple(part.empty(latent.shape) for _ in range(3))
        # Referenced here, as a binding does not own its arrays.
        self._constant = {
            "shot": part.value(shot[None]),
            "motion_scope": part.value(np.array([motion_scope], np.float32)),
        }
        self._binding = part.bind(self._constant, self._written())

    def step(self, coefficients: FloatArray, timestep: float, rows: tuple[int, ...], noise: AnyNoise) -> None:
        inputs = dict(zip(("latent", "x0_prev", "difference"), self._now, strict=True))
        inputs |= {
            "noise": self._part.value(as_array(noise)),
            "coefficients": self._part.value(coefficients),
            "timestep": self._part.value(np.array([timestep], np.float32)),
            "rows": self._part.value(np.array(rows, np.int64)),
        }
        self._part.run(self._part.bind(inputs, self._written(), again=self._binding))
        self._now, self._after = self._after, self._now

    def _written(self) -> dict[str, onnxruntime.OrtValue]:
        return dict(zip(("next_latent", "x0", "next_difference"), self._after, strict=True))

    def latent(self) -> FloatArray:
        with translate_errors("the latent could not be copied from the device"):
            latent: FloatArray = np.array(self._now[0].numpy(), copy=True)
        return latent


class Vae:
    """The vae's two graphs; its caches are the first one's further outputs."""

    def __init__(self, first: Part, next_part: Part) -> None:
        self._first, self._next = first, next_part

    def first(self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool) -> tuple[Frames, object]:
        out = self._first.run(self._first.bind(self._inputs(latent, channel_order, flip), on_cpu=("frames",)))
        frames: Frames = out.pop("frames").numpy()
        return frames, out

    def next(self, latent: FloatArray, caches: object, channel_order: tuple[int, ...], flip: bool) -> Frames:
        assert isinstance(caches, dict)
        inputs = self._inputs(latent, channel_order, flip) | caches
        frames: Frames = self._next.run(self._next.bind(inputs, on_cpu=("frames",)))["frames"].numpy()
        return frames

    def _inputs(
        self, latent: FloatArray, channel_order: tuple[int, ...], flip: bool
    ) -> dict[str, onnxruntime.OrtValue]:
        return {
            "latent": self._first.value(latent),
            "channel_order": self._first.value(np.array(channel_order, np.int64)),
            "flip": self._first.value(np.array([flip])),
        }


class Encoder:
    """The encoder of a start picture."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def encode(self, text_features: FloatArray, image_features: FloatArray) -> FloatArray:
        inputs = {"text_features": self._part.value(text_features), "image_features": self._part.value(image_features)}
        shot: FloatArray = self._part.run(self._part.bind(inputs, on_cpu=("shot",)))["shot"].numpy()[0]
        return shot


class Towers:
    """The text tower and the image tower."""

    def __init__(self, text: Part, image: Part) -> None:
        self._text, self._image = text, image
        self.tokens: int = text.session.get_inputs()[0].shape[1]
        self.height, self.width = image.session.get_inputs()[0].shape[2:]

    def text(self, ids: IntArray) -> FloatArray:
        inputs = {"ids": self._text.value(ids)}
        out = self._text.run(self._text.bind(inputs, on_cpu=("text_features",)))
        features: FloatArray = out["text_features"].numpy()
        return features

    def image(self, picture: FloatArray) -> FloatArray:
        inputs = {"picture": self._image.value(picture)}
        out = self._image.run(self._image.bind(inputs, on_cpu=("image_features",)))
        features: FloatArray = out["image_features"].numpy()
        return features


class Reader:
    """The instruction reader."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self.scene_numbers: int = next(i.shape[1] for i in session.get_inputs() if i.name == "scene")

    def read(self, features: IntArray, scene: IntArray) -> ReaderLogits:
        """Logits of the requested scene."""
        with translate_errors("the reader failed to run"):
            outputs = self._session.run(READER_OUTPUTS, {"features": features, "scene": scene})
        return ReaderLogits(*(output[0] for output in outputs))


class PictureReader:
    """The picture reader."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        _, _, self.height, self.width = session.get_inputs()[0].shape

    def read(self, picture: FloatArray) -> ReaderLogits:
        """Logits of the scene in a picture."""
        with translate_errors("the picture reader failed to run"):
            outputs = self._session.run(PICTURE_OUTPUTS, {"picture": picture})
        scene = dict(zip(PICTURE_OUTPUTS, (one[0] for one in outputs), strict=True))
        return ReaderLogits(**scene, refused=NO_WORDS, notes=NO_WORDS, unknown=NO_WORDS)


@contextlib.contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flushes denormal numbers to zero in this thread; afterwards its modes are as before. Only with glibc on x86-64.

    onnxruntime's softmax gives what a mask hides 4e-39 instead of 0, which makes it seven times slower. Its own option,
    `session.set_denormal_as_zero`, reaches a session's own threads, and not the thread that calls it.
    """
    libm = _libm()
    if libm is None:
        yield
        return
    before = (ctypes.c_uint32 * 8)()
    libm.fegetenv(before)
    flushing = (ctypes.c_uint32 * 8)(*before)
    flushing[MXCSR_WORD] |= FLUSH
    libm.fesetenv(flushing)
    try:
        yield
    finally:
        libm.fesetenv(before)


@functools.cache
def _libm() -> ctypes.CDLL | None:
    has_glibc = sys.platform == "linux" and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
    return ctypes.CDLL("libm.so.6") if has_glibc else None


@contextlib.contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Raises DeviceLostError instead of onnxruntime's error if CUDA failed, BackendError otherwise."""
    try:
        yield
    except Exception as error:
        raise _translate(error, what) from error


def _translate(error: Exception, what: str) -> BackendError:
    text = str(error)
    if GPU_FAILURE.search(text) and not OUT_OF_MEMORY.search(text):
        return DeviceLostError("this process has lost the GPU", found=text, do="restart the program")
    return BackendError(what, found=text, do="verify the bundle, or free memory")
