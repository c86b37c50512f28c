"""Builds one engine in its own process: `python -m animegamer_export.tensorrt.builder`, with a job on standard input.

A builder frees its memory only when its process ends, and its peak can be measured there. TensorRT-RTX builds for a
named GPU and needs none; TensorRT 11 builds for the machine's GPU.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from animegamer_export.support.peak_memory import peak_mib
from animegamer_rt.backends.tensorrt.engine_id import GRAPH_VERSION, RTX
from animegamer_rt.backends.tensorrt.error_log import error_log
from animegamer_rt.bundle.roles import CACHE_PREFIX
from animegamer_rt.errors import BundleError
from animegamer_rt.profiling.libraries import RTX_PLUGIN

RESIDENT = (CACHE_PREFIX,)
"""Prefixes of inputs and outputs that stay on the GPU between parts, in half precision."""

Ranges = Mapping[str, tuple[int, int, int]]
"""Axis name -> (minimum, optimum, maximum)."""


@dataclass(frozen=True, slots=True)
class BuildJob:
    """One engine to build. `profiles`: the ranges of the named axes, each an optimisation profile, in order."""

    source: str
    target: str
    library: str
    arch: str
    precision: str
    profiles: tuple[Ranges, ...] = ()

    @property
    def typed(self) -> Path:
        """The temporary graph in TensorRT's types, next to the source, as it refers to the source's data file."""
        source = Path(self.source)
        return source.with_name(f".{source.stem}.{self.arch}.{self.precision}.onnx")

    @property
    def partial(self) -> Path:
        """The unfinished engine."""
        return Path(self.target + ".part")


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Result of a build; `error`: the library's message if nothing was built."""

    version: str = ""
    bytes: int = 0
    build_seconds: float = 0.0
    peak_mib: float | None = None
    error: str = ""


def build(job: BuildJob) -> BuildResult:
    """Rewrites the ONNX file, builds the engine and writes it atomically. Returns the library's errors as text."""
    if job.library == RTX_PLUGIN:
        return _typed_graph(job)
    try:
        trt = importlib.import_module(job.library)
    except ImportError as error:
        package = "tensorrt-rtx-cu13" if job.library == RTX else "tensorrt"
        return BuildResult(error=f"{job.library} is not installed ({error}); run: pip install {package}")
    try:
        from .graph import strongly_typed  # needs onnx

        strongly_typed(Path(job.source), job.typed, job.precision, RESIDENT)
        return _build(trt, job)
    except BundleError as error:
        return BuildResult(trt.__version__, error=str(error))
    finally:
        job.typed.unlink(missing_ok=True)


def _typed_graph(job: BuildJob) -> BuildResult:
    """Writes the rewritten graph itself, which onnxruntime's plugin compiles on the card."""
    from .graph import strongly_typed

    started = time.perf_counter()
    try:
        strongly_typed(Path(job.source), job.typed, job.precision, RESIDENT)
    except BundleError as error:
        return BuildResult(GRAPH_VERSION, error=str(error))
    job.typed.replace(job.target)
    seconds = round(time.perf_counter() - started, 2)
    return BuildResult(GRAPH_VERSION, Path(job.target).stat().st_size, seconds, peak_mib())


def _build(trt: Any, job: BuildJob) -> BuildResult:
    logger = error_log(trt)
    builder = trt.Builder(logger)
    config = builder.create_builder_config()
    if job.library == RTX:
        # By default the builder queries the machine's GPU, and fails without one.
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, job.arch.upper()), 0)
    config.set_flag(trt.BuilderFlag.WEIGHT_STREAMING)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    started = time.perf_counter()
    if not parser.parse_from_file(str(job.typed)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        text = "; ".join(f"{error.desc()} (node {error.node_name()})" for error in errors)
        return BuildResult(trt.__version__, error=text or "the parser gave no reason")
    for ranges in job.profiles:
        _add_profile(builder, config, network, ranges)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        return BuildResult(trt.__version__, error="; ".join(logger.errors) or "the builder gave no reason")
    job.partial.parent.mkdir(parents=True, exist_ok=True)
    job.partial.write_bytes(engine)
    job.partial.replace(job.target)
    return BuildResult(trt.__version__, engine.nbytes, round(time.perf_counter() - started, 2), peak_mib())


def _add_profile(builder: Any, config: Any, network: Any, ranges: Ranges) -> None:
    profile, dynamic = builder.create_optimization_profile(), False
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        shape = list(tensor.shape)
        if -1 not in shape:
            continue
        dynamic = True
        names = [tensor.get_dimension_name(axis) for axis in range(len(shape))]
        chosen = [
            [length if length >= 0 else ranges[name][end] for length, name in zip(shape, names, strict=True)]
            for end in range(3)
        ]
        profile.set_shape(tensor.name, *(tuple(end) for end in chosen))
    if dynamic:
        config.add_optimization_profile(profile)


def _main() -> int:
    """Reads a job as JSON from standard input and prints the result as the last line."""
    data = json.load(sys.stdin)
    data["profiles"] = tuple({name: tuple(ends) for name, ends in ranges.items()} for ranges in data["profiles"])
    print(json.dumps(asdict(build(BuildJob(**data)))))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
