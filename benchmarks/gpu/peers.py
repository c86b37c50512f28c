"""The same work by the usual libraries: diffusers' CogVideoX networks, transformers' Mistral.

Timed in the same run, on the same GPU and shapes, with random weights. A turn is 50 CFG pairs, one decode, and one
prompt read twice (for the shot's hidden states, and to write the state's tokens). The solver's arithmetic is omitted,
in favour of the peers. Each part is timed in its own process, so that a failure affects no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from animegamer_bench.records import percentile
from benchmarks.gpu import machine as gpu_machine
from benchmarks.gpu.prompt import FULL_PROMPT

PAIRS = 50
STATE_TOKENS = 10  # four strengths, and two fixed tokens between each and the next
FRAMES, FPS, SCALE = 17, 8, 8
WARM_UP, REPEATS = 2, 5


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the three networks; the defaults are the full size. Source: MODEL.md sections 2, 4 and 6."""

    prompt_tokens: int = sum(FULL_PROMPT)
    vocabulary: int = 32284
    predictor_hidden: int = 4096
    predictor_mlp: int = 14336
    predictor_layers: int = 32
    predictor_heads: int = 32
    predictor_kv_heads: int = 8
    layers: int = 30
    heads: int = 30
    time_width: int = 512
    latent_height: int = 60
    latent_width: int = 90
    vae_channels: tuple[int, int, int, int] = (128, 256, 256, 512)
    vae_layers: int = 3
    vae_groups: int = 32


FULL = Shape()
TINY = Shape(40, 300, 32, 64, 1, 2, 1, 1, 2, 32, 4, 6, (8, 8, 8, 8), 1, 4)
"""For a machine without a GPU: shows that the code runs; times mean nothing."""


def entries(job_args: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One entry: seconds of one part of a turn, eager or compiled. An ImportError names the missing library."""
    device, part, mode = job_args["device"], job_args["part"], job_args["mode"]
    on_gpu = device == "cuda"
    shape = FULL if on_gpu else TINY
    library, make = _MAKERS[part]
    with torch.no_grad():
        work = make(device, shape)
        if mode == "compiled":
            network = work.args[0]
            getattr(network, "decoder", network).compile()  # of the vae, what `decode` runs
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
        "shape": [FRAMES, SCALE * shape.latent_height, SCALE * shape.latent_width],
        "playback_seconds": FRAMES / FPS,
        "memory_peak_mib": round(torch.cuda.max_memory_reserved() / 2**20, 1) if on_gpu else None,
    }


def _timed(work: Callable[[], None], on_gpu: bool) -> list[float]:
    seconds = []
    for _ in range(WARM_UP + REPEATS):
        started = time.perf_counter()
        work()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds[WARM_UP:]


def _transformer(device: str, shape: Shape) -> partial[None]:
    import diffusers

    make: Any = diffusers.CogVideoXTransformer3DModel  # untyped, as the two below are
    width = 64 * shape.heads
    with _random_weights(device):
        network = make(
            num_attention_heads=shape.heads,
            attention_head_dim=64,
            num_layers=shape.layers,
            time_embed_dim=shape.time_width,
            text_embed_dim=width,
            sample_width=shape.latent_width,
            sample_height=shape.latent_height,
            sample_frames=17,
        )
    latents = torch.randn(2, 5, 16, shape.latent_height, shape.latent_width, device=device, dtype=_dtype(device))
    shots = torch.randn(2, 226, width, device=device, dtype=_dtype(device))
    timesteps = torch.tensor([500, 500], device=device)
    return partial(_pair, network.eval(), latents, shots, timesteps)


def _pair(network: nn.Module, latents: Tensor, shots: Tensor, timesteps: Tensor) -> None:
    network(hidden_states=latents, encoder_hidden_states=shots, timestep=timesteps, return_dict=False)


def _vae(device: str, shape: Shape) -> partial[None]:
    import diffusers

    make: Any = diffusers.AutoencoderKLCogVideoX
    with _random_weights(device):
        network = make(
            block_out_channels=shape.vae_channels,
            down_block_types=("CogVideoXDownBlock3D",) * 4,
            up_block_types=("CogVideoXUpBlock3D",) * 4,
            layers_per_block=shape.vae_layers,
            norm_num_groups=shape.vae_groups,
            latent_channels=16,
        )
    latent = torch.randn(1, 16, 5, shape.latent_height, shape.latent_width, device=device, dtype=_dtype(device))
    return partial(_decode, network.eval(), latent)


def _decode(network: Any, latent: Tensor) -> None:
    network.decode(latent, return_dict=False)


def _predictor(device: str, shape: Shape) -> partial[None]:
    import transformers

    make: Any = transformers.MistralForCausalLM
    config = transformers.MistralConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.predictor_hidden,
        intermediate_size=shape.predictor_mlp,
        num_hidden_layers=shape.predictor_layers,
        num_attention_heads=shape.predictor_heads,
        num_key_value_heads=shape.predictor_kv_heads,
    )
    with _random_weights(device):
        network = make(config)
    ids = torch.randint(5, 200, (1, shape.prompt_tokens), device=device)
    return partial(_read_and_write, network.eval(), ids)


def _read_and_write(network: Any, ids: Tensor) -> None:
    network(ids, output_hidden_states=True)
    network.generate(ids, max_new_tokens=STATE_TOKENS, min_new_tokens=STATE_TOKENS, do_sample=False, pad_token_id=0)


_MAKERS: Mapping[str, tuple[str, Callable[[str, Shape], partial[None]]]] = {
    "predictor": ("transformers", _predictor),
    "denoiser": ("diffusers", _transformer),
    "vae": ("diffusers", _vae),
}
"""Part -> its library, and a function that prepares the work."""


@contextmanager
def _random_weights(device: str) -> Iterator[None]:
    """Modules created inside are initialised by their libraries on the device, in its dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(_dtype(device))
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def _dtype(device: str) -> torch.dtype:
    return torch.bfloat16 if device == "cuda" else torch.float32
