"""The ways in which the denoiser's tokens attend, for `fused`, and which of them is the fastest that is right here.

Four are PyTorch's (its own choice, or one of its libraries), two are ours with INT8 scores, which cost fidelity: they
are taken where they are asked for, by name or with `fastest`, and never else. Knows heads, no network. **Nothing of it
has been run on a GPU yet.** Source: MODEL.md section 4; docs/TORCH.md.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from animegamer_kernels.attention import HEAD_WIDTH

from ...errors import BackendError
from ...models.denoiser import HEAD_NORM_EPSILON, DenoiserSize
from .custom_ops import Kernels, RowNorm, has_warpgroups
from .device import TorchDevice

Attention = Literal["torch", "cudnn", "flash", "efficient", "int8", "int8-wgmma"]
Wanted = Literal[Attention, "fastest"]
"""A way by name, or `fastest`: all that the device has are timed. They are held against exact attention when the
engines are opened."""
WAYS: tuple[Attention, ...] = get_args(Attention)
INT8_SCORES: tuple[Attention, ...] = ("int8", "int8-wgmma")
"""The kernels' own: by the instructions of any GPU from sm_80 on, and by those of sm_90 alone."""

LIBRARIES: Mapping[Attention, SDPBackend] = MappingProxyType(
    {
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
)
WITH_MASKS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
"""For prompts, whose lengths differ: all but cuDNN, which PyTorch 2.11 and later take first on sm_90 and sm_100. It
builds a plan for every new length, 0.44 s each on a B200 (FunASR issue 3704)."""
CHOOSING = threading.RLock()
"""Held while attention is queued: which libraries may be taken is said to the whole process, and prompts are read in a
thread of their own."""
ALLOWED = 3e-2
"""Relative error on drawn heads. INT8 scores cost 0.009 to 0.016 there (docs/LOG.md); a mistake is far above."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way on this machine: both norms and attention of a guided pair, or why it cannot run."""

    way: Attention
    milliseconds: float = float("inf")
    error: float = float("inf")
    refused: str = ""

    @property
    def right(self) -> bool:
        """Whether it is within what is allowed; no number is not."""
        return self.error <= ALLOWED

    def __str__(self) -> str:
        return f"{self.way} {self.milliseconds:.3f} ms" if self.right else f"{self.way} not right"


def run_attention(way: Attention, kernels: Kernels, qkv: Tensor, query: RowNorm, key: RowNorm) -> Tensor:
    """Norms of queries and keys, and attention over all tokens: qkv [B, S, 3, H, d] -> [B, S, H, d].

    qkv is written to. Raises BackendError or RuntimeError for what the way cannot do.
    """
    if way in INT8_SCORES:
        return kernels.attention_int8(qkv, query, key, warpgroups=way == "int8-wgmma")
    kernels.head_norm(qkv, query, key)
    queries, keys, values = (part.transpose(1, 2) for part in qkv.unbind(2))
    if way == "torch":
        return functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2)
    with sdpa_kernel(LIBRARIES[way]):
        return functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2)


def check(wanted: str, kernels: Kernels | None) -> None:
    """Raises BackendError for a way that there is not, or that lacks the kernels."""
    if wanted not in get_args(Wanted):
        raise BackendError("unknown attention", found=repr(wanted), expected=", ".join(get_args(Wanted)))
    if wanted != "torch" and kernels is None:
        raise BackendError(
            "attention is chosen with the kernels, which were not built or are off",
            found=f"--attention {wanted}",
            do="build them: make kernels; or name their file: ANIMEGAMER_KERNELS=FILE; or leave it out",
        )


def select_attention(
    wanted: str, torch_device: TorchDevice, kernels: Kernels | None, size: DenoiserSize
) -> tuple[Attention, str]:
    """The way to attend, and in words what it is and what was measured for it (nothing for PyTorch's own choice).

    wanted: of Wanted; what is taken was held against exact attention here. Raises BackendError where it cannot be had.
    """
    check(wanted, kernels)
    if kernels is None or wanted == "torch":
        return "torch", ""
    if wanted in INT8_SCORES:
        check_int8(wanted, torch_device, size)
    ways = [way for way in candidates(torch_device.device) if wanted in (way, "fastest")]
    found = sorted(measured(torch_device, kernels, size, ways=ways), key=lambda one: (not one.right, one.milliseconds))
    best = found[0]
    if not best.right:
        raise BackendError(
            "the attention asked for cannot be had, or is not right",
            where=torch_device.words,
            found=", ".join(f"{one} ({one.refused or f'relative error {one.error:.3f}'})" for one in found),
            do="choose another, or leave it out",
        )
    if wanted != "fastest":
        return best.way, f"{best.way} attention"
    return best.way, f"{best.way} attention as the fastest of {', '.join(map(str, found))}"


def candidates(device: torch.device) -> tuple[Attention, ...]:
    """Ways that it may have; of PyTorch's only trying tells."""
    return WAYS if has_warpgroups(device) else tuple(way for way in WAYS if way != "int8-wgmma")


def check_int8(wanted: str, torch_device: TorchDevice, size: DenoiserSize) -> None:
    """Raises BackendError for a network or a device that INT8 scores are not written for."""
    if wanted not in candidates(torch_device.device):
        raise BackendError(
            f"attention {wanted} is of instructions that only GPUs of sm_90 have, H100 and H200",
            found=torch_device.words,
            do="choose int8, which does the same by those of any GPU from sm_80 on, or fastest",
        )
    width, dtype = size.hidden // size.heads, torch_device.dtype
    if width != HEAD_WIDTH or dtype not in (torch.float16, torch.bfloat16):
        raise BackendError(
            "attention with INT8 scores is not written for this",
            found=f"heads of {width} in {dtype}",
            expected=f"heads of {HEAD_WIDTH} in float16 or bfloat16",
            do="choose another, or --precision bf16" if width == HEAD_WIDTH else "choose another",
        )


def measured(
    torch_device: TorchDevice,
    kernels: Kernels,
    size: DenoiserSize,
    rows: int = 2,
    ways: Sequence[Attention] | None = None,
) -> list[Measured]:
    """These ways (or all of the place) on heads drawn at random, of so many rows at the denoiser's own size."""
    frames, height, width = size.patch_grid
    shape = (rows, size.shot_tokens + frames * height * width, 3, size.heads, size.hidden // size.heads)
    with torch_device.use():
        random = torch.Generator(torch_device.device).manual_seed(0)
        qkv = torch.randn(shape, generator=random, device=torch_device.device).to(torch_device.dtype)
        ones = torch.ones(shape[-1], device=torch_device.device)
        norm = RowNorm(ones, torch.zeros_like(ones), HEAD_NORM_EPSILON)
        expected = exact(qkv)
        return [
            _measured(way, torch_device, kernels, qkv.clone(), norm, expected)
            for way in (ways or candidates(torch_device.device))
        ]


def _measured(
    way: Attention, torch_device: TorchDevice, kernels: Kernels, qkv: Tensor, norm: RowNorm, expected: Tensor
) -> Measured:
    try:
        found = run_attention(way, kernels, qkv, norm, norm)[-1, :, -1].float()
        error = float((found - expected).norm() / expected.norm())
        # What the norm has left in place is normed again, which changes nothing but roundings.
        return Measured(way, torch_device.milliseconds(lambda: run_attention(way, kernels, qkv, norm, norm)), error)
    except torch.AcceleratorError:  # the GPU is lost to this process: no other way can be tried in it
        raise
    except (RuntimeError, BackendError) as refused:
        return Measured(way, refused=f"{type(refused).__name__}: {refused}".partition("\n")[0][:300])


def exact(qkv: Tensor) -> Tensor:
    """Norms and attention in float32 of the last row's last head [S, d]: of one, as its scores are kept whole."""
    query, key, value = (part[-1:, :, -1:].float().transpose(1, 2) for part in qkv.unbind(2))
    query, key = (functional.layer_norm(part, part.shape[3:], eps=HEAD_NORM_EPSILON) for part in (query, key))
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(query, key, value)[0, 0]
