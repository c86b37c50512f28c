"""`animegamer-rt build-engines`: builds engines of a bundle's parts, one file per part and GPU architecture.

Engines that exist and fit are kept, so an interrupted run continues when it is run again. The manifest names an engine
only when it is complete.
"""

from __future__ import annotations

import argparse
import errno
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from animegamer_export.tensorrt.builder import BuildJob, BuildResult, Ranges
from animegamer_rt.arguments import whole
from animegamer_rt.backends.tensorrt.engine_id import (
    ANY_RTX,
    ENGINE_ROLES,
    GRAPH_VERSION,
    RTX_ARCHES,
    engine_graphs,
    engine_name,
    library_for,
)
from animegamer_rt.bundle.files import lock_folder, require_space
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import Engine
from animegamer_rt.bundle.roles import DENOISER, PREDICTOR, VAE
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import ConfigError
from animegamer_rt.profiling.child_process import child_command
from animegamer_rt.profiling.host import module_version

FOLDER = "engines"
DONE, FAILED = 0, 1
ARCHES = (*RTX_ARCHES, "sm90", "sm100", "sm103", ANY_RTX)
"""RTX cards, data centre cards, and any RTX card by onnxruntime's plugin, which takes graphs."""
TEXT_TOKENS_PER_TURN = 40
"""Tokens of a turn besides its shot, with a margin: an instruction of two lines, tags and four strengths."""
TOKENS_AFTER_PROMPT = 3 * 8
"""Tokens after a prompt: three times a strength and two tags, with a margin for other templates."""
CHANNELS = (3, 3, 4)
NO_SPACE_HINT = "free some space, or build fewer --parts or for fewer --gpu at a time"


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt build-engines`."""
    parser.set_defaults(run=_run)
    parser.description = (
        "Build TensorRT engines from a bundle's ONNX files. TensorRT-RTX (RTX cards) needs no GPU for it."
    )
    parser.add_argument("--bundle", required=True, help="name or folder; engines are written to its folder engines/")
    parser.add_argument("--gpu", required=True, metavar="LIST", help=f"comma-separated, of {', '.join(ARCHES)}")
    parser.add_argument("--parts", metavar="LIST", help=f"comma-separated, of {', '.join(ENGINE_ROLES)} (default: all)")
    parser.add_argument(
        "--precision", choices=("fp16", "bf16"), default="fp16", help="inside the engine (default: fp16)"
    )
    parser.add_argument(
        "--longest-prompt", type=whole(1, 1_000_000), metavar="TOKENS", help="default: twice a full history's"
    )


def _run(options: argparse.Namespace) -> int:
    """Builds the engines; 0 if all exist, 1 if one could not be built, which is named."""
    gpus = _split_names(options.gpu, ARCHES, "--gpu")
    parts = ENGINE_ROLES if options.parts is None else _split_names(options.parts, ENGINE_ROLES, "--parts")
    bundle = open_bundle(options.bundle)
    wanted = [
        _engine_request(bundle, part, gpu, options)
        for gpu in gpus
        for part in engine_graphs(bundle)
        if bundle.graph_roles[part] in parts
    ]
    require_space(bundle.folder, sum(_part_bytes(bundle, one.part) for one in wanted if not one.kept), NO_SPACE_HINT)
    rows: list[dict[str, Any]] = []
    with lock_folder(bundle.folder):
        for one in wanted:
            row, bundle = _build_or_keep(bundle, one, options)
            rows.append(row)
            print(_line(row), flush=True)
    failed = [row for row in rows if row["error"]]
    for row in failed:
        print(f"not built: {row['part']} for {row['arch']}: {row['error']}", file=sys.stderr)
    return FAILED if failed else DONE


def profiles(part: str, bundle: Bundle, longest_prompt: int | None = None) -> tuple[Ranges, ...]:
    """The optimisation profiles of a graph.

    The denoiser has one for each kind of step: 0 is the pair, 1 a single row. The predictor has one for prompts and the
    text after them together: with two, two thirds of its 4-bit weights were stored twice in the engine.
    """
    geometry, turns = bundle.manifest.geometry, bundle.manifest.compatibility.history_turns
    turn = geometry.shot_tokens + TEXT_TOKENS_PER_TURN
    longest = longest_prompt or min(geometry.window_tokens, 2 * (turns + 1) * turn)
    usual, shortest = min(longest, (turns + 1) * turn), geometry.shot_tokens
    if longest < turn:
        raise ConfigError("the longest prompt is too short", found=longest, expected=f"{turn} tokens or more")
    role = bundle.graph_roles[part]
    if role == PREDICTOR:
        shots = max(1, longest // shortest)
        ranges: Ranges = {
            "tokens": (1, usual, longest),
            "history_tokens": (1, max(1, min(shots, turns) * shortest), shots * shortest),
            "read_tokens": (1, shortest, shortest),
            "cached_tokens": (0, max(0, usual - turn), longest + TOKENS_AFTER_PROMPT),
        }
        return (ranges,)
    if role == DENOISER:
        return {"batch": (2, 2, 2)}, {"batch": (1, 1, 1)}
    return ({"channels": CHANNELS},) if role == VAE else ()


def _merged(several: Sequence[Ranges]) -> Ranges:
    """One profile that covers several; the first has the usual lengths."""
    merged: dict[str, tuple[int, int, int]] = {}
    for name in several[0] if several else ():
        shortest, usual, longest = zip(*(ranges[name] for ranges in several), strict=True)
        merged[name] = (min(shortest), usual[0], max(longest))
    return merged


@dataclass(frozen=True, slots=True)
class _EngineRequest:
    """A requested engine; kept: the existing engine, if it fits."""

    part: str
    name: str
    built_for: dict[str, str]
    profiles: tuple[Ranges, ...]
    kept: Engine | None

    @property
    def file(self) -> str:
        is_graph = self.built_for["arch"] == ANY_RTX  # beside the data files that it reads
        return f"{self.name}.onnx" if is_graph else f"{FOLDER}/{self.name}.engine"


def _engine_request(bundle: Bundle, part: str, arch: str, options: argparse.Namespace) -> _EngineRequest:
    library = library_for(arch)
    name = engine_name(part, arch, library)
    ranges = profiles(part, bundle, options.longest_prompt)
    if arch == ANY_RTX:
        ranges = (_merged(ranges),)
    wanted = {"library": library, "arch": arch, "precision": options.precision, "profiles": json.dumps(ranges)}
    installed = GRAPH_VERSION if arch == ANY_RTX else module_version(library)
    if installed is not None:
        # The runtime loads no engine of another version.
        wanted["version"] = installed
    held = bundle.manifest.engines.get(name)
    fits = held and held.onnx_sha256 == bundle.part_sha256(part) and wanted.items() <= held.built_for.items()
    return _EngineRequest(part, name, wanted, ranges, held if fits else None)


def _build_or_keep(
    bundle: Bundle, wanted: _EngineRequest, options: argparse.Namespace
) -> tuple[dict[str, Any], Bundle]:
    part, file = wanted.part, wanted.file
    row: dict[str, Any] = {"part": part, "weights": bundle.manifest.parts[part].precision}
    row |= {key: wanted.built_for[key] for key in ("arch", "library", "precision")}
    if wanted.kept is not None:
        kept, version = bundle.manifest.files[file].bytes, wanted.kept.built_for["version"]
        return {**row, "version": version, "bytes": kept, "kept": True, "error": ""}, bundle
    job = BuildJob(
        str(bundle.part_path(part)),
        str(bundle.path(file)),
        row["library"],
        row["arch"],
        options.precision,
        wanted.profiles,
    )
    try:
        built = _build_in_subprocess(job)
    finally:
        _remove_partial(job)
    if not built.error:
        engine = Engine(file, {**wanted.built_for, "version": built.version}, bundle.part_sha256(part))
        engines = {**bundle.manifest.engines, wanted.name: engine}
        bundle = write_manifest(bundle.folder, replace(bundle.manifest, engines=engines), changed=(file,))
    return {**row, **asdict(built), "kept": False}, bundle


def _part_bytes(bundle: Bundle, part: str) -> int:
    """An engine's size is about that of the part's weights."""
    return sum(bundle.manifest.files[name].bytes for name in bundle.manifest.parts[part].files)


def _remove_partial(job: BuildJob) -> None:
    """Removes what an interrupted build leaves: the unfinished engine and the temporary graph."""
    job.partial.unlink(missing_ok=True)
    job.typed.unlink(missing_ok=True)


def _build_in_subprocess(job: BuildJob) -> BuildResult:
    """Builds in a process of its own; if it is killed (usually for memory), the result has an error."""
    command = child_command("animegamer_export.tensorrt.builder")
    done = subprocess.run(command, input=json.dumps(asdict(job)), capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        if f"[Errno {errno.ENOSPC}]" in last:
            return BuildResult(
                error=f"the disk is full: {job.target} was not written; free some space and run it again: it continues"
            )
        why = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"ended with {done.returncode}: {last}"
        return BuildResult(error=f"the builder was {why}" if done.returncode < 0 else f"the builder {why}")
    return BuildResult(**json.loads(done.stdout.splitlines()[-1]))


def _line(row: dict[str, Any]) -> str:
    head = f"{row['part']:<18}{row['weights']:<10}{row['arch']:<7}{row['precision']:<6}"
    if row["error"]:
        return f"{head}not built"
    if row["kept"]:
        return f"{head}{row['bytes'] / 1e6:9.1f} MB  exists already"
    return f"{head}{row['bytes'] / 1e6:9.1f} MB {row['build_seconds']:8.1f} s  peak {row['peak_mib'] or 0:.0f} MiB"


def _split_names(text: str, known: Sequence[str], option: str) -> Sequence[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise ConfigError("unknown name", where=option, found=repr(name), expected=f"of {', '.join(known)}")
    if not names:
        raise ConfigError("no names given", where=option, expected=f"of {', '.join(known)}")
    return list(dict.fromkeys(names))
