"""Predicted seconds of a full-size turn by card: counted work over published peak rates, to be held against records.

Nothing here was measured. `table.py` writes the result into PREDICTED.md, where it is called what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from animegamer_rt.profiling.gpu_specs import GPU_SPECS, GpuSpecs

GEMM_TFLOP, ATTENTION_TFLOP = 18.5, 11.2
"""Of one branch of one denoise step at 480 x 720: 6976 tokens, 30 layers of width 1920 (MODEL.md section 4)."""
INT8_SUMS_GB = 30 * 6976 * 9 * 1920 * (4 + 4 + 2) / 1e9
"""Of one branch in INT8: PyTorch's product leaves its sums in memory as int32, and a pass makes 16-bit numbers of them
(qkv, output and both of the MLP: 9 widths a token and layer; written, read, written)."""
VAE_TFLOP = 110.0
PREDICTOR_WEIGHTS, PREDICTOR_4BIT_GB = 6.98e9, 4.1
STATE_TOKENS = 4
"""Each reads all the predictor's weights once more."""
HISTORY_TURNS, CAPTION_TOKENS = 4, 20
"""The window that bundles have, and what an instruction is taken for; pocket's examples are 18 to 32 of its tokens."""
SHOT_BLOCK, WORLD_TOKENS = 230, 14
"""Tokens of a shot's queries with what frames them, and of a past turn's state (MODEL.md section 2)."""

SHARES = (1.0, 0.6)
"""Of the peak: all of it, which no program reaches, and what large products and convolutions commonly do."""
COLUMNS = ("card", "products", "attention")
ATTENTION: Mapping[str, Sequence[str]] = {"fp16": ("fp16",), "fp8": ("fp16", "int8"), "int8": ("fp16", "int8")}
"""What the scores of attention are in, with each type of products."""


def prompt_tokens(captions: Sequence[int]) -> tuple[int, int]:
    """Tokens of the history, read once, and of the turn, read in a row for each read-out; its caption is the last."""
    *past, current = captions
    history = 1 + sum(1 + words + SHOT_BLOCK + WORLD_TOKENS for words in past)
    return history, 1 + current + SHOT_BLOCK + 1


FULL_PROMPT = prompt_tokens([CAPTION_TOKENS] * (HISTORY_TURNS + 1))
"""Of a full history and of the turn: what is predicted here, and what gpu.py has this project and its peers read."""


def seconds(card: GpuSpecs, rows: int, products: str, attention: str, share: float) -> float:
    """A turn's seconds: predictor, denoiser and vae one after another, each bound by its products or its memory."""
    peak = card.tops(products)
    assert peak is not None, f"{card.name} has no {products}"
    branch = GEMM_TFLOP / peak + ATTENTION_TFLOP / card.attention_tops(attention)
    if products == "int8":
        branch += INT8_SUMS_GB / card.bandwidth_gb
    history, turn = FULL_PROMPT
    prompt_tflop = 2 * PREDICTOR_WEIGHTS * (history + 2 * turn) / 1e12
    read = PREDICTOR_4BIT_GB / card.bandwidth_gb
    predictor = max(prompt_tflop / card.fp16_tops, 2 * read) + STATE_TOKENS * read
    return (rows * branch + VAE_TFLOP / card.fp16_tops + predictor) / share


def table(rows_by_plan: Mapping[str, int]) -> str:
    """Markdown: each card, type of products and of attention, a column a plan with both shares of the peak."""
    plans = [f"{plan}, {rows} rows" for plan, rows in rows_by_plan.items()]
    lines = [_line([*COLUMNS, *plans]), _line(["---"] * (len(COLUMNS) + len(plans)))]
    for card in GPU_SPECS.values():
        for products in (kind for kind in ATTENTION if card.tops(kind) is not None):
            for attention in ATTENTION[products]:
                shown = [
                    " / ".join(f"{seconds(card, n, products, attention, share):.3g}" for share in SHARES)
                    for n in rows_by_plan.values()
                ]
                lines.append(_line([card.name, products, attention, *shown]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
