"""Cards: which precision of each part fits on which, arithmetic on numbers of weights, and their published rates.

It opens nothing and has not been held against a card: what the parts need besides weights is counted from shapes, as
TensorRT holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GIB = 2**30
CARDS_GIB = (8, 12, 16, 24, 32, 80)

FULL_WEIGHTS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "predictor": (6_979_321_856, 300_941_056),
        "denoiser": (1_327_104_000, 373_019_840),
        "vae": (0, 123_368_451),
    }
)
"""Weights of the published model: those that a quantiser rounds, and those that stay at 16 bits (QUANTIZATION.md)."""
WIDENED: Mapping[tuple[str, str], int] = MappingProxyType({("denoiser", "int8"): 29 * 1920 * 1920})
"""Of those that are rounded, what the TensorRT engine of weights in int8 holds at 16 bits all the same: one matrix a
block, but for the last (TENSORRT.md)."""
BYTES_A_WEIGHT: Mapping[str, float] = MappingProxyType({"fp16": 2.0, "int8": 1.03, "int4": 0.57})
"""With the scales of blocks of 64. int8 is int8-qdq for TensorRT; fp8 and w8a8 take as much, and widen nothing."""

DRIVER_BYTES = 256 * 2**20
"""A driver's own; the other inputs and outputs of the parts, about 60 MB, go with it."""
SCRATCH_BYTES = 2 * 9 * 256 * 480 * 720 * 2
"""While a part runs, at 480 x 720: input and output of the vae's widest convolution (9 frames of 256 channels, 16 bit),
the largest of all activations. One part runs at a time, so the others need no more."""
VAE_CACHES_BYTES = 1_404_691_200 * 2
"""What the vae's first part leaves for its next, at 480 x 720 in 16 bit. Held beside the scratch, as the next part runs
in that while it reads them."""
MAX_PROMPT_TOKENS = 2 * 5 * (226 + 40) + 24
"""Tokens that the predictor's caches hold: twice a full history's, and what follows it (`export tensorrt`)."""
FULL_PREDICTOR: Mapping[str, int] = MappingProxyType({"layers": 32, "heads": 32, "kv_heads": 8, "hidden": 4096})

PRECISIONS_BY_SIZE = (
    {"predictor": "fp16", "denoiser": "fp16", "vae": "fp16"},
    {"predictor": "int8", "denoiser": "fp16", "vae": "fp16"},
    {"predictor": "int4", "denoiser": "fp16", "vae": "fp16"},
    {"predictor": "int4", "denoiser": "int8", "vae": "fp16"},
)
"""From the most faithful down. The predictor first: it is most of the weights and a fiftieth of the time."""


@dataclass(frozen=True, slots=True)
class GpuSpecs:
    """A card's published figures: multiprocessors, boost clock in GHz, memory bandwidth in GB/s.

    The others are operations a clock of one multiprocessor's tensor cores, dense: fp16 (and bf16) and fp8 with sums in
    fp32, which GeForce does at half of what it does with sums in fp16; int8 with sums in int32. None: it has none.
    fp16_sums: fp16 with sums in fp16.
    """

    name: str
    multiprocessors: int
    boost_ghz: float
    bandwidth_gb: float
    fp16: int
    fp16_sums: int
    fp8: int | None
    int8: int

    def tops(self, kind: str) -> float | None:
        """Peak of `fp16`, `fp8` or `int8`, in operations a second / 1e12."""
        each = {"fp16": self.fp16, "fp8": self.fp8, "int8": self.int8}[kind]
        return None if each is None else self._tera(each)

    @property
    def fp16_tops(self) -> float:
        """Every card has it."""
        return self._tera(self.fp16)

    def attention_tops(self, scores: str) -> float:
        """Peak of attention with scores in `fp16` or `int8`, half of its operations each for scores and for values.

        With scores in int8 values are multiplied in fp16 with sums in fp16 (KERNELS.md).
        """
        if scores != "int8":
            return self.fp16_tops
        return self._tera(2 / (1 / self.int8 + 1 / self.fp16_sums))

    def _tera(self, each: float) -> float:
        """Of so many operations a clock of one multiprocessor."""
        return self.multiprocessors * self.boost_ghz * each / 1000


GPU_SPECS: Mapping[str, GpuSpecs] = MappingProxyType(
    {
        "NVIDIA GeForce RTX 3060": GpuSpecs("RTX 3060 12 GB", 28, 1.777, 360, 512, 1024, None, 2048),
        "NVIDIA GeForce RTX 4070": GpuSpecs("RTX 4070", 46, 2.475, 504, 512, 1024, 1024, 2048),
        "NVIDIA GeForce RTX 4090": GpuSpecs("RTX 4090", 128, 2.52, 1008, 512, 1024, 1024, 2048),
        "NVIDIA GeForce RTX 5090": GpuSpecs("RTX 5090", 170, 2.407, 1792, 512, 1024, 1024, 2048),
        "NVIDIA H100 80GB HBM3": GpuSpecs("H100 SXM", 132, 1.83, 3350, 4096, 4096, 8192, 8192),
        "NVIDIA H200": GpuSpecs("H200 SXM", 132, 1.83, 4800, 4096, 4096, 8192, 8192),
    }
)
"""By the driver's name. Source: the cards' published specifications (NVIDIA's architecture papers: Ampere GA102, Ada,
RTX Blackwell, Hopper; the data sheets of H100 and H200, whose peaks of 989 and 1979 tera-operations these give)."""


@dataclass(frozen=True, slots=True)
class PrecisionFit:
    """What a card of that memory holds, and the bytes of weights that have to be streamed from host memory."""

    card_gib: int
    precision: Mapping[str, str]
    weights_bytes: int
    streamed_bytes: int


def best_precisions(card_gib: int) -> PrecisionFit:
    """The most faithful precisions whose weights lie on the card at once; the smallest, streamed, where none do."""
    room = card_gib * GIB - room_bytes(480, 720, FULL_PREDICTOR)
    sizes = [weights_bytes(precision) for precision in PRECISIONS_BY_SIZE]
    best = next((number for number, size in enumerate(sizes) if size <= room), len(PRECISIONS_BY_SIZE) - 1)
    return PrecisionFit(card_gib, PRECISIONS_BY_SIZE[best], sizes[best], max(0, sizes[best] - room))


def room_bytes(height: int, width: int, predictor: Mapping[str, int]) -> int:
    """What lies on the card besides weights, for pictures of that size and a predictor of these sizes."""
    pictures = (SCRATCH_BYTES + VAE_CACHES_BYTES) * height * width // (480 * 720)
    return DRIVER_BYTES + pictures + prompt_bytes(predictor)


def prompt_bytes(predictor: Mapping[str, int]) -> int:
    """Both sets of the predictor's caches, keys and values in 16 bit: a call reads one and writes the other."""
    a_token = predictor["layers"] * predictor["kv_heads"] * (predictor["hidden"] // predictor["heads"])
    return 2 * 2 * 2 * a_token * MAX_PROMPT_TOKENS


def weights_bytes(precision: Mapping[str, str]) -> int:
    """Bytes of the published model's weights at these precisions."""
    total = 0.0
    for part, (rounded, kept) in FULL_WEIGHTS.items():
        wide = WIDENED.get((part, precision[part]), 0)
        total += (rounded - wide) * BYTES_A_WEIGHT[precision[part]] + (kept + wide) * BYTES_A_WEIGHT["fp16"]
    return int(total)
