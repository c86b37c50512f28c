"""Plans that skip spans of transformer blocks, each made of a plan that skips none.

Knows plans as data; neither how near these come nor what plays them.
"""

from __future__ import annotations

from itertools import product

from animegamer_rt.bundle.denoise_plan import DenoisePlan

SPANS = ((0.0, 1.0), (0.0, 1 / 2), (1 / 6, 5 / 6))
"""From where to where in the network's depth: of pocket's six blocks all, 0 to 2, and 1 to 4."""
PERIODS = (2, 3, 4)
"""One of so many steps skips. Both are what paid on pocket, of five spans and two of three steps too: docs/LOG.md."""


def block_skip_variants(plan: DenoisePlan, blocks: int) -> list[DenoisePlan]:
    """The plan, which skips nothing itself, with each span skipped at each period; every result once, and none that
    skips nothing. blocks: how many the network has and an engine can skip.
    """
    found = [plan]
    for (start, end), period in product(SPANS, PERIODS):
        first, last = round(start * blocks), round(end * blocks) - 1
        if first <= last and (derived := _skip_periodically(plan, (first, last), period)) not in found:
            found.append(derived)
    return found[1:]


def _skip_periodically(plan: DenoisePlan, span: tuple[int, int], period: int) -> DenoisePlan:
    """A step whose turn it is computes all the same where one of its rows was last computed a period ago, or never."""
    data, computed = plan.to_dict(), dict[int, int]()
    for number, (step, entry) in enumerate(zip(plan, data["steps"], strict=True), start=1):
        if number % period == 0 and all(number - computed.get(row, -period) < period for row in step.rows):
            entry["skip_blocks"] = list(span)
        else:
            computed |= dict.fromkeys(step.rows, number)
    return DenoisePlan.from_dict(data)
