"""Runs a bundle's ONNX parts with onnxruntime, on the CPU or on CUDA.

Knows sessions, bindings and threads; nothing of turns. Buffers of the denoise loop are allocated once a turn and bound
alternately, and attention and vae caches never leave the device.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions, version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime

from animegamer_rt.bundle.denoise_plan import BlockCache
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import (
    CACHE_PREFIX,
    DEFAULT_PARTS,
    DENOISER,
    ENCODER,
    IMAGE_TOWER,
    PLAY_ROLES,
    PREDICTOR,
    TEXT_TOWER,
    VAE,
    PlanParts,
)
from animegamer_rt.engine_config import INT8_DEVICES, EngineConfig
from animegamer_rt.errors import BackendError, DeviceLostError
from animegamer_rt.profiling.host import available_cores, processor
from animegamer_rt.profiling.libraries import INSTALL_CUDA
from animegamer_rt.profiling.nvml import open_nvml

from .interface import Engines, FloatArray, Frames, IntArray, PartCache, Prefill, TokenBatch, TowerEngines

CUDA_LIBRARIES: Mapping[str, str] = {
    "linux": "libonnxruntime_providers_cuda.so",
    "win32": "onnxruntime_providers_cuda.dll",
}
CUDA_PACKAGES = ("nvidia-cublas", "nvidia-cudnn")
PROVIDERS: Mapping[str, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
GPU_FAILURE = re.compile(
    r"\b(CUDA|CUDNN|CUBLAS) (failure|error)\b|illegal memory access|devices? .*unavailable", re.IGNORECASE
)
"""In onnxruntime's messages: a call of CUDA or its libraries failed. From then on they refuse every other call, too."""
OUT_OF_MEMORY = re.compile(r"out of memory|ALLOC_FAILED|failed to allocate memory", re.IGNORECASE)
"""In the same messages: only memory was missing, so that the next turn may succeed."""

Names = tuple[tuple[str, ...], tuple[str, ...]]

TENSORS: Mapping[str, Names] = {
    PREDICTOR: (
        ("ids", "history_index", "masks", "history_shots", "readout", "keys", "values"),
        ("shot", "logits", "next_keys", "next_values"),
    ),
    DENOISER: (
        ("latent", "x0_prev", "noise", "difference", "coefficients", "timestep", "motion_scope", "shot", "rows"),
        ("next_latent", "x0", "next_difference"),
    ),
    VAE: (("latent", "channel_order", "flip"), ("frames",)),
    ENCODER: (("text_features", "image_features"), ("shot",)),
    TEXT_TOWER: (("ids",), ("text_features",)),
    IMAGE_TOWER: (("picture",), ("image_features",)),
}
"""Role -> (inputs, outputs) of its graphs, caches left out."""


def load(
    bundle: Bundle, config: EngineConfig, cache: PartCache | None = None, parts: PlanParts = DEFAULT_PARTS
) -> Engines:
    """Loads the parts of a bundle side by side; on the device `cpu`, those in 8 bits that the bundle has.

    cache: parts of an earlier bundle on the same device. Those with the same files are used again, the others are
    dropped before anything is loaded; afterwards it holds this bundle's parts.
    Raises BackendError when the device is not there (it does not fall back to another), or when a part's inputs and
    outputs are not those of this version. The engines raise DeviceLostError once CUDA fails for another reason than
    memory, and BackendError where anything else fails.
    """
    device, threads, eight_bit = _device(config), config.threads, config.device in INT8_DEVICES
    roles = [*PLAY_ROLES, *([ENCODER] if ENCODER in bundle.manifest.parts else [])]
    names = {graph: TENSORS[role] for role in roles for graph in parts.graphs(role)}
    paths = {graph: bundle.part_path(graph, eight_bit) for graph in names}
    hashes = {graph: bundle.part_sha256(graph, eight_bit) for graph in names}
    cache = {} if cache is None else cache
    for other in cache.keys() - set(hashes.values()):
        del cache[other]
    missing = [graph for graph in names if hashes[graph] not in cache]
    with ThreadPoolExecutor(len(names)) as pool:
        opened = {graph: pool.submit(_Part, paths[graph], device, threads, *names[graph]) for graph in missing}
        cache |= {hashes[graph]: future.result() for graph, future in opened.items()}
    by_role: dict[str, list[_Part]] = {role: [cache[hashes[graph]] for graph in parts.graphs(role)] for role in roles}
    in_8_bits = [role for role in roles if any(paths[one] != bundle.part_path(one) for one in parts.graphs(role))]
    return Engines(
        _Predictor(*by_role[PREDICTOR]),
        _Denoiser(*by_role[DENOISER]),
        _Vae(*by_role[VAE]),
        _Encoder(*by_role[ENCODER]) if ENCODER in by_role else None,
        f"onnxruntime {onnxruntime.__version__} on {device}, {threads or available_cores()} threads"
        + "".join(f", {role} in 8 bits" for role in in_8_bits),
        library=", ".join([f"onnxruntime {onnxruntime.__version__}", *(_cuda_packages() if device == "cuda" else [])]),
        machine=_gpu_name() if device == "cuda" else processor(),
        precision=dict.fromkeys(in_8_bits, "int8"),
    )


def _cuda_packages() -> list[str]:
    """CUDA's libraries that came with pip, with their versions: onnxruntime's are not built in."""
    names = (one.metadata["Name"] for one in distributions())
    return sorted(f"{name} {version(name)}" for name in names if name and name.startswith(CUDA_PACKAGES))


def _gpu_name() -> str:
    card, _ = open_nvml()
    return str(card.facts()["name"]) if card is not None else "an unknown GPU"


def load_towers(bundle: Bundle, config: EngineConfig) -> TowerEngines:
    """The text and image towers of a bundle that has them; their memory is free again once the result is dropped.

    They run on CUDA for the device `cuda` and on the CPU for any other. Raises BundleError when the bundle has none,
    BackendError as `load` does.
    """
    device = _device(config) if config.device in PROVIDERS else "cpu"
    towers = (TEXT_TOWER, IMAGE_TOWER)
    return _Towers(*(_Part(bundle.part_path(tower), device, config.threads, *TENSORS[tower]) for tower in towers))


def _device(config: EngineConfig) -> str:
    return config.device.removesuffix("-fp32")


class _Part:
    """One ONNX file in one session; values are OrtValues, so that they can stay on the device."""

    def __init__(
        self, path: Path, device: str, threads: int | None, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        self.device = device
        self.session = _open_session(path, device, threads)
        self.input_names = [value.name for value in self.session.get_inputs()]
        self.output_names = [value.name for value in self.session.get_outputs()]
        for kind, expected, found in (("inputs", inputs, self.input_names), ("outputs", outputs, self.output_names)):
            strange = {name for name in set(expected) ^ set(found) if not name.startswith(CACHE_PREFIX)}
            if strange:
                raise BackendError(
                    f"the part has other {kind} than this version expects",
                    where=path,
                    found=", ".join(found),
                    expected=", ".join(expected),
                    do="build the bundle again with this version",
                )

    def value(self, array: npt.NDArray[np.generic]) -> onnxruntime.OrtValue:
        with _translate_errors("an array could not be copied to the device"):
            return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), self.device, 0)

    def empty(self, shape: Sequence[int]) -> onnxruntime.OrtValue:
        with _translate_errors("a buffer could not be allocated"):
            return onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), np.float32, self.device, 0)

    def bind(
        self,
        inputs: Mapping[str, onnxruntime.OrtValue],
        outputs: Mapping[str, onnxruntime.OrtValue] | None = None,
        on_cpu: Sequence[str] = (),
        again: onnxruntime.IOBinding | None = None,
    ) -> onnxruntime.IOBinding:
        """`outputs` are written in place; those `on_cpu` come back to the host, the others stay on the device.

        `again`: a binding to reuse; what is not given now stays bound.
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
        with _translate_errors("a part failed to run"):
            self.session.run_with_iobinding(binding)
        return dict(zip(self.output_names, binding.get_outputs(), strict=True))


class _Predictor:
    """A cache is a pair of keys and values [layers, 1, kv, c, width] on the device."""

    def __init__(self, part: _Part) -> None:
        self._part = part
        shapes = {value.name: value.shape for value in part.session.get_inputs()}
        self._shot_width: int = shapes["history_shots"][1]
        nothing = np.zeros([length if axis != 3 else 0 for axis, length in enumerate(shapes["keys"])], np.float32)
        self._nothing = part.value(nothing), part.value(nothing)

    def prefill(self, tokens: TokenBatch, past: object | None = None) -> Prefill:
        past = self._nothing if past is None else past
        assert isinstance(past, tuple)
        keys, values = past
        inputs = {name: self._part.value(getattr(tokens, name)) for name in TokenBatch.__slots__}
        out = self._part.run(self._part.bind({**inputs, "keys": keys, "values": values}, on_cpu=("shot", "logits")))
        return Prefill(out["shot"].numpy()[0], out["logits"].numpy()[0], (out["next_keys"], out["next_values"]))

    def extend(self, tokens: IntArray, cache: object) -> tuple[FloatArray, object]:
        assert isinstance(cache, tuple)
        longer = self.prefill(TokenBatch.text(tokens, self._shot_width), cache)
        return longer.logits, longer.cache


class _Denoiser:
    skippable_blocks = 0

    def __init__(self, part: _Part) -> None:
        self._part = part

    def start(self, latent: FloatArray, shot: FloatArray, motion_scope: float) -> _Denoising:
        return _Denoising(self._part, latent, shot, motion_scope)


class _Denoising:
    """One turn: two sets of buffers; each step reads one and writes the other."""

    def __init__(self, part: _Part, latent: FloatArray, shot: FloatArray, motion_scope: float) -> None:
        self._part = part
        zeros = np.zeros_like(latent)
        self._now = tuple(part.value(array.copy()) for array in (latent, zeros, zeros))
        self._after = tuple(part.empty(latent.shape) for _ in range(3))
        # Held here, as a binding does not own the arrays that it reads.
        self._constant = {
            "shot": part.value(shot[None]),
            "motion_scope": part.value(np.array([motion_scope], np.float32)),
        }
        self._binding = part.bind(self._constant, self._written())

    def step(
        self,
        coefficients: FloatArray,
        timestep: float,
        rows: tuple[int, ...],
        noise: FloatArray,
        blocks: BlockCache | None = None,
    ) -> None:
        assert blocks is None, "a plan that skips blocks is refused when it is opened"
        inputs = dict(zip(("latent", "x0_prev", "difference"), self._now, strict=True))
        inputs |= {
            "noise": self._part.value(noise),
            "coefficients": self._part.value(coefficients),
            "timestep": self._part.value(np.array([timestep], np.float32)),
            "rows": self._part.value(np.array(rows, np.int64)),
        }
        self._part.run(self._part.bind(inputs, self._written(), again=self._binding))
        self._now, self._after = self._after, self._now

    def _written(self) -> dict[str, onnxruntime.OrtValue]:
        return dict(zip(("next_latent", "x0", "next_difference"), self._after, strict=True))

    def latent(self) -> FloatArray:
        with _translate_errors("the latent could not be copied from the device"):
            latent: FloatArray = np.array(self._now[0].numpy(), copy=True)
        return latent


class _Vae:
    def __init__(self, first: _Part, next_part: _Part) -> None:
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


class _Encoder:
    def __init__(self, part: _Part) -> None:
        self._part = part

    def encode(self, text_features: FloatArray, image_features: FloatArray) -> FloatArray:
        inputs = {"text_features": self._part.value(text_features), "image_features": self._part.value(image_features)}
        shot: FloatArray = self._part.run(self._part.bind(inputs, on_cpu=("shot",)))["shot"].numpy()[0]
        return shot


class _Towers:
    def __init__(self, text: _Part, image: _Part) -> None:
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


@contextlib.contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    """Raises DeviceLostError in place of onnxruntime's error where CUDA failed, BackendError otherwise."""
    try:
        yield
    except Exception as error:
        raise _translate(error, what) from error


def _translate(error: Exception, what: str) -> BackendError:
    text = str(error)
    if GPU_FAILURE.search(text) and not OUT_OF_MEMORY.search(text):
        return DeviceLostError("the GPU is lost to this process", found=text, do="start the program again")
    return BackendError(what, found=text, do="verify the bundle, or free memory")


@functools.cache
def _share_arena() -> None:
    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, None)


def _open_session(path: Path, device: str, threads: int | None) -> onnxruntime.InferenceSession:
    wanted = check_device(device)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or available_cores()
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.use_deterministic_compute = True
    options.log_severity_level = 3
    # Spinning threads win nothing here (pocket on 2 cores: 1.17 s with, 1.09 s without) and cost the game beside us.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Weights in 4 or 8 bits are made whole: by default products of such weights round their other side to 8 bits too,
    # which pocket's predictor in int4-qdq pays with 0.004 of its shot, and the bundle does not say.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if device == "cpu":
        # One arena for all parts, as only one runs at a time, and no pre-planned blocks: prompts differ in length.
        # Pocket at its longest prompt: 857 -> 360 MB, same seconds.
        _share_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.enable_mem_pattern = False
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=[wanted])
    except Exception as error:
        do = "free memory, or update onnxruntime"
        raise BackendError("the part cannot be loaded", where=path, found=str(error), do=do) from error
    # onnxruntime falls back to the CPU in silence when a provider cannot start.
    if wanted not in session.get_providers():
        raise BackendError(
            f"{wanted} did not start",
            where=path,
            found=f"{', '.join(session.get_providers())} in its place; {_why_cuda_fails()}",
            do=f"run: {INSTALL_CUDA} (and check the driver with nvidia-smi), or play with --device cpu",
        )
    return session


def check_device(device: str) -> str:
    """The provider of a device, if this onnxruntime was built with it. Raises BackendError otherwise."""
    if device not in PROVIDERS:
        raise BackendError("unknown device", found=repr(device), expected=" or ".join(PROVIDERS))
    wanted = PROVIDERS[device]
    if wanted not in onnxruntime.get_available_providers():
        raise BackendError(
            f"this onnxruntime has no {wanted}",
            found=", ".join(onnxruntime.get_available_providers()),
            do=f"run: pip uninstall onnxruntime && {INSTALL_CUDA} (in an environment of its own), "
            "or play with --device cpu",
        )
    if device == "cuda":
        _load_cuda()
    return wanted


@functools.cache
def _load_cuda() -> None:
    """CUDA and cuDNN that came with pip lie where no system loader looks; what is not there shows when a session opens.

    onnxruntime prints every library that it did not find, which the error says better.
    """
    if hasattr(onnxruntime, "preload_dlls"):  # since onnxruntime 1.21
        with contextlib.redirect_stdout(io.StringIO()):
            onnxruntime.preload_dlls()


def _why_cuda_fails() -> str:
    """What the system's loader says of the CUDA provider's library: the name of the library that is missing, say."""
    library = Path(onnxruntime.__file__).parent / "capi" / CUDA_LIBRARIES.get(sys.platform, CUDA_LIBRARIES["linux"])
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return "its library can be loaded, so the driver or the GPU does not answer"
