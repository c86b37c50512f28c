"""The denoiser's attention: PyTorch's, or our kernel for Hopper. Source: MODEL.md section 4; docs/TORCH.md."""

from __future__ import annotations

import threading

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from animegamer_kernels.denoiser import HEAD_WIDTH

from ...errors import BackendError
from ...models.denoiser import HEAD_NORM_EPSILON, DenoiserSize
from .device import TorchDevice
from .kernels import Kernels, RowNorm, has_warpgroups

MASKED_BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
"""The backends that prompts may use: all but cuDNN, PyTorch's first choice on sm_90 and sm_100 from 2.11 on. Prompts
differ in length, and cuDNN builds a plan for every new length, 0.44 s each on a B200 (FunASR issue 3704)."""
SDPA_LOCK = threading.RLock()
"""Held while attention is queued. `sdpa_kernel` sets the allowed backends for the whole process, and a prompt may be
read in another thread while a turn is denoised."""
MAX_RELATIVE_ERROR = 1e-2
"""Largest relative error of our kernel on random heads. On an H100 it was 0.0022; a bug costs far more."""


def run_attention(attention: str, kernels: Kernels, qkv: Tensor, query: RowNorm, key: RowNorm) -> Tensor:
    """Normalises queries and keys in place, then attends over all tokens: qkv [B, S, 3, H, d] -> [B, S, H, d].

    Raises BackendError or RuntimeError if the attention does not support the device, dtype or head width.
    """
    kernels.head_norm(qkv, query, key)
    if attention == "wgmma":
        return kernels.attention(qkv)
    queries, keys, values = (part.transpose(1, 2) for part in qkv.unbind(2))
    return functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2)


def check_choice(choice: str, kernels: Kernels | None) -> None:
    """Raises BackendError for an attention that needs missing kernels."""
    if choice != "torch" and kernels is None:
        raise BackendError(
            "this attention needs the kernels, which are not built or are turned off",
            found=f"--attention {choice}",
            do="build them: make kernels; or give their file: ANIMEGAMER_KERNELS=FILE; or omit --attention",
        )


def check_attention(choice: str, torch_device: TorchDevice, kernels: Kernels | None, size: DenoiserSize) -> None:
    """Raises BackendError if the attention cannot run here, or is wrong on random heads of the denoiser's size."""
    check_choice(choice, kernels)
    if kernels is None or choice == "torch":
        return
    if torch_device.device.type == "cuda" and not has_warpgroups(torch_device.device):
        raise BackendError(
            f"attention {choice} needs sm_90: H100 or H200", found=torch_device.description, do="omit --attention"
        )
    width, dtype = size.hidden // size.heads, torch_device.dtype
    if width != HEAD_WIDTH or dtype not in (torch.float16, torch.bfloat16):
        raise BackendError(
            f"attention {choice} does not support this head width or dtype",
            found=f"heads of {width} in {dtype}",
            expected=f"heads of {HEAD_WIDTH} in float16 or bfloat16",
            do="omit --attention" + (", or use --precision bf16" if width == HEAD_WIDTH else ""),
        )
    error = relative_error(choice, torch_device, kernels, size)
    if not error <= MAX_RELATIVE_ERROR:  # NaN too
        raise BackendError(
            f"attention {choice} is wrong on this device",
            where=torch_device.description,
            found=f"relative error {error:.3f}",
            expected=f"at most {MAX_RELATIVE_ERROR}",
            do="omit --attention",
        )


def relative_error(attention: str, torch_device: TorchDevice, kernels: Kernels, size: DenoiserSize) -> float:
    """The error against float32 attention on random heads of a CFG pair, for the last head of the last row.

    Only one head, as its scores [S, S] are stored whole.
    """
    frames, height, width = size.patch_grid
    shape = (2, size.shot_tokens + frames * height * width, 3, size.heads, size.hidden // size.heads)
    with torch_device.use():
        random = torch.Generator(torch_device.device).manual_seed(0)
        qkv = torch.randn(shape, generator=random, device=torch_device.device).to(torch_device.dtype)
        query, key, value = (part[-1:, :, -1:].float().transpose(1, 2) for part in qkv.unbind(2))
        query, key = (functional.layer_norm(part, part.shape[3:], eps=HEAD_NORM_EPSILON) for part in (query, key))
        with SDPA_LOCK, sdpa_kernel(SDPBackend.MATH):
            expected = functional.scaled_dot_product_attention(query, key, value)[0, 0]
        ones = torch.ones(shape[-1], device=torch_device.device)
        norm = RowNorm(ones, torch.zeros_like(ones), HEAD_NORM_EPSILON)
        found = run_attention(attention, kernels, qkv, norm, norm)[-1, :, -1].float()
        return float((found - expected).norm() / expected.norm())
