"""How much memory a turn takes on the CPU, by stage: arithmetic from a bundle's sizes, compared with runs.

What was measured is in docs/FULL_SIZE.md ("Memory on a CPU"). Imports neither torch nor onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import BackendError

STAGES = {"predictor": "predictor", "denoiser": "denoiser", "vae": "vae_first"}
"""Stage of a turn -> the part that holds its weights."""
CPU_DEVICES = ("cpu", "cpu-fp32", "torch-cpu")
STORED_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
FLOAT = 4
"""Bytes of a number in memory: on a CPU all parts compute in float32."""
KEPT_BYTES = 4 * 2**30
"""A turn that takes more than this has one part in memory at a time with PyTorch."""
PROCESS_BYTES = 500 * 2**20
"""Python, its libraries and what they keep, with PyTorch."""
VIDEO_FRAMES = 9
"""Frames of the vae's first chunk, the larger one."""
FRAMES_AT_ONCE = 2
"""Frames of a slice of them with PyTorch, where more than VAE_BYTES would be needed."""
VAE_BYTES = 8 * 2**30
"""What the vae may take on a CPU with PyTorch, caches included."""
ONNXRUNTIME_HOLDS = 10
"""Activations of the vae's widest kind that onnxruntime's arena takes, as measured at 240 x 352."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes that each stage of a turn takes, its weights included, and the peak of the process."""

    stages: Mapping[str, int]
    one_at_a_time: bool

    @property
    def peak_bytes(self) -> int:
        """The largest stage where parts leave, otherwise all weights beside the largest stage."""
        return PROCESS_BYTES + (max if self.one_at_a_time else sum)(self.stages.values())


def with_torch(bundle: Bundle) -> HostMemory:
    """Memory of a turn with `--device torch-cpu` in float32."""
    stages = _stages(bundle, with_torch=True)
    return HostMemory(stages, sum(stages.values()) > KEPT_BYTES)


def with_onnxruntime(bundle: Bundle) -> HostMemory:
    """Memory of a turn with `--device cpu`: every part stays, and the vae decodes a chunk's frames together."""
    return HostMemory(_stages(bundle, with_torch=False), one_at_a_time=False)


def check(bundle: Bundle, device: str) -> None:
    """Raises BackendError where a turn needs more memory than this machine has: it would be killed in the midst of it.

    device: one of onnxruntime's or PyTorch's on the CPU; nothing is known of others.
    """
    if device not in CPU_DEVICES:
        return
    needed = (with_torch if device == "torch-cpu" else with_onnxruntime)(bundle).peak_bytes
    instead, (_, whole) = with_torch(bundle).peak_bytes, machine_bytes()
    if needed <= whole:
        return
    do = "use a bundle of smaller precision, or a machine with more memory"
    if device != "torch-cpu" and instead <= whole:
        do = f"use --device torch-cpu: it takes about {instead / 2**30:.1f} GiB, as one part at a time is in memory"
    raise BackendError(
        f"a turn with --device {device} needs more memory than this machine has",
        where=bundle.folder,
        found=f"{whole / 2**30:.1f} GiB",
        expected=f"about {needed / 2**30:.1f} GiB",
        do=do,
    )


def machine_bytes() -> tuple[int, int]:
    """(available now, in all) of this machine or its container; swap does not count."""
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


def _stages(bundle: Bundle, with_torch: bool) -> dict[str, int]:
    sizes, size = bundle.manifest.sizes, bundle.manifest.geometry
    try:
        work = {
            "predictor": _predictor(sizes["predictor"], size.window_tokens),
            "denoiser": _denoiser(sizes["denoiser"]),
            "vae": _vae(sizes["decoder"], size.latent_height, size.latent_width, with_torch),
        }
    except (KeyError, TypeError, ZeroDivisionError):  # a bundle without these sizes: its weights are known alone
        work = {}
    return {stage: _weights(bundle, stage) + work.get(stage, 0) for stage in STAGES}


def _weights(bundle: Bundle, stage: str) -> int:
    """Bytes in memory of a stage's weights: floats in float32, codes of 4 and 8 bits as they are stored."""
    part = bundle.manifest.parts.get(STAGES[stage])
    if part is None:
        return 0
    stored = sum(bundle.manifest.files[name].bytes for name in part.data_files)
    if part.precision in STORED_BYTES:
        return stored * FLOAT // STORED_BYTES[part.precision]
    sizes = bundle.manifest.sizes.get(stage, {})
    words = sizes.get("vocabulary", 0) * sizes.get("hidden", 0)  # stay floats: a table of words, and the head's
    return int(stored + 2 * words * (FLOAT - STORED_BYTES["fp16"]))


def _predictor(size: Mapping[str, Any], window: int) -> int:
    """Keys and values of the window; a prompt's activations in its widest layer; one matrix in floats."""
    kept = 2 * size["layers"] * size["kv_heads"] * (size["hidden"] // size["heads"]) * window
    prompt = 2 * min(window, 5 * (size.get("shot_tokens", 226) + 40)) * (3 * size["mlp"] + 4 * size["hidden"])
    return FLOAT * int(kept + prompt + size["mlp"] * size["hidden"])


def _denoiser(size: Mapping[str, Any]) -> int:
    """Activations of a guided pair in a block's widest layer."""
    patch = size.get("patch", 2)
    tokens = size.get("latent_frames", 5) * (size["latent_height"] // patch) * (size["latent_width"] // patch)
    return FLOAT * 2 * int(tokens + size.get("shot_tokens", 226)) * int(size["hidden"]) * 14


def _vae(size: Mapping[str, Any], height: int, width: int, with_torch: bool) -> int:
    """The caches between its chunks, and the activations of its widest layer, which is the last stage's first."""
    widths = [size["channels"] * multiplier for multiplier in size["multipliers"]]
    blocks, deepest = size["res_blocks"] + 1, widths[-1]
    cached = (size["latent_channels"] + 4 * deepest) * height * width
    incoming = deepest
    for level in reversed(range(len(widths))):
        of_stage = incoming + (2 * blocks - 1) * widths[level] + (widths[0] if level == 0 else 0)
        incoming, scale = widths[level], 2 ** (len(widths) - 1 - level)
        cached += of_stage * height * width * scale**2
    pixels, before = height * width * 4 ** (len(widths) - 1), widths[min(1, len(widths) - 1)]
    if not with_torch:
        return FLOAT * int(2 * cached + ONNXRUNTIME_HOLDS * VIDEO_FRAMES * before * pixels)

    def needed(frames: int) -> int:
        """Input, padded input and output of that layer, so many frames at once."""
        held = VIDEO_FRAMES * before + (2 + frames) * before + frames * widths[0]
        return FLOAT * int(2 * cached + max(held, (3 * VIDEO_FRAMES + 2) * widths[0]) * pixels)

    whole = needed(VIDEO_FRAMES)
    return whole if whole <= VAE_BYTES else needed(FRAMES_AT_ONCE)
