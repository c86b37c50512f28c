"""Checks the parts' outputs before timing, as `animegamer-rt selftest` does: against onnxruntime's on the CPU.

One entry per output, with its error and the allowed error. Graphs and waits are tested by tests/gpu, each kernel by
tests/kernels, whole networks by `whole_network`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from animegamer_rt.backends.registry import open_engines
from animegamer_rt.backends.torch import loader as backend
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.diagnose.selftest import REFERENCE, Array, allowed_error, answers, compare
from animegamer_rt.engine_config import EngineConfig


def entries(job_args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The checks of one precision, with or without kernels, and attention."""
    about = {name: job_args[name] for name in ("precision", "kernels", "attention")}
    device = "torch" if job_args["device"] == "cuda" else "torch-cpu"
    config = EngineConfig(device, about["precision"], about["attention"])
    bundle, kernels = open_bundle(job_args["bundle"]), Path(job_args["library"]) if about["kernels"] else False
    engines, expected = backend.load(bundle, config, kernels=kernels), reference(job_args["bundle"])
    if device == "torch":
        list(answers(bundle, engines))  # the second run uses the graphs
    for name, values, _ in answers(bundle, engines):
        error, allowed = compare(values, expected[name]), allowed_error(bundle, config, name)
        shown = error if math.isfinite(error) else None
        yield {"check": name, **about, "error": shown, "allowed": allowed, "passed": error <= allowed}


@cache
def reference(bundle_name: str) -> Mapping[str, Array]:
    """onnxruntime's outputs, by name."""
    bundle = open_bundle(bundle_name)
    engines = open_engines(bundle, REFERENCE, plan=EXACT)
    return {name: values for name, values, _ in answers(bundle, engines)}
