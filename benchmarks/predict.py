"""Predicted seconds of a full-size turn on cards that were not at hand: counted work over published peak rates.

Nothing here was measured. `table.py` writes the result into PREDICTED.md, where it is called what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GEMM_TFLOP, ATTENTION_TFLOP = 18.5, 11.2
"""Of one branch of one denoise step at 480 x 720: 6976 tokens, 30 layers of width 1920 (MODEL.md section 4)."""
VAE_TFLOP = 110.0
PREDICTOR_TFLOP = 2 * 6.98e9 * (900 + 260) / 1e12
"""A prompt of about 900 tokens, the turn's 260 in two rows, through seven thousand million weights."""
PREDICTOR_4BIT_GB = 4.1
STATE_TOKENS = 4
"""Each reads all the predictor's weights once more."""

SHARES = (1.0, 0.6)
"""Of the peak: all of it, which no program reaches, and what large products and convolutions commonly do."""


@dataclass(frozen=True, slots=True)
class Card:
    """Published figures: multiprocessors, boost clock in GHz, memory bandwidth in GB/s.

    `flop` are the fp16 tensor operations a clock of one multiprocessor with sums in fp16, dense; sums in fp32, which
    attention and a fp16 network need, run at half of that on GeForce. `fp8`: it multiplies fp8, at twice `flop`.
    """

    name: str
    multiprocessors: int
    boost_ghz: float
    bandwidth_gb: float
    fp8: bool
    flop: int = 1024

    @property
    def fp16_tflops(self) -> float:
        """Peak with sums in fp32."""
        return self.multiprocessors * self.boost_ghz * self.flop / 2 / 1000

    @property
    def fp8_tflops(self) -> float:
        """Peak of fp8 with sums in fp32."""
        return 2 * self.fp16_tflops


CARDS = (
    Card("RTX 3060 12 GB", 28, 1.777, 360, fp8=False),
    Card("RTX 4070", 46, 2.475, 504, fp8=True),
    Card("RTX 4090", 128, 2.52, 1008, fp8=True),
    Card("RTX 5090", 170, 2.407, 1792, fp8=True),
)
"""Source: the cards' published specifications (NVIDIA's architecture papers: Ampere GA102, Ada, RTX Blackwell)."""

COLUMNS = ("card", "precision of products", "plan", "network rows", "at the peak", "at 60 % of it")


def seconds(card: Card, rows: int, precision: str, share: float) -> float:
    """A turn's seconds: predictor, denoiser and vae one after another, each bound by its products or its memory."""
    peak = {"fp16": card.fp16_tflops, "fp8": card.fp8_tflops}[precision]
    branch = GEMM_TFLOP / peak + ATTENTION_TFLOP / card.fp16_tflops
    read = PREDICTOR_4BIT_GB / card.bandwidth_gb
    predictor = max(PREDICTOR_TFLOP / card.fp16_tflops, read) + STATE_TOKENS * read
    return (rows * branch + VAE_TFLOP / card.fp16_tflops + predictor) / share


def table(rows_by_plan: Mapping[str, int]) -> str:
    """Markdown: each card, precision and plan."""
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for card in CARDS:
        for precision in ("fp16", "fp8") if card.fp8 else ("fp16",):
            for plan, rows in rows_by_plan.items():
                shown = [f"{seconds(card, rows, precision, share):.1f} s" for share in SHARES]
                lines.append(_line([card.name, precision, plan, str(rows), *shown]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
