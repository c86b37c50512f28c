"""How much memory a turn takes on the CPU: computed from a bundle's sizes, calibrated with measurements.

The measurements are in docs/FULL_SIZE.md ("A turn on a CPU"). Imports neither torch nor onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import DEFAULT_PARTS, DENOISER, NETWORKS, PLAY_ROLES, PREDICTOR, VAE, PlanParts
from animegamer_rt.engine_config import CPU_DEVICES
from animegamer_rt.errors import BackendError

LEAST = "bf16"
"""PyTorch's precision that takes least memory on a CPU. Without AMX it is slower than float32 (docs/FULL_SIZE.md)."""
STORED_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
FLOAT, HALF = 4, 2
"""Bytes of a number in memory. On a CPU all parts compute in float32, or in 16 bits with PyTorch on request."""
PROCESS_BYTES = 500 * 2**20
"""Python, its libraries and their own memory, with PyTorch."""
VIDEO_FRAMES = 9
"""Frames of the vae's first chunk, the larger one."""
FRAMES_AT_ONCE = 2
"""Frames per slice of them with PyTorch, if they would need more than VAE_BYTES."""
VAE_BYTES = 8 * 2**30
"""Limit of the vae's memory on a CPU with PyTorch, including caches."""
SPARE_BYTES = 2**29
"""Memory that PyTorch's vae leaves free: on a GPU for a concurrent prompt and for workspaces."""
FILL = 0.8
"""The share of a block that the vae's activations can fill when PyTorch's GPU allocator cuts them from it
(tests/runtime/backends/test_torch_memory.py)."""
ONNXRUNTIME_HOLDS = 10
"""Activations of the vae's widest kind that onnxruntime's arena takes, as measured at 240 x 352."""


def with_torch(bundle: Bundle, precision: str | None = None, parts: PlanParts = DEFAULT_PARTS) -> int:
    """Bytes of a turn with `--device torch-cpu` in this `--precision`; None: float32."""
    return PROCESS_BYTES + sum(_stages(bundle, parts, True, FLOAT if precision in (None, "fp32") else HALF))


def with_onnxruntime(bundle: Bundle, parts: PlanParts = DEFAULT_PARTS) -> int:
    """Bytes of a turn with `--device cpu`, whose vae decodes a chunk at once."""
    return PROCESS_BYTES + sum(_stages(bundle, parts, False, FLOAT))


def check(bundle: Bundle, device: str, precision: str | None = None, parts: PlanParts = DEFAULT_PARTS) -> None:
    """Raises BackendError if a turn needs more memory than this machine has: it would be killed halfway.

    device: onnxruntime's or PyTorch's on the CPU; others are not checked. precision: as in `with_torch`.
    """
    if device not in CPU_DEVICES:
        return
    torch = device == "torch-cpu"
    needed = with_torch(bundle, precision, parts) if torch else with_onnxruntime(bundle, parts)
    _, whole = machine_bytes()
    if needed <= whole:
        return
    instead = options_within(bundle, whole, parts)
    do = "use a bundle of lower precision, or a machine with more memory"
    if instead:
        do = f"use {instead}"
    raise BackendError(
        f"a turn with --device {device} needs more memory than this machine has",
        where=bundle.folder,
        found=f"{whole / 2**30:.1f} GiB",
        expected=f"about {needed / 2**30:.1f} GiB",
        do=do,
    )


def options_within(bundle: Bundle, size: int, parts: PlanParts = DEFAULT_PARTS) -> str:
    """The options with which PyTorch on the CPU plays within this many bytes; empty if it cannot."""
    for precision, options in ((None, "--device torch-cpu"), (LEAST, f"--device torch-cpu --precision {LEAST}")):
        if with_torch(bundle, precision, parts) <= size:
            return options
    return ""


def machine_bytes() -> tuple[int, int]:
    """(available now, total) of this machine or its container; without swap."""
    memory = psutil.virtual_memory()
    limit, used = (_cgroup(name) for name in ("memory.max", "memory.current"))
    if limit is None or limit >= memory.total:
        return memory.available, memory.total
    return min(memory.available, limit - (used or 0)), limit


def _cgroup(name: str) -> int | None:
    try:
        return int(Path("/sys/fs/cgroup", name).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # another system, or "max"
        return None


def _stages(bundle: Bundle, parts: PlanParts, with_torch: bool, width: int) -> Iterator[int]:
    """Bytes of each role; width: of a number in memory. For unknown kinds of networks, only their weights."""
    size = bundle.manifest.geometry
    numbers: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
        NETWORKS[PREDICTOR]: lambda sizes: _predictor(sizes, size.window_tokens),
        NETWORKS[DENOISER]: _denoiser,
        NETWORKS[VAE]: lambda sizes: _vae(sizes, size.latent_height, size.latent_width, with_torch, width),
    }
    for role in PLAY_ROLES:
        part = parts[role]
        sizes, count = bundle.sizes(role, part), numbers.get(bundle.network(role, part))
        yield weights_bytes(bundle, parts.graphs(role)[0], sizes, width)
        with suppress(KeyError, TypeError, ZeroDivisionError):  # a bundle without these sizes
            yield width * count(sizes) if count else 0


def weights_bytes(bundle: Bundle, graph: str, sizes: Mapping[str, Any], width: int) -> int:
    """Bytes of a graph's weights in memory: floats of this width, 4- and 8-bit codes as stored."""
    part = bundle.manifest.parts.get(graph)
    if part is None:
        return 0
    stored = sum(bundle.manifest.files[name].bytes for name in part.data_files)
    if part.precision in STORED_BYTES:
        return stored * width // STORED_BYTES[part.precision]
    words = sizes.get("vocabulary", 0) * sizes.get("hidden", 0)  # embedding table and head stay floats
    return int(stored + 2 * words * (width - STORED_BYTES["fp16"]))


def _predictor(size: Mapping[str, Any], window: int) -> int:
    """Keys and values of the window; a prompt's activations in its widest layer; one matrix in floats."""
    kept = 2 * size["layers"] * size["kv_heads"] * (size["hidden"] // size["heads"]) * window
    prompt = 2 * min(window, 5 * (size.get("shot_tokens", 226) + 40)) * (3 * size["mlp"] + 4 * size["hidden"])
    return int(kept + prompt + size["mlp"] * size["hidden"])


def _denoiser(size: Mapping[str, Any]) -> int:
    """Activations of a CFG pair in a block's widest layer."""
    patch = size.get("patch", 2)
    tokens = size.get("latent_frames", 5) * (size["latent_height"] // patch) * (size["latent_width"] // patch)
    return 2 * int(tokens + size.get("shot_tokens", 226)) * int(size["hidden"]) * 14


def _vae(size: Mapping[str, Any], height: int, width: int, with_torch: bool, bytes_each: int) -> int:
    """The caches between its chunks, and the activations of its widest layer, the first of the last stage."""
    caches = vae_caches(size, height, width)
    if not with_torch:
        wide, pixels = _last_stage(size, height, width)
        return caches + ONNXRUNTIME_HOLDS * VIDEO_FRAMES * wide * pixels
    left = VAE_BYTES - SPARE_BYTES - bytes_each * caches  # counted as in backends.torch.vae
    whole, in_slices = (vae_activations(size, height, width, frames) for frames in (VIDEO_FRAMES, FRAMES_AT_ONCE))
    return caches + (whole if bytes_each * whole / FILL <= left else in_slices)


def vae_caches(size: Mapping[str, Any], height: int, width: int) -> int:
    """Numbers that the first chunk leaves for the second: two frames of each convolution's input."""
    widths = [size["channels"] * multiplier for multiplier in size["multipliers"]]
    blocks, deepest = size["res_blocks"] + 1, widths[-1]
    cached = (size["latent_channels"] + 4 * deepest) * height * width
    incoming = deepest
    for level in reversed(range(len(widths))):
        of_stage = incoming + (2 * blocks - 1) * widths[level] + (widths[0] if level == 0 else 0)
        incoming, scale = widths[level], 2 ** (len(widths) - 1 - level)
        cached += of_stage * height * width * scale**2
    return int(2 * cached)


def vae_activations(size: Mapping[str, Any], height: int, width: int, frames: int) -> int:
    """Numbers of its widest layer with PyTorch, in slices of so many frames: input, padded input and output."""
    wide, pixels = _last_stage(size, height, width)
    layer = VIDEO_FRAMES * wide + (2 + frames) * wide + frames * size["channels"] * size["multipliers"][0]
    return int(max(layer, (3 * VIDEO_FRAMES + 2) * size["channels"] * size["multipliers"][0]) * pixels)


def _last_stage(size: Mapping[str, Any], height: int, width: int) -> tuple[int, int]:
    """Channels that enter it, and pixels of a frame."""
    multipliers = size["multipliers"]
    wide = size["channels"] * multipliers[min(1, len(multipliers) - 1)]
    return int(wide), height * width * 4 ** (len(multipliers) - 1)
