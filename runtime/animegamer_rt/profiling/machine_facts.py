"""What of a machine and of a program's start a figure depends on: instruction sets, threads, kernel, libc, memory.

Knows operating systems and installed packages; nothing of what is measured. A fact that the system does not tell is
None.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distributions
from importlib.metadata import requires as requirements
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.files import checkout_folder

from .host import available_cores, read_system_file

INSTRUCTION_SETS = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2"),
)
"""Names of /proc/cpuinfo for the instruction sets that matrix products use, on x86 and on Arm."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
ENGINE_LIBRARIES = frozenset(
    {"cuda-python", "numpy", "nvidia-ml-py", "onnxruntime", "onnxruntime-gpu", "openvino", "tensorrt-rtx-cu13", "torch"}
)
"""Libraries that run networks, installed or not."""
CPUINFO = Path("/proc/cpuinfo")
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def machine_facts() -> dict[str, Any]:
    """Fields of a record."""
    return {
        "command_line": command_line(sys.argv),
        "instruction_sets": instruction_sets(),
        "threads": {
            "cores": available_cores(),
            **{name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        },
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "ram_mib": _ram_mib(),
        "governor": read_system_file(GOVERNOR).strip() or None,
        **packages(),
    }


def command_line(argv: Sequence[str]) -> str:
    """The command as it would be typed; of the program only its name, for its folder may name a person."""
    return shlex.join(["animegamer-rt", *argv[1:]])


def instruction_sets() -> list[str] | None:
    """Those of INSTRUCTION_SETS that the processor has."""
    for line in read_system_file(CPUINFO).splitlines():
        if line.startswith(("flags", "Features")):
            found = set(line.partition(":")[2].split())
            return [name for name in INSTRUCTION_SETS if name in found]
    return None


def packages() -> dict[str, Any]:
    """`packages`: versions of the libraries that playing needs or can use. `packages_pinned`: all are as pinned.

    The pins are the checkout's constraints.txt; an installed package has none, and `packages_pinned` is None.
    """
    versions = {one.metadata["Name"].lower(): one.version for one in distributions() if one.metadata["Name"]}
    try:
        needs = [need for need in requirements("animegamer-rt") or () if "extra ==" not in need]
    except PackageNotFoundError:
        needs = []
    named = {re.split(r"[^A-Za-z0-9_.-]", need)[0].lower() for need in needs} | ENGINE_LIBRARIES
    found = {name: versions[name] for name in sorted(named) if name in versions}
    return {"packages": found, "packages_pinned": _pinned(found)}


def _pinned(found: Mapping[str, str]) -> bool | None:
    root = checkout_folder()
    if root is None or not (root / "constraints.txt").is_file():
        return None
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    pins: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", text, re.MULTILINE):
        pins.setdefault(name.lower(), set()).add(version)
    return all(version.partition("+")[0] in pins[name] for name, version in found.items() if name in pins)


def _ram_mib() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    except (AttributeError, ValueError, OSError):
        return None
