"""Our kernels beside the operators they replace: checked case by case, timed on a GPU.

A kernel must match its plain reference on the CPU and the plain operators on the device. One that is faster than
neither the plain nor the compiled operators is a candidate for deletion, and its entry says so. On a CPU the references
run in place of the kernels, and times mean nothing. **The checks have run on a GPU; nothing was timed yet.**
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from animegamer_rt.backends.torch import attention
from animegamer_rt.backends.torch.device import CudaTorchDevice, TorchDevice
from animegamer_rt.backends.torch.kernels import Kernels
from animegamer_rt.backends.torch.rowwise_linear import FP8, INT8
from animegamer_rt.errors import AnimeGamerError
from benchmarks.gpu import build as gpu_build
from benchmarks.gpu import rates as gpu_rates
from benchmarks.gpu.kernel_cases import FAMILIES, FULL, SMALL, Case, Results

ALLOWED: Mapping[str, float] = {
    "fp32": 1e-5,
    "bf16": 1e-2,
    "fp8": 3e-2,
    "int8": 2.5e-2,
    "int8 scores": attention.MAX_RELATIVE_ERROR,
    "bytes": 5e-3,
}
"""Relative errors: rounding of the compared numbers, and now and then a quantised code that differs by one."""
ROTATED_BYTES = 512 * 2**20
"""Inputs are copied until they are this large together: several times a GPU's cache."""

Entry = dict[str, Any]


def entries(job_args: Mapping[str, Any]) -> Iterator[Entry]:
    """The times of one family of kernels, or the results of the library's own benchmark."""
    library = Path(job_args["library"])
    if job_args["name"] == "program":
        program = [library.parent / gpu_build.PROGRAM]
        output = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout
        yield {"what": "every kernel by itself", **json.loads(output.splitlines()[-1])}
    else:
        with torch.no_grad():
            yield from timings(library, job_args["family"], job_args["device"])


def checks(path: Path, family: str, device: str) -> Iterator[Entry]:
    """Every case against the plain operators on the device, and on a GPU against the references on the CPU."""
    kernels = Kernels(str(path))
    for sizes in (SMALL, FULL) if device == "cuda" else (SMALL,):
        where = "full size" if sizes is FULL else "small"
        for case in FAMILIES[family](kernels, sizes, device):
            try:
                # A reference at full size takes minutes. Copied before the kernel runs, which may overwrite it.
                referenced = device == "cuda" and sizes is SMALL
                on_cpu = [tensor.to("cpu", copy=True) for tensor in case.given] if referenced else []
                plain = case.plain(*case.given)
                found = case.kernel(*case.given)
                yield check(f"{case.name}, {where}, against plain", case, found, plain)
                if referenced:
                    expected = case.kernel(*on_cpu)
                    yield check(f"{case.name}, {where}, against its reference", case, found, expected)
            except (RuntimeError, AnimeGamerError) as error:
                yield {"check": case.name, "error": None, "passed": False, "broken": gpu_rates.describe_error(error)}


def timings(path: Path, family: str, device: str) -> Iterator[Entry]:
    """Milliseconds of every case at full size: the kernel, the plain operators, and those compiled.

    Attention is timed beside each of PyTorch's implementations.
    """
    on_gpu = device == "cuda"
    if family == "attention":
        torch_device = CudaTorchDevice(torch.bfloat16) if on_gpu else TorchDevice(torch.bfloat16)
        size = FULL.denoiser if on_gpu else SMALL.denoiser
        yield from attention_timings(attention.time_attentions(torch_device, Kernels(str(path)), size), on_gpu)
        return
    for case in FAMILIES[family](Kernels(str(path)), FULL if on_gpu else SMALL, device):
        entry: Entry = {"what": case.name}
        runs = {"kernel": case.kernel, "plain": case.plain}
        if on_gpu:
            runs["compiled"] = torch.compile(case.plain, dynamic=False)
        copies = max(2, math.ceil(ROTATED_BYTES / sum(part.nbytes for part in case.given))) if on_gpu else 2
        inputs = [case.given, *([part.clone() for part in case.given] for _ in range(copies - 1))]
        for name, run in runs.items():
            try:
                taken = gpu_rates.milliseconds([partial(run, *given) for given in inputs], device)
                entry[f"{name}_ms_p50"] = round(taken, 5)
            except (RuntimeError, AnimeGamerError) as error:
                entry[f"{name}_error"] = gpu_rates.describe_error(error)
        others = [entry[name] for name in ("plain_ms_p50", "compiled_ms_p50") if name in entry]
        ours = entry.get("kernel_ms_p50")
        entry["delete_candidate"] = on_gpu and (ours is None or bool(others and ours >= min(others)))
        yield entry


def attention_timings(found: Sequence[attention.AttentionTiming], on_gpu: bool) -> Iterator[Entry]:
    """Our attention beside the other implementations, norms included in each.

    Each of ours must beat all that are accurate and not ours, and those of ours before it.
    """
    times: Entry = {}
    for one in found:
        figures = {"ms_p50": round(one.milliseconds, 5), "error": one.error}
        times[one.attention] = figures if one.accurate else {"refused": one.refused or str(one)}
    rivals = [one.milliseconds for one in found if one.accurate and one.attention not in attention.OWN_ATTENTIONS]
    for ours in (one for one in found if one.attention in attention.OWN_ATTENTIONS):
        slower = not ours.accurate or any(ours.milliseconds >= rival for rival in rivals)
        yield {"what": f"attention {ours.attention}", **times, "delete_candidate": on_gpu and slower}
        rivals += [ours.milliseconds] if ours.accurate else []


def check(what: str, case: Case, found: Results, expected: Results) -> Entry:
    """The largest relative error of a case's results; codes are compared with their scales.

    Counted where the results lie: at full size the largest takes 3 GB in float64, which a GPU reads in a moment.
    """
    errors = []
    for ours, theirs in zip(values(found), values(expected), strict=True):
        theirs = theirs.to(ours.device)
        errors.append(float((ours - theirs).norm() / theirs.norm()))
    allowed = ALLOWED[case.label]
    error = max(errors) if all(map(math.isfinite, errors)) else None
    passed = error is not None and error <= allowed
    return {"check": what, "precision": case.label, "error": error, "allowed": allowed, "passed": passed}


def values(results: Results) -> list[Tensor]:
    """Results as float64, a pair of codes and scales as their product."""
    exact = [tensor.detach().double() for tensor in results]
    return [exact[0] * exact[1], *exact[2:]] if results[0].dtype in (FP8, INT8) else exact
