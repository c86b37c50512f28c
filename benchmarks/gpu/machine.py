"""This GPU's name, memory, clocks, power limit and driver, and the software versions.

Uses NVML if `nvidia-ml-py` is installed, else only PyTorch's facts.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from animegamer_bench.machine import open_card
from animegamer_rt import __version__
from animegamer_rt.profiling.host import describe_host


def entries(job_args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry: the fields of a record's heading that need torch."""
    on_gpu = job_args["device"] == "cuda"
    software = {"python": platform.python_version(), "animegamer-rt": __version__}
    software |= {"torch": torch.__version__, "cuda": torch.version.cuda or "none", "numpy": np.__version__}
    software["cudnn"] = str(torch.backends.cudnn.version() or "none") if on_gpu else "none"
    found: dict[str, Any] = {"machine": describe_host(), "software": software, "gpu": None}
    if on_gpu:
        properties = torch.cuda.get_device_properties(0)
        found["machine"] = f"{properties.name}, {describe_host()}"
        about = {"memory_gib": round(properties.total_memory / 2**30, 1), "sm": f"{properties.major}{properties.minor}"}
        found["gpu"] = {**(facts() or {}), "name": properties.name, "uuid": uuid(), **about}
        torch.ones(1, device="cuda").add_(1).item()  # Whether the GPU runs anything at all.
    yield found


def facts() -> dict[str, Any] | None:
    """The GPU's current state; None without NVML."""
    card = open_card(uuid())
    return card.facts() if card is not None else None


def uuid() -> str | None:
    """UUID of torch's GPU in NVML's format; None if torch does not report it."""
    found = getattr(torch.cuda.get_device_properties(0), "uuid", None) if torch.cuda.is_available() else None
    return None if found is None else f"GPU-{str(found).removeprefix('GPU-')}"
