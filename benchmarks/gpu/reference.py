"""Stores the outputs of a whole network in plain bf16, run eagerly, as the reference for every variant of `turns`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu import whole_network
from benchmarks.gpu.jobs import Variant
from benchmarks.gpu.parts import open_parts

PLAIN = Variant("bf16", graphs=False)


def entries(job_args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry: the file with the outputs, and the root mean square of each."""
    file = Path(job_args["reference"])
    file.unlink(missing_ok=True)  # A stale file must not be used if this run fails.
    parts = open_parts(job_args, PLAIN)
    found = {
        f"{plan} {name}": array
        for plan in whole_network.PLANS
        for name, array in whole_network.outputs(parts, parts.plans[plan]).items()
    }
    whole_network.store(file, found)
    rms = {name: round(float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))), 4) for name, array in found.items()}
    yield {"file": str(file), "variant": PLAIN.name, "rms": rms}
