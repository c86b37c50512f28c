"""`animegamer-rt doctor`: what this machine has for playing, what is missing, and the command that mends each.

It loads no part and needs no GPU; whether the parts compute what they should is `selftest`'s business.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from animegamer_kernels import KernelError
from animegamer_kernels.library import find_library, open_library
from animegamer_rt.backends.tensorrt.engine_id import (
    ENGINE_PARTS,
    NEEDED_PARTS,
    RTX,
    RTX_ARCHES,
    engine_of,
    library_for,
    mending_command,
)
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.errors import AnimeGamerError, BundleError, BundleNotFoundError, EngineStaleError
from animegamer_rt.profiling import gpu_specs
from animegamer_rt.profiling.host import module_version

from .bundle_info import size_words

CANNOT_PLAY = 1
OLDEST_PYTHON = (3, 10)
SPARE_BYTES = 10**9
"""Less free space than this is worth a word."""
INSTALL_GPU = (
    "run, in an environment of its own: pip uninstall --yes onnxruntime && pip install 'onnxruntime-gpu[cuda,cudnn]'"
)
MAKE_BUNDLE = "make one, run: animegamer-rt export --checkpoints DIR --out BUNDLE; by name: animegamer-rt info --list"
EXPORT_MODULES = ("torch", "onnx", "onnxscript", "onnx_ir", "ml_dtypes", "safetensors", "cv2")
_QUERY = ("name", "memory.total", "memory.free", "driver_version", "compute_cap")

State = Literal["ok", "without", "broken"]
"""without: it is not here, and playing works all the same. broken: playing does not."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line: what was looked at, what was found, and what to do about it."""

    what: str
    state: State
    found: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the driver says of a card; memory in MiB, arch as in sm89."""

    name: str
    total_mib: int
    free_mib: int
    driver: str
    arch: str


def doctor(bundle_name: str, as_json: bool, console: Console) -> int:
    """Print what was found; 1 when playing cannot work, else 0."""
    findings = list(run_checks(bundle_name))
    broken = any(finding.state == "broken" for finding in findings)
    table = [gpu_specs.best_precisions(gib) for gib in gpu_specs.CARDS_GIB]
    if as_json:
        record = {"can_play": not broken, "findings": findings, "full_size_by_card": table}
        print(json.dumps(record, indent=1, default=_plain))
        return CANNOT_PLAY if broken else 0
    for finding in findings:
        word = {"ok": "[green]ok[/]     ", "without": "without", "broken": "[red]BROKEN[/] "}[finding.state]
        console.print(f"{word}  {finding.what:12s}  ", end="")
        console.print(finding.found, markup=False, highlight=False, soft_wrap=True)
        if finding.do:
            console.print(f"{'':23s}{finding.do}", markup=False, highlight=False, soft_wrap=True)
    console.print(_cards(table))
    console.print("playing cannot work: mend what is BROKEN" if broken else "playing works", highlight=False)
    return CANNOT_PLAY if broken else 0


def run_checks(bundle_name: str) -> Iterator[CheckResult]:
    """Every finding, in the order in which a person would ask."""
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
    yield CheckResult("bundle", "ok", f"{bundle.manifest.name}: {size_words(bundle)}")
    if bundle.unmeasured_plans:
        names, do = ", ".join(bundle.unmeasured_plans), f"run: animegamer-rt search-plans {bundle.folder}"
        yield CheckResult(
            "plans", "without", f"{names}: not measured against {EXACT}, and not played until they are", do
        )
    yield CheckResult("parts", "ok", _parts(bundle))
    yield _disk(bundle)
    yield from _memory(bundle, cards_here)
    yield from _engines(bundle, cards_here)


def gpus() -> tuple[list[Gpu], str]:
    """The NVIDIA cards of this machine by the driver's own command, and why there are none."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return [], "no NVIDIA driver (no nvidia-smi)"
    asked = [command, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi does not answer: {error}"
    rows = [[field.strip() for field in line.split(",")] for line in done.stdout.splitlines()]
    found = [
        Gpu(name, int(total), int(free), driver, "sm" + capability.replace(".", ""))
        for name, total, free, driver, capability in (row for row in rows if len(row) == len(_QUERY))
        if total.isdigit() and free.isdigit()
    ]
    said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
    return found, "" if found else f"nvidia-smi names none: {said[0]}"


def _gpu(found: Sequence[Gpu], why: str) -> Iterator[CheckResult]:
    if not found:
        yield CheckResult("gpu", "without", f"{why}; playing runs on the CPU")
    for card in found:
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


def _tensorrt(found: Sequence[Gpu]) -> CheckResult:
    library = library_for(found[0].arch if found else RTX_ARCHES[0])
    versions = {name: module_version(name) for name in (library, "cuda")}
    absent = [name for name, version in versions.items() if version is None]
    if library in absent:
        install = "tensorrt-rtx-cu13" if library == RTX else "tensorrt"
        do = f"run: pip install {install} 'cuda-python>=13'" if found else ""
        return CheckResult("tensorrt", "without", f"no {' and no '.join(absent)}", do)
    builds = f"{library} {versions[library]}"
    if absent:
        do = "to run them: pip install 'cuda-python>=13'" + ("" if found else ", on a machine with a GPU")
        return CheckResult("tensorrt", "without" if found else "ok", f"{builds}: builds engines", do)
    return CheckResult("tensorrt", "ok", builds if found else f"{builds}: builds engines, runs none without a GPU")


def _torch(gpu_here: bool) -> CheckResult:
    """For `--device torch` and exporting; found by its metadata, as importing it takes seconds."""
    install = "run: pip install 'torch>=2.9'"
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return CheckResult(
            "torch", "without", "no torch: neither --device torch nor export", install if gpu_here else ""
        )
    if gpu_here and version.endswith("+cpu"):
        return CheckResult("torch", "without", f"torch {version} has no CUDA: --device torch-cpu alone", install)
    return CheckResult("torch", "ok", f"torch {version}")


def _export() -> CheckResult:
    """What `export`, `quantize`, `verify` and `search-plans` import."""
    absent = [name for name in EXPORT_MODULES if importlib.util.find_spec(name) is None]
    if absent:
        found = f"no {', no '.join(absent)}: plays, but makes no bundles"
        return CheckResult("export", "without", found, "in the checkout: pip install '.[export]'")
    return CheckResult("export", "ok", f"the libraries of export are here: {', '.join(EXPORT_MODULES[1:])}")


def _kernels(gpu_here: bool) -> CheckResult:
    """What `--device torch` runs between its products."""
    build = "to build them: make kernels" if gpu_here else ""
    if find_library() is None:
        return CheckResult(
            "kernels", "without", "none built, or switched off: --device torch runs plain operators", build
        )
    try:
        library = open_library()
    except KernelError as error:
        return CheckResult("kernels", "without", f"{error.where}: {error.what}", error.do or "")
    if not library.has_cuda:
        return CheckResult("kernels", "without", f"{library.path} was built without CUDA: references alone", build)
    return CheckResult("kernels", "ok", str(library.path))


def _sockets() -> CheckResult:
    # By name, as it opens no socket: it only asks whether servers and clients could.
    zmq = importlib.import_module("zmq")
    curve = bool(zmq.has("curve"))
    do = "" if curve else "serving beyond this machine needs it; run: pip install --force-reinstall pyzmq"
    found = f"libzmq {zmq.zmq_version()} {'with' if curve else 'without'} CURVE"
    return CheckResult("sockets", "ok" if curve else "without", found, do)


def _video() -> CheckResult:
    import av

    absent = [name for name in ("libx264", "png") if name not in av.codecs_available]
    if absent:
        return CheckResult(
            "video", "broken", f"PyAV {av.__version__} without {', '.join(absent)}", "run: pip install av"
        )
    return CheckResult("video", "ok", f"PyAV {av.__version__} with libx264 and PNG")


def _disk(bundle: Bundle | None) -> CheckResult:
    """Room for games, and for a bundle as large as this one with its engines beside the one that is there."""
    free = shutil.disk_usage(Path.cwd()).free
    full = f"{gpu_specs.weights_bytes(gpu_specs.PRECISIONS_BY_SIZE[0]) / 1e9:.1f} GB"
    again = 0 if bundle is None else 2 * sum(size for _, size in _part_bytes(bundle))
    needs = f"exporting this size takes {again / 1e9:.1f} GB, " if bundle else ""
    do = "free some space: games and bundles are written here" if free < again + SPARE_BYTES else ""
    found = f"{free / 1e9:.1f} GB free in {Path.cwd()}; {needs}the full {full} and more"
    return CheckResult("disk", "without" if do else "ok", found, do)


def _part_bytes(bundle: Bundle) -> Iterator[tuple[str, int]]:
    """Bytes of graphs and weights by room: what the vae's two parts share is counted once."""
    pipeline: dict[str, set[str]] = {}
    for name, part in bundle.manifest.parts.items():
        pipeline.setdefault("vae" if name.startswith("vae_") else name, set()).update(part.files)
    for room, files in pipeline.items():
        yield room, sum(bundle.manifest.files[file].bytes for file in files)


def _parts(bundle: Bundle) -> str:
    precision = {"vae" if name.startswith("vae_") else name: part for name, part in bundle.manifest.parts.items()}
    return ", ".join(f"{room} {precision[room].precision} {size / 1e6:.1f} MB" for room, size in _part_bytes(bundle))


def _memory(bundle: Bundle, found: Sequence[Gpu]) -> Iterator[CheckResult]:
    """Whether the bundle's own weights fit on each card, with the room that its pictures and prompts need."""
    parts = [part for name, part in bundle.manifest.parts.items() if name in NEEDED_PARTS]
    files = {file for part in parts for file in (part.file, *part.data_files)}
    weights = sum(bundle.manifest.files[file].bytes for file in files)
    size = bundle.manifest.geometry
    predictor = bundle.manifest.sizes.get("predictor", gpu_specs.FULL_PREDICTOR)
    needed = weights + gpu_specs.room_bytes(size.height, size.width, predictor)
    for card in found:
        enough = needed <= card.total_mib * 2**20
        do = "" if enough else "export it at a smaller precision (the table below); TensorRT streams what does not fit"
        said = f"{weights / 2**30:.1f} GiB of weights, about {needed / 2**30:.1f} GiB in all, on {card.name}"
        yield CheckResult("memory", "ok" if enough else "without", said, do)


def _engines(bundle: Bundle, found: Sequence[Gpu]) -> Iterator[CheckResult]:
    """All missing and stale engines: for the cards that are here, or else for all that were built."""
    built = {engine.built_for.get("arch", ""): engine.built_for for engine in bundle.manifest.engines.values()}
    for arch in dict.fromkeys([card.arch for card in found] or built):
        library = library_for(arch)
        version = (module_version(library) if found else None) or built.get(arch, {}).get("version", "")
        seen = {part: engine_of(bundle, part, arch, library, version) for part in ENGINE_PARTS}
        stale = [f"{part}: {error.what}" for part, error in seen.items() if isinstance(error, EngineStaleError)]
        wrong = [part for part, error in seen.items() if isinstance(error, AnimeGamerError)]
        missing = [part for part in wrong if not isinstance(seen[part], EngineStaleError)]
        if wrong:
            absent = [f"no engine of {', '.join(missing)} for {arch}"] if missing else []
            yield CheckResult("engines", "without", "; ".join([*absent, *stale]), mending_command(bundle, arch))
        else:
            yield CheckResult("engines", "ok", f"{sum(map(bool, seen.values()))} for {arch}, {library} {version}")


def _cards(table: Sequence[gpu_specs.PrecisionFit]) -> Table:
    shown = Table(
        title="full size by card: the best that fits (arithmetic, not measured)", title_justify="left", box=None
    )
    for column in ("card", "predictor", "denoiser", "vae", "weights"):
        shown.add_column(column)
    for fit in table:
        streamed = f", {fit.streamed_bytes / 2**30:.1f} of them streamed" if fit.streamed_bytes else ""
        names = [fit.precision[part] for part in ("predictor", "denoiser", "vae")]
        shown.add_row(f"{fit.card_gib} GB", *names, f"{fit.weights_bytes / 2**30:.1f} GiB{streamed}")
    return shown


def _plain(record: Any) -> Any:
    return asdict(record)
