"""Describes the machine, the program and its libraries, for reports and records. Unknown facts are None."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.files import checkout_folder
from animegamer_rt.version import __version__

RECORD_FORMAT = 1
COMMIT_VARIABLE, COMMIT_FILE = "ANIMEGAMER_COMMIT", "commit.txt"
MEASURED = ("runtime", "engines", "kernels", "benchmarks/*.py")
"""Paths whose changes mark a commit with `+`: a measurement depends on them."""

INSTRUCTION_SETS = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2"),
)
"""/proc/cpuinfo's names of the instruction sets for matrix products, on x86 and Arm."""
CPUINFO = Path("/proc/cpuinfo")


def environment(*libraries: str) -> dict[str, Any]:
    """The first fields of a record: date, commit, machine, versions of these libraries."""
    return {
        "format": RECORD_FORMAT,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": describe_host(),
        "software": {"python": platform.python_version(), **_versions("animegamer-rt", *libraries, "numpy")},
    }


def instruction_sets() -> list[str] | None:
    """The processor's subset of INSTRUCTION_SETS."""
    for line in read_system_file(CPUINFO).splitlines():
        if line.startswith(("flags", "Features")):
            found = set(line.partition(":")[2].split())
            return [name for name in INSTRUCTION_SETS if name in found]
    return None


def available_cores() -> int:
    """Cores this process may run on (limited by a container or taskset)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_system_file(path: Path) -> str:
    """A file with information from the system; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def processor() -> str:
    """The processor's maker and instruction sets, or its name where they are unknown."""
    sets = instruction_sets()
    maker = re.search(r"^(?:vendor_id|CPU implementer)\s*: (.*)", read_system_file(CPUINFO), re.MULTILINE)
    return " ".join([maker[1] if maker else "", *sets]).strip() if sets else processor_name()


def processor_name() -> str:
    """The processor's model, or its architecture if unknown."""
    models = re.search(r"^model name\s*:(.*)", read_system_file(Path("/proc/cpuinfo")), re.MULTILINE)
    return models[1].strip() if models else platform.processor() or platform.machine()


def describe_host() -> str:
    """This machine in words: processor, usable cores, system."""
    name = processor_name()
    mine, all_cores = available_cores(), os.cpu_count() or 1
    return f"{name}, {mine if mine == all_cores else f'{mine} of {all_cores}'} cores, {platform.system()}"


def module_version(module: str) -> str | None:
    """The version of a library; None if it cannot be imported, as is common for GPU libraries."""
    try:
        return str(getattr(importlib.import_module(module), "__version__", "found"))
    except (ImportError, OSError):
        return None


def commit() -> str:
    """The checkout's commit, with a + if files differ from it; an installed package's; or its version.

    ANIMEGAMER_COMMIT overrides it, for a copy of a checkout or where there is no git.
    """
    if named := os.environ.get(COMMIT_VARIABLE):
        return named
    root = checkout_folder()
    if root is None:
        return _installed_commit() or f"v{__version__}"
    try:
        head = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=root, capture_output=True, text=True)
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *MEASURED], cwd=root, capture_output=True)
    except OSError:
        return f"v{__version__}"
    if head.returncode:
        return f"v{__version__}"
    return head.stdout.strip() + ("+" if changed.returncode else "")


def build() -> str:
    """The version and, if known, the commit: `0.2.0 (4d3c2b1a09)`."""
    found = commit()
    return __version__ if found == f"v{__version__}" else f"{__version__} ({found})"


def _installed_commit() -> str | None:
    """The commit in the wheel, by hatch_build.py, or recorded by pip for `pip install git+URL` (PEP 610)."""
    built = files("animegamer_rt").joinpath(COMMIT_FILE)
    if built.is_file():
        return built.read_text(encoding="utf-8").strip()
    try:
        origin = json.loads(distribution("animegamer-rt").read_text("direct_url.json") or "{}")
        return str(origin["vcs_info"]["commit_id"])[:10]
    except (PackageNotFoundError, ValueError, KeyError, TypeError):
        return None


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = __version__ if name == "animegamer-rt" else "unknown"
    return found
