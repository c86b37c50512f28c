"""`animegamer-rt doctor`: whether this machine can play, what it has, and the commands that add what is missing.

It loads no network and needs no GPU. Whether the networks compute correctly is checked by `selftest`.
"""

from __future__ import annotations

import json
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from animegamer_rt.backends.tensorrt.engine_id import engine_graphs, engine_of, library_for, rebuild_command
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.bundle.roles import PLAY_GRAPHS
from animegamer_rt.errors import AnimeGamerError, BundleError, BundleNotFoundError, EngineStaleError
from animegamer_rt.profiling import gpu_memory, host_memory
from animegamer_rt.profiling.host import module_version
from animegamer_rt.profiling.nvml import Gpu, gpus
from animegamer_rt.untrusted import plain

from .bundle_info import describe_size
from .machine_checks import CUDA_PROVIDER, CheckResult, check_machine

CANNOT_PLAY = 1
FIRST_FP8 = 89
"""The first architecture with FP8 products."""
SPARE_BYTES = 10**9
"""Less free disk space than this is reported."""
MAKE_BUNDLE = "make one, run: animegamer-rt export --checkpoints DIR --out BUNDLE; by name: animegamer-rt info --list"

SECTIONS = {"broken": "Broken: required for playing", "ok": "Found", "limited": "Missing: optional for playing"}
"""State of a check -> its heading, in printing order."""


def doctor(bundle_name: str, as_json: bool, console: Console) -> int:
    """Print the verdict and its reasons; 1 if playing cannot work, else 0."""
    checks = list(run_checks(bundle_name))
    can_play = all(check.state != "broken" for check in checks)
    code = 0 if can_play else CANNOT_PLAY
    if as_json:
        record = {"can_play": can_play, "verdict": verdict(checks), "findings": list(map(asdict, checks))}
        print(json.dumps(record, indent=1))
        return code
    console.print(Text(verdict(checks), "bold green" if can_play else "bold red"))
    print_sections(checks, SECTIONS, console)
    return code


def print_sections(checks: Sequence[CheckResult], titles: Mapping[str, str], console: Console) -> None:
    """Print the checks of each state under its heading."""
    for state, title in titles.items():
        chosen = [check for check in checks if check.state == state]
        if chosen:
            console.print(Text(f"\n{title}", "bold"))
            _print_checks(chosen, console)


def verdict(checks: Sequence[CheckResult]) -> str:
    """One sentence: whether playing works and on which devices, or what prevents it."""
    broken = [check.what for check in checks if check.state == "broken"]
    if broken:
        return f"Playing does not work: {', '.join(broken)}."
    ok = {check.what: check.found for check in checks if check.state == "ok"}
    onnxruntime = next((check.found for check in checks if check.what == "onnxruntime"), "")
    devices = ["cpu"] if "CPUExecutionProvider" in onnxruntime else []
    if "gpu" in ok:
        devices += ["cuda"] if CUDA_PROVIDER in onnxruntime else []
        devices += ["tensorrt"] if {"tensorrt", "engines"} <= ok.keys() else []
        devices += ["rtx"] if "rtx" in ok else []
        devices += ["torch"] if "torch" in ok else []
    return f"Playing works: animegamer-rt play, with --device {' or '.join(devices)}."


def _print_checks(checks: Sequence[CheckResult], console: Console) -> None:
    for check in checks:
        for number, line in enumerate(textwrap.wrap(check.found, 62, break_on_hyphens=False, break_long_words=False)):
            name = check.what if number == 0 else ""
            console.print(f"  {name:<14}{plain(line)}", markup=False, highlight=False, soft_wrap=True)
        if check.do:  # on one line, so that a command can be copied
            console.print(f"{'':16}-> {plain(check.do)}", markup=False, highlight=False, soft_wrap=True)


def run_checks(bundle_name: str) -> Iterator[CheckResult]:
    """All checks of this machine and of a bundle."""
    cards, why_none = gpus()
    yield from check_machine(cards, why_none)
    try:
        bundle = open_bundle(bundle_name)
        absent = [graph for graph in PLAY_GRAPHS if graph not in bundle.manifest.parts]
        if absent:
            raise BundleError(f"no {', '.join(absent)}", where=bundle.folder, do="export the missing parts")
    except AnimeGamerError as error:
        yield CheckResult("bundle", "broken", str(error), MAKE_BUNDLE if isinstance(error, BundleNotFoundError) else "")
        yield _disk(None)
        return
    yield CheckResult("bundle", "ok", f"{bundle.manifest.name}: {describe_size(bundle)}")
    if bundle.unmeasured_plans:
        names, do = (
            ", ".join(bundle.unmeasured_plans),
            f"run: animegamer-rt search-plans {shlex.quote(str(bundle.folder))}",
        )
        yield CheckResult(
            "plans", "limited", f"{names}: not measured against {EXACT}, and not played until they are", do
        )
    yield CheckResult("parts", "ok", _parts(bundle))
    yield _disk(bundle)
    yield _host_memory(bundle)
    yield from _memory(bundle, cards)
    yield from _engines(bundle, cards)


def _disk(bundle: Bundle | None) -> CheckResult:
    """Free space for games, and for one more bundle of this size with its engines."""
    free = shutil.disk_usage(Path.cwd()).free
    again = 0 if bundle is None else 2 * sum(size for _, size in _part_bytes(bundle))
    needs = f"; exporting a bundle of this size takes {again / 1e9:.1f} GB" if bundle else ""
    do = "free disk space: games and bundles are written here" if free < again + SPARE_BYTES else ""
    found = f"{free / 1e9:.1f} GB free in {Path.cwd()}{needs}"
    return CheckResult("disk", "limited" if do else "ok", found, do)


def _part_bytes(bundle: Bundle) -> Iterator[tuple[str, int]]:
    """Bytes of graphs and weights by part, counting what its graphs share once."""
    files: dict[str, set[str]] = {}
    for graph, (_, part) in bundle.graph_parts.items():
        files.setdefault(part, set()).update(bundle.manifest.parts[graph].files)
    for name, names in files.items():
        yield name, sum(bundle.manifest.files[file].bytes for file in names)


def _parts(bundle: Bundle) -> str:
    precision = {part: bundle.manifest.parts[graph] for graph, (_, part) in bundle.graph_parts.items()}
    return ", ".join(f"{name} {precision[name].precision} {size / 1e6:.1f} MB" for name, size in _part_bytes(bundle))


def _host_memory(bundle: Bundle) -> CheckResult:
    """What a turn on the CPU will take."""
    free, whole = host_memory.machine_bytes()
    needed = host_memory.with_onnxruntime(bundle)
    found = f"a turn on the CPU takes about {needed / 2**30:.1f} GiB"
    found += f"; {free / 2**30:.1f} of {whole / 2**30:.1f} GiB are free"
    if needed <= free:
        return CheckResult("host memory", "ok", found)
    options = host_memory.options_within(bundle, free)
    do = f"to play on the CPU: {options}" if options else "to play on the CPU, close other programs"
    return CheckResult("host memory", "limited", found, do)


def _memory(bundle: Bundle, cards: Sequence[Gpu]) -> Iterator[CheckResult]:
    """Whether the bundle's weights fit on each GPU, and what a turn of each plan takes with PyTorch."""
    parts = [part for graph, part in bundle.manifest.parts.items() if graph in PLAY_GRAPHS]
    files = {file for part in parts for file in (part.file, *part.data_files)}
    weights = sum(bundle.manifest.files[file].bytes for file in files)
    for card in cards:
        found, do = f"{weights / 2**30:.1f} GiB of weights on {card.name}", ""
        turns = _turns(bundle, card)
        for options, peaks in turns.items():
            said = ", ".join(f"{plan} {peak / 2**30:.1f}" for plan, peak in peaks.items())
            found += f"; GiB of a turn with {options}: {said}"
        least = min((peak for peaks in turns.values() for peak in peaks.values()), default=weights)
        if least > card.total_mib * 2**20:
            do = "export it in a lower precision (docs/EXPORT.md, Which card); TensorRT streams what does not fit"
        elif least > card.free_mib * 2**20:
            found += f"; {card.free_mib / 1024:.1f} GiB are free"
            do = "close other programs that use the GPU: nvidia-smi lists them"
        yield CheckResult("memory", "limited" if do else "ok", found, do)


def _turns(bundle: Bundle, card: Gpu) -> dict[str, dict[str, int]]:
    """Options -> plan -> peak in bytes with PyTorch, in 16 bits and with 8 in the denoiser; none without sizes."""
    eight_bits = "fp8" if int(card.arch.removeprefix("sm")) >= FIRST_FP8 else "int8"
    by_options = {"--device torch": "bf16", f"--device torch --precision {eight_bits}": eight_bits}
    plans, total = bundle.manifest.plans, card.total_mib * 2**20
    try:
        return {
            options: {plan: gpu_memory.with_torch(bundle, plan, precision, total).peak_bytes for plan in plans}
            for options, precision in by_options.items()
        }
    except (KeyError, TypeError, ZeroDivisionError):
        return {}


def _engines(bundle: Bundle, cards: Sequence[Gpu]) -> Iterator[CheckResult]:
    """Missing and stale TensorRT engines: for this machine's GPUs, or else for all that were built for."""
    built = {engine.built_for.get("arch", ""): engine.built_for for engine in bundle.manifest.engines.values()}
    for arch in dict.fromkeys([card.arch for card in cards] or built):
        library = library_for(arch)
        version = (module_version(library) if cards else None) or built.get(arch, {}).get("version", "")
        seen = {graph: engine_of(bundle, graph, arch, library, version) for graph in engine_graphs(bundle)}
        stale = [f"{part}: {error.what}" for part, error in seen.items() if isinstance(error, EngineStaleError)]
        wrong = [part for part, error in seen.items() if isinstance(error, AnimeGamerError)]
        missing = [part for part in wrong if not isinstance(seen[part], EngineStaleError)]
        if wrong:
            absent = [f"no engine of {', '.join(missing)} for {arch}"] if missing else []
            yield CheckResult("engines", "limited", "; ".join([*absent, *stale]), rebuild_command(bundle, arch))
        else:
            yield CheckResult("engines", "ok", f"{sum(map(bool, seen.values()))} for {arch}, {library} {version}")
