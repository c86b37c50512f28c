"""Derives plans that skip spans of transformer blocks."""

from __future__ import annotations

from itertools import product

from animegamer_rt.bundle.denoise_plan import DenoisePlan

SPANS = ((0.0, 1.0), (0.0, 1 / 2), (1 / 6, 5 / 6))
"""Spans as fractions of the network's depth: of pocket's six blocks, all of them, 0 to 2, and 1 to 4."""
PERIODS = (2, 3, 4)
"""Every n-th step skips. These spans and periods were the best on pocket (docs/LOG.md)."""


def block_skip_variants(plan: DenoisePlan, blocks: int) -> list[DenoisePlan]:
    """All distinct variants of a plan that skip a span of SPANS at a period of PERIODS.

    blocks: the number of blocks that the engine can skip; 0 gives no variants.
    """
    found = [plan]
    for (start, end), period in product(SPANS, PERIODS):
        first, last = round(start * blocks), round(end * blocks) - 1
        if first <= last and (derived := _skip_periodically(plan, (first, last), period)) not in found:
            found.append(derived)
    return found[1:]


def _skip_periodically(plan: DenoisePlan, span: tuple[int, int], period: int) -> DenoisePlan:
    """Skips in every n-th step, except where a row's blocks have not been computed for a period, or never."""
    data, computed = plan.to_dict(), dict[int, int]()
    for number, (step, entry) in enumerate(zip(plan, data["steps"], strict=True), start=1):
        if number % period == 0 and all(number - computed.get(row, -period) < period for row in step.rows):
            entry["skip_blocks"] = list(span)
        else:
            computed |= dict.fromkeys(step.rows, number)
    return DenoisePlan.from_dict(data)
