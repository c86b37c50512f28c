"""`animegamer-rt doctor`: whether this machine can play, what it has, and the command that adds what it lacks.

It loads no network and needs no GPU. Whether the networks compute what they should is for `selftest` to say.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from animegamer_kernels import KernelError
from animegamer_kernels.library import find_library, open_library
from animegamer_rt.backends.tensorrt.engine_id import (
    ENGINE_PARTS,
    NEEDED_PARTS,
    RTX,
    RTX_ARCHES,
    engine_of,
    library_for,
    rebuild_command,
)
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.errors import AnimeGamerError, BundleError, BundleNotFoundError, EngineStaleError
from animegamer_rt.profiling import gpu_specs
from animegamer_rt.profiling.host import module_version
from animegamer_rt.serving.server.options import PORT, ServeOptions

from .bundle_info import describe_size

CANNOT_PLAY = 1
OLDEST_PYTHON = (3, 10)
SPARE_BYTES = 10**9
"""Less free disk space than this is reported."""
INSTALL_GPU = (
    "run, in an environment of its own: pip uninstall --yes onnxruntime && pip install 'onnxruntime-gpu[cuda,cudnn]'"
)
MAKE_BUNDLE = "make one, run: animegamer-rt export --checkpoints DIR --out BUNDLE; by name: animegamer-rt info --list"
EXPORT_MODULES = ("torch", "onnx", "onnxscript", "onnx_ir", "ml_dtypes", "safetensors", "cv2")
_QUERY = ("name", "memory.total", "memory.free", "driver_version", "compute_cap")

SECTIONS = {"broken": "Broken: playing needs it", "ok": "Found", "limited": "Missing or short: playing works without"}
"""State of a check -> the heading that it is printed under, in this order."""

State = Literal["ok", "limited", "broken"]
"""limited: it is missing or short, and playing works all the same. broken: playing does not work."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was checked, what was found, and what to do about it (empty: nothing)."""

    what: str
    state: State
    found: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its driver describes it; memory in MiB, arch as in sm89."""

    name: str
    total_mib: int
    free_mib: int
    driver: str
    arch: str


def doctor(bundle_name: str, as_json: bool, console: Console) -> int:
    """Print the verdict and what it rests on; 1 when playing cannot work, else 0."""
    checks = list(run_checks(bundle_name))
    can_play = all(check.state != "broken" for check in checks)
    fits = [gpu_specs.best_precisions(gib) for gib in gpu_specs.CARDS_GIB]
    if as_json:
        record = {"can_play": can_play, "verdict": verdict(checks), "findings": checks, "full_size_by_card": fits}
        print(json.dumps(record, indent=1, default=_plain))
        return 0 if can_play else CANNOT_PLAY
    console.print(Text(verdict(checks), "bold green" if can_play else "bold red"))
    for state, title in SECTIONS.items():
        chosen = [check for check in checks if check.state == state]
        if chosen:
            console.print(Text(f"\n{title}", "bold"))
            _print_checks(chosen, console)
    if any(check.what == "gpu" and check.state == "ok" for check in checks):
        console.print(_full_size_table(fits))
    return 0 if can_play else CANNOT_PLAY


def verdict(checks: Sequence[CheckResult]) -> str:
    """One sentence: whether playing works and on which devices, or what keeps it from working."""
    broken = [check.what for check in checks if check.state == "broken"]
    if broken:
        return f"Playing does not work: {', '.join(broken)}."
    ok = {check.what: check.found for check in checks if check.state == "ok"}
    devices = ["cpu"]
    if "gpu" in ok:
        devices += ["cuda"] if "CUDAExecutionProvider" in ok["onnxruntime"] else []
        devices += ["tensorrt"] if {"tensorrt", "engines"} <= ok.keys() else []
        devices += ["torch"] if "torch" in ok else []
    return f"Playing works: animegamer-rt play, with --device {' or '.join(devices)}."


def _print_checks(checks: Sequence[CheckResult], console: Console) -> None:
    for check in checks:
        for number, line in enumerate(textwrap.wrap(check.found, 62, break_on_hyphens=False, break_long_words=False)):
            name = check.what if number == 0 else ""
            console.print(f"  {name:<14}{line}", markup=False, highlight=False, soft_wrap=True)
        if check.do:  # on one line, so that a command can be copied
            console.print(f"{'':16}-> {check.do}", markup=False, highlight=False, soft_wrap=True)


def run_checks(bundle_name: str) -> Iterator[CheckResult]:
    """All checks of this machine and of a bundle."""
    version = platform.python_version()
    enough = sys.version_info >= OLDEST_PYTHON
    yield CheckResult("python", "ok" if enough else "broken", version, "" if enough else "install Python 3.10 or newer")
    cards_here, why = gpus()
    yield from _gpu(cards_here, why)
    yield _library("onnxruntime", lambda: _onnxruntime(bool(cards_here)))
    yield _tensorrt(cards_here)
    yield _torch(bool(cards_here))
    yield _kernels(bool(cards_here))
    yield _export()
    yield _library("sockets", _sockets)
    yield _state_folder(ServeOptions().state_dir)
    yield _port(PORT)
    yield _library("video", _video)
    try:
        bundle = open_bundle(bundle_name)
        absent = [part for part in NEEDED_PARTS if part not in bundle.manifest.parts]
        if absent:
            raise BundleError(f"no {', '.join(absent)}", where=bundle.folder, do="export the parts that play needs")
    except AnimeGamerError as error:
        yield CheckResult("bundle", "broken", str(error), MAKE_BUNDLE if isinstance(error, BundleNotFoundError) else "")
        yield _disk(None)
        return
    yield CheckResult("bundle", "ok", f"{bundle.manifest.name}: {describe_size(bundle)}")
    if bundle.unmeasured_plans:
        names, do = ", ".join(bundle.unmeasured_plans), f"run: animegamer-rt search-plans {bundle.folder}"
        yield CheckResult(
            "plans", "limited", f"{names}: not measured against {EXACT}, and not played until they are", do
        )
    yield CheckResult("parts", "ok", _parts(bundle))
    yield _disk(bundle)
    yield from _memory(bundle, cards_here)
    yield from _engines(bundle, cards_here)


def gpus() -> tuple[list[Gpu], str]:
    """The NVIDIA GPUs that the driver's own command lists, and the reason where there is none."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return [], "no NVIDIA driver (no nvidia-smi)"
    query = [command, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(query, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi does not answer: {error}"
    rows = [[field.strip() for field in line.split(",")] for line in result.stdout.splitlines()]
    found = [
        Gpu(name, int(total), int(free), driver, "sm" + capability.replace(".", ""))
        for name, total, free, driver, capability in (row for row in rows if len(row) == len(_QUERY))
        if total.isdigit() and free.isdigit()
    ]
    message = (result.stderr or result.stdout).strip().splitlines() or [f"exit code {result.returncode}"]
    return found, "" if found else f"nvidia-smi names none: {message[0]}"


def _gpu(cards: Sequence[Gpu], why: str) -> Iterator[CheckResult]:
    if not cards:
        yield CheckResult("gpu", "limited", f"{why}; the CPU plays")
    for card in cards:
        memory = f"{card.free_mib / 1024:.1f} of {card.total_mib / 1024:.1f} GiB free"
        yield CheckResult("gpu", "ok", f"{card.name} ({card.arch}), {memory}, driver {card.driver}")


def _library(what: str, look: Callable[[], CheckResult]) -> CheckResult:
    try:
        return look()
    except (ImportError, OSError) as error:
        return CheckResult(
            what, "broken", str(error), "install it again; in the checkout: pip install --force-reinstall ."
        )


def _onnxruntime(gpu_here: bool) -> CheckResult:
    import onnxruntime

    providers = onnxruntime.get_available_providers()
    cuda = "CUDAExecutionProvider" in providers
    found = f"{onnxruntime.__version__} with {', '.join(providers)}"
    return CheckResult("onnxruntime", "ok", found, INSTALL_GPU if gpu_here and not cuda else "")


def _tensorrt(cards: Sequence[Gpu]) -> CheckResult:
    library = library_for(cards[0].arch if cards else RTX_ARCHES[0])
    versions = {name: module_version(name) for name in (library, "cuda")}
    absent = [name for name, version in versions.items() if version is None]
    if library in absent:
        install = "tensorrt-rtx-cu13" if library == RTX else "tensorrt"
        do = f"run: pip install {install} 'cuda-python>=13'" if cards else ""
        return CheckResult("tensorrt", "limited", f"not installed: {', '.join(absent)}", do)
    builds = f"{library} {versions[library]}"
    if absent:
        do = "to run them: pip install 'cuda-python>=13'" + ("" if cards else ", on a machine with a GPU")
        return CheckResult("tensorrt", "limited" if cards else "ok", f"{builds}: builds engines", do)
    return CheckResult("tensorrt", "ok", builds if cards else f"{builds}: builds engines, runs none without a GPU")


def _torch(gpu_here: bool) -> CheckResult:
    """For `--device torch` and exporting; found by its metadata, as importing it takes seconds."""
    install = "run: pip install 'torch>=2.9'"
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return CheckResult(
            "torch", "limited", "torch is not installed: no --device torch, no export", install if gpu_here else ""
        )
    if gpu_here and version.endswith("+cpu"):
        return CheckResult(
            "torch", "limited", f"torch {version} was built without CUDA: --device torch-cpu only", install
        )
    return CheckResult("torch", "ok", f"torch {version}")


def _export() -> CheckResult:
    """What `export`, `quantize`, `verify` and `search-plans` import."""
    absent = [name for name in EXPORT_MODULES if importlib.util.find_spec(name) is None]
    if absent:
        found = f"not installed: {', '.join(absent)}; needed to make bundles"
        return CheckResult("export", "limited", found, "in the checkout: pip install '.[export]'")
    return CheckResult("export", "ok", f"libraries to make bundles: {', '.join(EXPORT_MODULES[1:])}")


def _kernels(gpu_here: bool) -> CheckResult:
    """What `--device torch` runs between its products."""
    build = "to build them: make kernels" if gpu_here else ""
    if find_library() is None:
        return CheckResult(
            "kernels", "limited", "not built, or switched off: --device torch uses plain operators", build
        )
    try:
        library = open_library()
    except KernelError as error:
        return CheckResult("kernels", "limited", f"{error.where}: {error.what}", error.do or "")
    if not library.has_cuda:
        return CheckResult("kernels", "limited", f"{library.path} was built without CUDA: CPU references only", build)
    return CheckResult("kernels", "ok", str(library.path))


def _sockets() -> CheckResult:
    # By name, as it opens no socket: it only asks whether servers and clients could.
    zmq = importlib.import_module("zmq")
    curve = bool(zmq.has("curve"))
    do = "" if curve else "serving beyond this machine needs it; run: pip install --force-reinstall pyzmq"
    found = f"libzmq {zmq.zmq_version()} {'with' if curve else 'without'} CURVE"
    return CheckResult("sockets", "ok" if curve else "limited", found, do)


def _state_folder(folder: Path) -> CheckResult:
    """Whether `serve` could write its sessions to the default folder."""
    nearest = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if os.access(nearest, os.W_OK):
        return CheckResult("state folder", "ok", f"{folder} in {Path.cwd()} can be written")
    return CheckResult("state folder", "limited", f"{nearest} cannot be written", "serve with --state-dir DIR")


def _port(port: int) -> CheckResult:
    """Whether `serve` could listen on its default port."""
    with socket.socket() as probe:
        if sys.platform != "win32":  # as servers do: a port that was closed a moment ago counts as free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            found = f"{port} is not free ({(error.strerror or str(error)).lower()}): another server, perhaps"
            return CheckResult("port", "limited", found, "serve with --port N")
    return CheckResult("port", "ok", f"{port} is free for serving")


def _video() -> CheckResult:
    import av

    absent = [name for name in ("libx264", "png") if name not in av.codecs_available]
    if absent:
        return CheckResult(
            "video", "broken", f"PyAV {av.__version__} without {', '.join(absent)}", "run: pip install av"
        )
    return CheckResult("video", "ok", f"PyAV {av.__version__} with libx264 and PNG")


def _disk(bundle: Bundle | None) -> CheckResult:
    """Free space for games, and for one more bundle of this size with its engines."""
    free = shutil.disk_usage(Path.cwd()).free
    full = f"{gpu_specs.weights_bytes(gpu_specs.PRECISIONS_BY_SIZE[0]) / 1e9:.1f} GB"
    again = 0 if bundle is None else 2 * sum(size for _, size in _part_bytes(bundle))
    needs = f"exporting a bundle of this size takes {again / 1e9:.1f} GB, " if bundle else ""
    do = "free some space: games and bundles are written here" if free < again + SPARE_BYTES else ""
    found = f"{free / 1e9:.1f} GB free in {Path.cwd()}; {needs}one of full size {full} or more"
    return CheckResult("disk", "limited" if do else "ok", found, do)


def _part_bytes(bundle: Bundle) -> Iterator[tuple[str, int]]:
    """Bytes of graphs and weights by part; the vae's two parts count as one, with what they share counted once."""
    files: dict[str, set[str]] = {}
    for name, part in bundle.manifest.parts.items():
        files.setdefault("vae" if name.startswith("vae_") else name, set()).update(part.files)
    for name, names in files.items():
        yield name, sum(bundle.manifest.files[file].bytes for file in names)


def _parts(bundle: Bundle) -> str:
    precision = {"vae" if name.startswith("vae_") else name: part for name, part in bundle.manifest.parts.items()}
    return ", ".join(f"{name} {precision[name].precision} {size / 1e6:.1f} MB" for name, size in _part_bytes(bundle))


def _memory(bundle: Bundle, cards: Sequence[Gpu]) -> Iterator[CheckResult]:
    """Whether the bundle's weights fit on each GPU, beside the memory that frames and prompts need."""
    parts = [part for name, part in bundle.manifest.parts.items() if name in NEEDED_PARTS]
    files = {file for part in parts for file in (part.file, *part.data_files)}
    weights = sum(bundle.manifest.files[file].bytes for file in files)
    size = bundle.manifest.geometry
    predictor = bundle.manifest.sizes.get("predictor", gpu_specs.FULL_PREDICTOR)
    needed = weights + gpu_specs.overhead_bytes(size.height, size.width, predictor)
    for card in cards:
        enough = needed <= card.total_mib * 2**20
        do = "" if enough else "export it at a smaller precision (see the table); TensorRT streams what does not fit"
        description = f"{weights / 2**30:.1f} GiB of weights, about {needed / 2**30:.1f} GiB in all, on {card.name}"
        yield CheckResult("memory", "ok" if enough else "limited", description, do)


def _engines(bundle: Bundle, cards: Sequence[Gpu]) -> Iterator[CheckResult]:
    """Missing and stale TensorRT engines: for the GPUs of this machine, or else for all that were built."""
    built = {engine.built_for.get("arch", ""): engine.built_for for engine in bundle.manifest.engines.values()}
    for arch in dict.fromkeys([card.arch for card in cards] or built):
        library = library_for(arch)
        version = (module_version(library) if cards else None) or built.get(arch, {}).get("version", "")
        seen = {part: engine_of(bundle, part, arch, library, version) for part in ENGINE_PARTS}
        stale = [f"{part}: {error.what}" for part, error in seen.items() if isinstance(error, EngineStaleError)]
        wrong = [part for part, error in seen.items() if isinstance(error, AnimeGamerError)]
        missing = [part for part in wrong if not isinstance(seen[part], EngineStaleError)]
        if wrong:
            absent = [f"no engine of {', '.join(missing)} for {arch}"] if missing else []
            yield CheckResult("engines", "limited", "; ".join([*absent, *stale]), rebuild_command(bundle, arch))
        else:
            yield CheckResult("engines", "ok", f"{sum(map(bool, seen.values()))} for {arch}, {library} {version}")


def _full_size_table(table: Sequence[gpu_specs.PrecisionFit]) -> Table:
    title = "\nPrecisions of a full-size bundle that fit a GPU (computed, not measured)"
    shown = Table(title=title, title_justify="left", title_style="bold", box=None)
    for column in ("GPU memory", "predictor", "denoiser", "vae", "weights"):
        shown.add_column(column)
    for fit in table:
        streamed = f", {fit.streamed_bytes / 2**30:.1f} GiB of them streamed" if fit.streamed_bytes else ""
        names = [fit.precision[part] for part in ("predictor", "denoiser", "vae")]
        shown.add_row(f"{fit.card_gib} GB", *names, f"{fit.weights_bytes / 2**30:.1f} GiB{streamed}")
    return shown


def _plain(record: Any) -> Any:
    return asdict(record)
