"""The denoiser's attention implementations, and the choice of the fastest one that is accurate on this device.

Four belong to PyTorch: its own choice, or one of its libraries by name. Three are ours. Those with INT8 scores reduce
fidelity, so only their names or `fastest` select them. Source: MODEL.md section 4; docs/TORCH.md.
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

from animegamer_kernels.attention import HEAD_WIDTH, MmaKind

from ...engine_config import FASTEST
from ...errors import BackendError
from ...models.denoiser import HEAD_NORM_EPSILON, DenoiserSize
from .device import TorchDevice
from .kernels import Kernels, RowNorm, has_warpgroups

Attention = Literal["torch", "cudnn", "flash", "efficient", "wgmma", "int8", "int8-wgmma"]
AttentionChoice = Literal[Attention, "fastest"]
"""An implementation by name, or `fastest`, which times all that the device has. Any choice is compared with float32
attention when the engines are opened."""
ATTENTIONS: tuple[Attention, ...] = get_args(Attention)
INT8_KINDS: Mapping[Attention, MmaKind | None] = MappingProxyType({"int8": None, "int8-wgmma": MmaKind.WARPGROUPS})
"""Our kernels with INT8 scores, and their instructions; None: what the GPU has, from sm_80 on."""
OWN_ATTENTIONS: tuple[Attention, ...] = ("wgmma", *INT8_KINDS)
"""Our own kernels."""
HOPPER_ATTENTIONS: tuple[Attention, ...] = ("wgmma", "int8-wgmma")
"""Those that need the instructions of sm_90."""

SDPA_BACKENDS: Mapping[Attention, SDPBackend] = MappingProxyType(
    {
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
)
MASKED_BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
"""The backends that prompts may use: all but cuDNN, PyTorch's first choice on sm_90 and sm_100 from 2.11 on. Prompts
differ in length, and cuDNN builds a plan for every new length, 0.44 s each on a B200 (FunASR issue 3704)."""
SDPA_LOCK = threading.RLock()
"""Held while attention is queued. `sdpa_kernel` sets the allowed backends for the whole process, and a prompt may be
read in another thread while a turn is denoised."""
MAX_RELATIVE_ERROR = 3e-2
"""Largest relative error on random heads. INT8 scores cost 0.009 to 0.016 (docs/LOG.md); a bug costs far more."""


@dataclass(frozen=True, slots=True)
class AttentionTiming:
    """One implementation on this machine: time of head norms and attention of a CFG pair, relative error, or the reason
    why it cannot run."""

    attention: Attention
    milliseconds: float = float("inf")
    error: float = float("inf")
    refused: str = ""

    @property
    def accurate(self) -> bool:
        """Whether the error is at most MAX_RELATIVE_ERROR; false for NaN."""
        return self.error <= MAX_RELATIVE_ERROR

    def __str__(self) -> str:
        return f"{self.attention} {self.milliseconds:.3f} ms" if self.accurate else f"{self.attention} not usable"


def run_attention(attention: Attention, kernels: Kernels, qkv: Tensor, query: RowNorm, key: RowNorm) -> Tensor:
    """Normalises queries and keys, then attends over all tokens: qkv [B, S, 3, H, d] -> [B, S, H, d].

    May normalise in place, so qkv is overwritten. Raises BackendError or RuntimeError if the implementation does not
    support the device, dtype or head width.
    """
    if attention in INT8_KINDS:
        return kernels.attention_int8(qkv, query, key, INT8_KINDS[attention])
    kernels.head_norm(qkv, query, key)
    if attention == "wgmma":
        return kernels.attention(qkv)
    queries, keys, values = (part.transpose(1, 2) for part in qkv.unbind(2))
    if attention == "torch":
        return functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2)
    with sdpa_kernel(SDPA_BACKENDS[attention]):
        return functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2)


def check_attention(choice: str, kernels: Kernels | None) -> None:
    """Raises BackendError for an unknown name, or for one that needs missing kernels."""
    if choice not in get_args(AttentionChoice):
        raise BackendError("unknown attention", found=repr(choice), expected=", ".join(get_args(AttentionChoice)))
    if choice != "torch" and kernels is None:
        raise BackendError(
            "choosing the attention needs the kernels, which are not built or are turned off",
            found=f"--attention {choice}",
            do="build them: make kernels; or give their file: ANIMEGAMER_KERNELS=FILE; or omit --attention",
        )


def select_attention(
    choice: str, torch_device: TorchDevice, kernels: Kernels | None, size: DenoiserSize
) -> tuple[Attention, str]:
    """The implementation to use and a description with its timings, empty for PyTorch's own choice.

    choice: one of AttentionChoice. Runs the candidates on random heads of the denoiser's size and compares them with
    float32 attention. Raises BackendError if the choice cannot run here or is not accurate.
    """
    check_attention(choice, kernels)
    if kernels is None or choice == "torch":
        return "torch", ""
    if choice in OWN_ATTENTIONS:
        check_own(choice, torch_device, size)
    attentions = [name for name in candidates(torch_device.device) if choice in (name, FASTEST)]
    timings = time_attentions(torch_device, kernels, size, attentions=attentions)
    timings.sort(key=lambda timing: (not timing.accurate, timing.milliseconds))
    best = timings[0]
    if not best.accurate:
        raise BackendError(
            f"attention '{choice}' is not usable on this device",
            where=torch_device.description,
            found=", ".join(
                f"{timing.attention}: {timing.refused or f'relative error {timing.error:.3f}'}" for timing in timings
            ),
            expected=f"relative error at most {MAX_RELATIVE_ERROR}",
            do="use another --attention, or omit it",
        )
    if choice != FASTEST:
        return best.attention, f"{best.attention} attention"
    return best.attention, f"{best.attention} attention as the fastest of {', '.join(map(str, timings))}"


def candidates(device: torch.device) -> tuple[Attention, ...]:
    """The implementations that this device may run. Whether PyTorch's run is only known by trying them."""
    return tuple(name for name in ATTENTIONS if has_warpgroups(device) or name not in HOPPER_ATTENTIONS)


def check_own(choice: str, torch_device: TorchDevice, size: DenoiserSize) -> None:
    """Raises BackendError for a device, head width or dtype that our kernels do not support."""
    if choice not in candidates(torch_device.device):
        raise BackendError(
            f"attention {choice} needs sm_90: H100 or H200",
            found=torch_device.description,
            do="use --attention int8, which runs on any GPU from sm_80 on, or fastest",
        )
    width, dtype = size.hidden // size.heads, torch_device.dtype
    if width != HEAD_WIDTH or dtype not in (torch.float16, torch.bfloat16):
        raise BackendError(
            f"attention {choice} does not support this head width or dtype",
            found=f"heads of {width} in {dtype}",
            expected=f"heads of {HEAD_WIDTH} in float16 or bfloat16",
            do="use another --attention, or --precision bf16" if width == HEAD_WIDTH else "use another --attention",
        )


def time_attentions(
    torch_device: TorchDevice,
    kernels: Kernels,
    size: DenoiserSize,
    attentions: Sequence[Attention] | None = None,
) -> list[AttentionTiming]:
    """Times and checks these implementations, or all of the device, on random heads of a pair at this size."""
    frames, height, width = size.patch_grid
    shape = (2, size.shot_tokens + frames * height * width, 3, size.heads, size.hidden // size.heads)
    with torch_device.use():
        random = torch.Generator(torch_device.device).manual_seed(0)
        qkv = torch.randn(shape, generator=random, device=torch_device.device).to(torch_device.dtype)
        ones = torch.ones(shape[-1], device=torch_device.device)
        norm = RowNorm(ones, torch.zeros_like(ones), HEAD_NORM_EPSILON)
        expected = reference_attention(qkv)
        return [
            _time_attention(attention, torch_device, kernels, qkv.clone(), norm, expected)
            for attention in (attentions or candidates(torch_device.device))
        ]


def _time_attention(
    attention: Attention, torch_device: TorchDevice, kernels: Kernels, qkv: Tensor, norm: RowNorm, expected: Tensor
) -> AttentionTiming:
    try:
        found = run_attention(attention, kernels, qkv, norm, norm)[-1, :, -1].float()
        error = float((found - expected).norm() / expected.norm())
        # Later runs normalise again what the first one normalised, which only changes rounding.
        milliseconds = torch_device.milliseconds(lambda: run_attention(attention, kernels, qkv, norm, norm))
        return AttentionTiming(attention, milliseconds, error)
    except torch.AcceleratorError:  # this process has lost the GPU, so no other implementation can be tried
        raise
    except (RuntimeError, BackendError) as refused:
        return AttentionTiming(attention, refused=f"{type(refused).__name__}: {refused}".partition("\n")[0][:300])


def reference_attention(qkv: Tensor) -> Tensor:
    """Head norms and attention in float32 for the last head of the last row, [S, d].

    Only one head, as its scores [S, S] are stored whole.
    """
    query, key, value = (part[-1:, :, -1:].float().transpose(1, 2) for part in qkv.unbind(2))
    query, key = (functional.layer_norm(part, part.shape[3:], eps=HEAD_NORM_EPSILON) for part in (query, key))
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(query, key, value)[0, 0]
