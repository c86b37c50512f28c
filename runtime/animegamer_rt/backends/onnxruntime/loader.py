"""Opens a bundle's ONNX parts with onnxruntime, on the CPU or on CUDA.

It defines each part's tensors; `engines` runs them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions, version
from pathlib import Path

import onnxruntime

from animegamer_rt.backends.interface import Engines, PictureReaderEngine, ReaderEngine, TowerEngines
from animegamer_rt.backends.tensorrt.engine_id import ANY_RTX, GRAPH_VERSION, choose
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import (
    CACHE_PREFIX,
    DEFAULT_PARTS,
    DENOISER,
    ENCODER,
    IMAGE_TOWER,
    PICTURE_READER,
    PLAY_ROLES,
    PREDICTOR,
    READER,
    TEXT_TOWER,
    VAE,
    PlanParts,
)
from animegamer_rt.engine_config import INT8_DEVICES, EngineConfig
from animegamer_rt.errors import BackendError
from animegamer_rt.profiling.host import available_cores, module_version, processor
from animegamer_rt.profiling.libraries import INSTALL_CUDA, RTX_PLUGIN
from animegamer_rt.profiling.nvml import open_nvml
from animegamer_rt.state.game import HOURS, LEVELS

from .engines import (
    PICTURE_OUTPUTS,
    READER_OUTPUTS,
    Denoiser,
    Encoder,
    Part,
    PictureReader,
    Predictor,
    Reader,
    Towers,
    Vae,
    flushed_denormals,
)

CUDA_LIBRARIES: Mapping[str, str] = {
    "linux": "libonnxruntime_providers_cuda.so",
    "win32": "onnxruntime_providers_cuda.dll",
}
CUDA_PACKAGES = ("nvidia-cublas", "nvidia-cudnn")
PROVIDERS: Mapping[str, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
Names = tuple[tuple[str, ...], tuple[str, ...]]

TENSORS: Mapping[str, Names] = {
    PREDICTOR: (("ids", "history_index", "masks", "history_shots", "readout"), ("shot", "logits")),
    DENOISER: (
        ("latent", "x0_prev", "noise", "difference", "coefficients", "timestep", "motion_scope", "shot", "rows"),
        ("next_latent", "x0", "next_difference"),
    ),
    VAE: (("latent", "channel_order", "flip"), ("frames",)),
    ENCODER: (("text_features", "image_features"), ("shot",)),
    TEXT_TOWER: (("ids",), ("text_features",)),
    IMAGE_TOWER: (("picture",), ("image_features",)),
}
"""Role -> (inputs, outputs) of its graphs, without caches."""


def load(bundle: Bundle, config: EngineConfig, parts: PlanParts = DEFAULT_PARTS) -> Engines:
    """Loads the parts of a bundle concurrently; on the device `cpu`, the 8-bit ones where the bundle has them.

    Raises BackendError if the device is missing (there is no fallback), or if a part's inputs and outputs do not match
    this version. The engines raise DeviceLostError if CUDA fails for another reason than memory, and BackendError for
    any other failure.
    """
    if config.device == "rtx":
        return _load_rtx(bundle, parts)
    device, threads, eight_bit = _device(config), config.threads, config.device in INT8_DEVICES
    roles = [*PLAY_ROLES, *([ENCODER] if ENCODER in bundle.manifest.parts else [])]
    names = {graph: TENSORS[role] for role in roles for graph in parts.graphs(role)}
    paths = {graph: bundle.part_path(graph, eight_bit) for graph in names}
    with ThreadPoolExecutor(len(names)) as pool:
        opened = {graph: pool.submit(_open_part, paths[graph], device, threads, *names[graph]) for graph in names}
        by_role = {role: [opened[graph].result() for graph in parts.graphs(role)] for role in roles}
    in_8_bits = [role for role in roles if any(paths[one] != bundle.part_path(one) for one in parts.graphs(role))]
    return Engines(
        Predictor(by_role[PREDICTOR][0], at_once=device == "cpu" and (threads or available_cores()) > 1),
        Denoiser(*by_role[DENOISER]),
        Vae(*by_role[VAE]),
        Encoder(*by_role[ENCODER]) if ENCODER in by_role else None,
        f"onnxruntime {onnxruntime.__version__} on {device}, {threads or available_cores()} threads"
        + "".join(f", {role} in 8 bits" for role in in_8_bits),
        library=", ".join([f"onnxruntime {onnxruntime.__version__}", *(_cuda_packages() if device == "cuda" else [])]),
        machine=_gpu_name() if device == "cuda" else processor(),
        precision=dict.fromkeys(in_8_bits, "int8"),
    )


def _load_rtx(bundle: Bundle, parts: PlanParts) -> Engines:
    """The typed graphs of a bundle on NVIDIA's TensorRT-RTX plugin. Raises as `load`, and EngineStaleError."""
    from . import rtx

    rtx.card()
    files = bundle.manifest.files
    graphs = choose(bundle, parts, ANY_RTX, RTX_PLUGIN, GRAPH_VERSION)
    sources = {graph: bundle.manifest.parts[graph] for graph in graphs}
    stream = rtx.must_stream(sum(files[name].bytes for part in sources.values() for name in part.data_files))
    opened: dict[str, Part] = {}
    for graph, engine in graphs.items():
        inputs, profiles = sources[graph].inputs, engine.built_for.get("profiles", "")
        options = rtx.provider_options(bundle.graph_roles[graph], profiles, inputs, stream)
        session = rtx.open_session(bundle.path(engine.file), options)
        opened[graph] = Part(session, "cuda")
    by_role = {role: [opened[one] for one in parts.graphs(role) if one in opened] for role in (*PLAY_ROLES, ENCODER)}
    library = f"onnxruntime {onnxruntime.__version__}, {RTX_PLUGIN} {module_version(RTX_PLUGIN)}"
    return Engines(
        Predictor(by_role[PREDICTOR][0]),
        Denoiser(*by_role[DENOISER]),
        Vae(*by_role[VAE]),
        Encoder(*by_role[ENCODER]) if by_role[ENCODER] else None,
        f"{library} on {_gpu_name()}" + (", weights streamed" if stream else ""),
        library=library,
        machine=_gpu_name(),
        settings="graphs " + ", ".join(f"{graph} {files[one.file].sha256[:12]}" for graph, one in graphs.items()),
    )


def _cuda_packages() -> list[str]:
    """CUDA's libraries from pip and their versions: onnxruntime does not include them."""
    names = (one.metadata["Name"] for one in distributions())
    return sorted(f"{name} {version(name)}" for name in names if name and name.startswith(CUDA_PACKAGES))


def _gpu_name() -> str:
    card, _ = open_nvml()
    return str(card.ask("nvmlDeviceGetName")) if card is not None else "an unknown GPU"


def load_towers(bundle: Bundle, config: EngineConfig) -> TowerEngines:
    """The text and image towers of a bundle that has them; their memory is freed once the result is dropped.

    They run on CUDA for the device `cuda`, otherwise on the CPU. Raises BundleError if the bundle has none,
    BackendError as `load` does.
    """
    device = _device(config) if config.device in PROVIDERS else "cpu"
    towers = (TEXT_TOWER, IMAGE_TOWER)
    return Towers(*(_open_part(bundle.part_path(tower), device, config.threads, *TENSORS[tower]) for tower in towers))


def _device(config: EngineConfig) -> str:
    return config.device.removesuffix("-fp32")


def load_reader(bundle: Bundle) -> ReaderEngine:
    """The instruction reader of a bundle that has one: on the CPU, in one thread, as a sentence takes milliseconds.

    Raises BackendError if it cannot be loaded, or if its outputs do not match the manifest's words.
    """
    return Reader(_open_reader(bundle, READER, ("features", "scene"), READER_OUTPUTS))


def load_picture_reader(bundle: Bundle) -> PictureReaderEngine:
    """The picture reader of a bundle that has one. Raises BackendError as `load_reader`."""
    return PictureReader(_open_reader(bundle, PICTURE_READER, ("picture",), PICTURE_OUTPUTS))


def _open_reader(
    bundle: Bundle, role: str, inputs: Sequence[str], outputs: Sequence[str]
) -> onnxruntime.InferenceSession:
    path, words = bundle.part_path(role), bundle.manifest.reader
    assert words is not None, "the manifest of a bundle with a reader has its words"
    part, people = _open_part(path, "cpu", 1, inputs, outputs), len(words.people)
    expected = {
        "people": [1, people, 3],
        "clothes": [1, people, len(words.clothes)],
        "motion": [1, len(words.motions)],
        "level": [1, len(LEVELS)],
        "place": [1, len(words.places)],
        "night": [1, len(HOURS)],
        "position": [1, len(words.positions)],
    }
    found = {value.name: value.shape for value in part.session.get_outputs()}
    if any(found[name] != shape for name, shape in expected.items()):
        raise BackendError(
            "the part's outputs do not match its words in the manifest",
            where=path,
            found=found,
            expected=expected,
            do="build the bundle again with this version",
        )
    return part.session


def _open_part(path: Path, device: str, threads: int | None, inputs: Sequence[str], outputs: Sequence[str]) -> Part:
    part = Part(open_session(path, device, threads), device)
    names = [value.name for value in part.session.get_inputs()]
    for kind, expected, found in (("inputs", inputs, names), ("outputs", outputs, part.output_names)):
        if any(not name.startswith(CACHE_PREFIX) for name in set(expected) ^ set(found)):
            raise BackendError(
                f"the part's {kind} are not those that this version expects",
                where=path,
                found=", ".join(found),
                expected=", ".join(expected),
                do="build the bundle again with this version",
            )
    return part


@functools.cache
def _share_arena() -> None:
    memory = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    onnxruntime.create_and_register_allocator(memory, None)


def open_session(path: Path, device: str, threads: int | None) -> onnxruntime.InferenceSession:
    """A session on exactly this device of PROVIDERS. Raises BackendError."""
    wanted = PROVIDERS[device]
    if device == "cuda":
        _load_cuda()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or available_cores()
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.use_deterministic_compute = True
    options.log_severity_level = 3
    # Spinning threads gain nothing (pocket on 2 cores: 1.17 s with, 1.09 s without) and slow down other programs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # 4- and 8-bit weights are dequantised: by default their products also round the other operand to 8 bits, which
    # costs pocket's int4-qdq predictor 0.004 of its shot, and which the bundle did not choose.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if device == "cpu":
        # One arena for all parts, as only one runs at a time, and no pre-planned blocks: prompts differ in length.
        # Pocket at its longest prompt: 857 -> 360 MB, same seconds.
        _share_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
    try:
        with flushed_denormals():  # a process's first session would leave this thread so
            session = onnxruntime.InferenceSession(str(path), options, providers=[wanted])
    except Exception as error:
        do = "free memory, or update onnxruntime"
        raise BackendError("the part cannot be loaded", where=path, found=str(error), do=do) from error
    # onnxruntime silently falls back to the CPU if a provider cannot start.
    if wanted not in session.get_providers():
        raise BackendError(
            f"{wanted} did not start",
            where=path,
            found=f"{', '.join(session.get_providers())} instead; {_why_cuda_fails()}",
            do=f"run: {INSTALL_CUDA} (and check the driver with nvidia-smi), or use --device cpu",
        )
    return session


@functools.cache
def _load_cuda() -> None:
    """Loads CUDA and cuDNN from pip's folders, where no system loader looks; missing ones show when a session opens.

    onnxruntime prints every library that it does not find, which our error explains better.
    """
    if hasattr(onnxruntime, "preload_dlls"):  # since onnxruntime 1.21
        with contextlib.redirect_stdout(io.StringIO()):
            onnxruntime.preload_dlls()


def _why_cuda_fails() -> str:
    """What the system's loader says about the CUDA provider, such as the name of a missing library."""
    library = Path(onnxruntime.__file__).parent / "capi" / CUDA_LIBRARIES.get(sys.platform, CUDA_LIBRARIES["linux"])
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return "its library can be loaded, so the driver or the GPU does not respond"
