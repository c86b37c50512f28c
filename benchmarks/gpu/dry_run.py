"""Runs the jobs of the GPU benchmark in this process, on the CPU at tiny size: the same code, in seconds, in CI.

Half-precision products are emulated in float32: a processor without instructions for them would take a hundred times as
long. Times mean nothing.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from benchmarks.gpu import half_products, stage


def run(job_args: Mapping[str, Any], take: Callable[[dict[str, Any]], None]) -> tuple[str, str]:
    """Runs a job and passes on its results; (outcome, the traceback of a failure)."""
    prepare()
    try:
        for entry in stage.entries(job_args):
            take(entry)
    except Exception:  # noqa: BLE001 any error costs this job only
        return "failed", traceback.format_exc()
    return "well", ""


@cache
def prepare() -> None:
    """Process-wide setup: one thread, because the work is tiny, and emulated half-precision products."""
    torch.set_num_threads(1)
    half_products.install()
