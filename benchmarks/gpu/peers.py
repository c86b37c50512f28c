"""The same work by the usual libraries: diffusers' CogVideoX networks, transformers' Mistral.

Timed in the same run, on the same GPU and shapes, with random weights. A turn is 50 CFG pairs, one decode, and one
prompt read twice (for the shot's hidden states, and to write the state's tokens). The solver's arithmetic is omitted,
in favour of the peers. Each part is timed in its own process, so that a failure affects no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from animegamer_bench.records import percentile
from benchmarks.gpu import machine as gpu_machine
from benchmarks.gpu.parts import SIZES, Size
from benchmarks.gpu.prompt import FULL_PROMPT
from benchmarks.peers import library_networks

PAIRS = 50
STATE_TOKENS = 10  # four strengths, and two fixed tokens between each and the next
WARM_UP, REPEATS = 2, 5

Work = Callable[[], object]


def entries(job_args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry: seconds of one part of a turn, eager or compiled. An ImportError names the missing library."""
    device, part, mode = job_args["device"], job_args["part"], job_args["mode"]
    on_gpu = device == "cuda"
    size = SIZES["full" if on_gpu else "tiny"]
    library, make = _MAKERS[part]
    with torch.no_grad():
        with _made_on(device):
            network, work = make(size)
        if mode == "compiled":
            network.compile()
        seconds = _timed(work, on_gpu)
    times = PAIRS if part == "denoiser" else 1
    yield {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "part": part,
        "mode": mode,
        "library": f"{library} {version(library)}",
        "p50": round(times * percentile(seconds, 50), 5),
        "p95": round(times * percentile(seconds, 95), 5),
        "n": REPEATS,
        "pairs": PAIRS,
        "device": "torch" if on_gpu else "torch-cpu",
        "gpu": gpu_machine.facts() if on_gpu else None,
        "precision": "bf16" if on_gpu else "fp32",
        "size": "full" if on_gpu else "tiny",
        "shape": [size.geometry.frames, size.geometry.height, size.geometry.width],
        "playback_seconds": size.geometry.frames / size.geometry.fps,
        "memory_peak_mib": round(torch.cuda.max_memory_reserved() / 2**20, 1) if on_gpu else None,
    }


def _timed(work: Work, on_gpu: bool) -> list[float]:
    seconds = []
    for _ in range(WARM_UP + REPEATS):
        started = time.perf_counter()
        work()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds[WARM_UP:]


def _denoiser(size: Size) -> tuple[nn.Module, Work]:
    network = library_networks.empty_transformer(size.denoiser)
    geometry = size.geometry
    latents = torch.randn(2, *geometry.latent_shape[1:])
    shots = torch.randn(2, geometry.shot_tokens, geometry.shot_width)
    return network, partial(network, latents, shots, torch.tensor([500, 500]), return_dict=False)


def _vae(size: Size) -> tuple[nn.Module, Work]:
    network = library_networks.empty_vae(size.vae)
    latent = torch.randn(size.geometry.latent_shape).transpose(1, 2)
    return network.decoder, partial(network.decode, latent, return_dict=False)


def _predictor(size: Size) -> tuple[nn.Module, Work]:
    network = library_networks.empty_mistral(size.predictor)
    ids = torch.randint(5, 200, (1, sum(FULL_PROMPT) if size is SIZES["full"] else 40))
    return network, partial(_read_and_write, network, ids)


def _read_and_write(network: Any, ids: Tensor) -> None:
    network(ids, output_hidden_states=True)
    network.generate(ids, max_new_tokens=STATE_TOKENS, min_new_tokens=STATE_TOKENS, do_sample=False, pad_token_id=0)


_MAKERS: Mapping[str, tuple[str, Callable[[Size], tuple[nn.Module, Work]]]] = {
    "predictor": ("transformers", _predictor),
    "denoiser": ("diffusers", _denoiser),
    "vae": ("diffusers", _vae),
}
"""Part -> its library, and a function that makes the network that is compiled and the work that is timed."""


@contextmanager
def _made_on(device: str) -> Iterator[None]:
    """Modules and inputs made inside are on the device, in its dtype; libraries initialise their weights."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)
