"""Checks of the machine for playing and serving: Python, GPUs and libraries."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType
from typing import Literal

from animegamer_kernels import KernelError
from animegamer_kernels.library import find_library, open_library
from animegamer_rt.backends.tensorrt.engine_id import RTX_ARCHES, library_for
from animegamer_rt.profiling.host import module_version
from animegamer_rt.profiling.libraries import (
    CUDA_PYTHON,
    INSTALL_CUDA,
    INSTALL_RTX,
    INSTALL_TENSORRT,
    INSTALL_TORCH,
    RTX_PLUGIN,
    torch_versions,
)
from animegamer_rt.profiling.nvml import Gpu

OLDEST_PYTHON = (3, 10)
DRIVER_FOR_CUDA = {11: 450, 12: 525, 13: 580}
"""CUDA -> the oldest driver that runs its libraries. Source: CUDA's release notes, minor version compatibility."""
OLDEST_ARCH = {13: 75}
"""CUDA -> the oldest GPU architecture that its libraries run on."""
EXPORT_MODULES = ("torch", "onnx", "onnxscript", "onnx_ir", "ml_dtypes", "safetensors", "cv2")
CPU, GPU = "onnxruntime", "onnxruntime-gpu"
CUDA_PROVIDER = "CUDAExecutionProvider"
INSTALL_CPU = "run: pip install onnxruntime"
SWITCH_TO_CUDA = f"run, in an environment of its own: pip uninstall --yes onnxruntime && {INSTALL_CUDA}"

State = Literal["ok", "limited", "broken"]
"""limited: something is missing, but playing works. broken: playing does not work."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was checked, what was found, and what to do about it (empty: nothing)."""

    what: str
    state: State
    found: str
    do: str = ""


def check_machine(cards: Sequence[Gpu], why_none: str) -> Iterator[CheckResult]:
    """Checks of everything but the bundle. `cards`, `why_none`: as `gpus` returns them."""
    version = platform.python_version()
    enough = sys.version_info >= OLDEST_PYTHON
    yield CheckResult("python", "ok" if enough else "broken", version, "" if enough else "install Python 3.10 or newer")
    yield from _gpu(cards, why_none)
    tensorrt, torch = _tensorrt(cards), _torch(cards)
    others = [check.what for check in (tensorrt, torch) if check.state == "ok"]
    yield _onnxruntime(bool(cards), others if cards else [])
    yield tensorrt
    yield from _rtx(cards)
    yield torch
    yield _kernels(cards)
    yield _export()
    yield _library("sockets", _sockets)
    yield _library("video", _video)


def _gpu(cards: Sequence[Gpu], why: str) -> Iterator[CheckResult]:
    if not cards:
        yield CheckResult("gpu", "limited", f"{why}; the CPU is used")
    for card in cards:
        memory = f"{card.free_mib / 1024:.1f} of {card.total_mib / 1024:.1f} GiB free"
        yield CheckResult("gpu", "ok", f"{card.name} ({card.arch}), {memory}, driver {card.driver}")


def _library(what: str, look: Callable[[], CheckResult]) -> CheckResult:
    try:
        return look()
    except (ImportError, OSError) as error:
        return CheckResult(
            what, "broken", str(error), "reinstall it; in the checkout: pip install --force-reinstall -e '.[cpu]'"
        )


def _tensorrt(cards: Sequence[Gpu]) -> CheckResult:
    library = library_for(cards[0].arch if cards else RTX_ARCHES[0])
    versions = {name: module_version(name) for name in (library, "cuda")}
    absent = [name for name, version in versions.items() if version is None]
    if library in absent:
        do = f"run: {INSTALL_TENSORRT[library]}" if cards else ""
        return CheckResult("tensorrt", "limited", f"not installed: {', '.join(absent)}", do)
    builds = f"{library} {versions[library]}"
    if absent:
        do = f"to run them: pip install {CUDA_PYTHON}" + ("" if cards else ", on a machine with a GPU")
        return CheckResult("tensorrt", "limited" if cards else "ok", f"{builds}: builds engines", do)
    if unfit := _unfit(cards, "13"):
        return CheckResult("tensorrt", "limited", f"{builds} uses CUDA 13: {unfit[0]}", unfit[1])
    return CheckResult("tensorrt", "ok", builds if cards else f"{builds}: builds engines, runs none without a GPU")


def _rtx(cards: Sequence[Gpu]) -> Iterator[CheckResult]:
    """onnxruntime's TensorRT-RTX plugin, where a card can use it."""
    if any(card.arch in RTX_ARCHES for card in cards):
        name, version = "onnxruntime's TensorRT-RTX plugin", module_version(RTX_PLUGIN)
        if version:
            yield CheckResult("rtx", "ok", f"{name} {version}")
        else:
            yield CheckResult("rtx", "limited", f"{name} is not installed", f"run: {INSTALL_RTX}")


def _torch(cards: Sequence[Gpu]) -> CheckResult:
    """For `--device torch` and exporting. Looks at its files only, as importing it takes seconds."""
    install = f"run: {INSTALL_TORCH}"
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return CheckResult(
            "torch", "limited", "torch is not installed: no --device torch, no export", install if cards else ""
        )
    cuda = torch_versions().get("cuda")
    if cards and cuda is None:
        found = f"torch {version} was built without CUDA: --device torch-cpu only"
        return CheckResult("torch", "limited", found, f"{install}, for CUDA: pytorch.org/get-started")
    if cuda and (unfit := _unfit(cards, cuda)):
        return CheckResult("torch", "limited", f"torch {version} was built for CUDA {cuda}: {unfit[0]}", unfit[1])
    return CheckResult("torch", "ok", f"torch {version}" + (f" for CUDA {cuda}" if cuda else ""))


def _unfit(cards: Sequence[Gpu], cuda: str) -> tuple[str, str] | None:
    """Why libraries for this CUDA run on none of these GPUs, and what to do; None if they run on one."""
    major = int(cuda.partition(".")[0])
    driver_needed, oldest = DRIVER_FOR_CUDA.get(major, 0), OLDEST_ARCH.get(major, 0)
    if not cards:
        return None
    if int(cards[0].driver.partition(".")[0]) < driver_needed:
        do = "update the driver, or install libraries for an older CUDA"
        return f"the driver is too old; found {cards[0].driver}; expected {driver_needed} or later", do
    if all(int(card.arch.removeprefix("sm")) < oldest for card in cards):
        return (
            f"this GPU is not supported; found {cards[0].arch}; expected sm{oldest} or later",
            "install libraries for an older CUDA (pytorch.org/get-started), or use the CPU",
        )
    return None


def _onnxruntime(gpu_here: bool, others: Sequence[str] = ()) -> CheckResult:
    """The check of onnxruntime.

    gpu_here: the machine has an NVIDIA GPU, so a mixed environment was meant for CUDA.
    others: libraries that can play without onnxruntime (such as torch), which make it optional.
    """
    versions = _installed()
    module = _import()
    if module is None:
        if versions:
            wanted = _wanted(versions, gpu_here)
            found = f"{_in_words(versions)}: files are missing, as after removing one of {CPU} and {GPU}"
            return CheckResult("onnxruntime", "broken", found, _install_command(wanted, versions))
        found = "not installed: no --device cpu or cuda, no game from a picture"
        install = SWITCH_TO_CUDA if gpu_here and not others else INSTALL_CPU
        return CheckResult("onnxruntime", "limited" if others else "broken", found, install)
    providers = module.get_available_providers()
    has_cuda = CUDA_PROVIDER in providers
    found = f"{module.__version__} with {', '.join(providers)}"
    if len(versions) > 1:
        found = f"{_in_words(versions)} are both installed and share their files; found: {found}"
        return CheckResult("onnxruntime", "limited", found, _install_command(_wanted(versions, gpu_here), versions))
    for name, version in versions.items():
        if has_cuda != (name == GPU) or module.__version__ != version:
            found = f"{name} {version} is installed with the files of another onnxruntime: {found}"
            return CheckResult("onnxruntime", "limited", found, _install_command(name, versions))
    return CheckResult("onnxruntime", "ok", found, SWITCH_TO_CUDA if gpu_here and not has_cuda else "")


def _installed() -> dict[str, str]:
    """The installed distributions, with their versions."""
    found = {}
    for name in (CPU, GPU):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _import() -> ModuleType | None:
    """The module, or None if it cannot be imported or is a folder without its files."""
    try:
        module = importlib.import_module("onnxruntime")
    except (ImportError, OSError):
        return None
    return module if hasattr(module, "get_available_providers") else None


def _wanted(versions: Mapping[str, str], gpu_here: bool) -> str:
    return GPU if GPU in versions and (gpu_here or CPU not in versions) else CPU


def _install_command(wanted: str, versions: Mapping[str, str]) -> str:
    """Removes the other one first, as that deletes shared files; then the wanted one writes all of its own."""
    other = CPU if wanted == GPU else GPU
    remove = f"pip uninstall --yes {other} && " if other in versions else ""
    return f"run: {remove}pip install --force-reinstall --no-deps {wanted}=={versions[wanted]}"


def _in_words(versions: Mapping[str, str]) -> str:
    return " and ".join(f"{name} {version}" for name, version in versions.items())


def _export() -> CheckResult:
    """What `export`, `quantize`, `verify` and `search-plans` import."""
    absent = [name for name in EXPORT_MODULES if importlib.util.find_spec(name) is None]
    if absent:
        found = f"not installed: {', '.join(absent)}; needed to make bundles"
        return CheckResult("export", "limited", found, "in the checkout: pip install -e '.[cpu,export]'")
    return CheckResult("export", "ok", f"libraries to make bundles: {', '.join(EXPORT_MODULES[1:])}")


def _kernels(cards: Sequence[Gpu]) -> CheckResult:
    """What `--device torch` runs between its products."""
    build = "to build them: make kernels" if cards else ""
    if find_library() is None:
        return CheckResult("kernels", "limited", "not built, or turned off: --device torch uses plain operators", build)
    try:
        library = open_library()
    except KernelError as error:
        found = f"{error.where}: {error.what}" + (f"; found {error.found}" if error.found else "")
        return CheckResult("kernels", "limited", found, error.do or "")
    if not library.has_cuda:
        return CheckResult("kernels", "limited", f"{library.path} was built without CUDA: CPU references only", build)
    if cards and not library.runs_here:
        found = f"{library.path} was built for other GPUs or a newer driver: --device torch uses plain operators"
        return CheckResult("kernels", "limited", found, "to build them for this GPU: make kernels")
    return CheckResult("kernels", "ok", str(library.path))


def _sockets() -> CheckResult:
    # Imported by name, as it opens no socket: it only checks whether servers and clients could.
    zmq = importlib.import_module("zmq")
    curve = bool(zmq.has("curve"))
    do = "" if curve else "serving beyond this machine needs it; run: pip install --force-reinstall pyzmq"
    found = f"libzmq {zmq.zmq_version()} {'with' if curve else 'without'} CURVE"
    return CheckResult("sockets", "ok" if curve else "limited", found, do)


def _video() -> CheckResult:
    import av

    absent = [name for name in ("libx264", "png") if name not in av.codecs_available]
    if absent:
        return CheckResult(
            "video", "broken", f"PyAV {av.__version__} without {', '.join(absent)}", "run: pip install av"
        )
    return CheckResult("video", "ok", f"PyAV {av.__version__} with libx264 and PNG")
