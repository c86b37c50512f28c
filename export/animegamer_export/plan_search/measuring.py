"""From a bundle to its cost-against-fidelity curve: search on some turns, measure on others, choose by goals.

Knows pipeline, plans and figures; nothing of files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from types import MappingProxyType
from typing import Any

import numpy as np

from animegamer_export.evaluate.fidelity import ClipScorer, PlanEvaluator, TurnInput, draw, first_turns
from animegamer_export.evaluate.metrics import relative_error
from animegamer_rt.backends.interface import Engines, FloatArray
from animegamer_rt.bundle.denoise_plan import DenoisePlan, exact_plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.errors import PlanError
from animegamer_rt.pipeline import Pipeline

from . import search, trajectory
from .reusing import guided_to_its_end, reusing
from .skipping import skipping

GOALS: Mapping[str, float] = MappingProxyType({"balanced": 0.97, "fast": 0.87})
"""The SSIM against exact that a plan of this name has to reach: 0.95 and 0.85, and 0.02 for turns not measured."""
SKIPPING = "-skipping"
"""Ends the name of a plan that skips blocks and costs less than the one without, which every engine plays."""
EMPHASES = (-0.25, 0.0, 0.25, 0.5, 1.0)
"""How much early errors count in the search: which of these is best depends on the network, so each is played."""
ENOUGH = 6
"""Plans that reach every goal before no dearer ones are tried: what reuses guidance is made of these."""
SEARCH_SEED, CHECK_SEED = 500, 100


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """How much is measured: the costs tried, in network rows of a turn, the cheapest first until `ENOUGH` plans reach
    every goal; and the turns of search and of check.
    """

    rows: Sequence[int] = (*range(5, 20), *range(20, 40, 2), *range(40, 81, 4))
    turns: int = 6


@dataclass(frozen=True, slots=True)
class PlanResult:
    """One plan of the curve: its network rows and their cost, the median seconds of its denoising here, its figures.

    cost: `DenoisePlan.cost`, as many as its rows if it skips no blocks.
    """

    rows: int
    cost: float
    plan: DenoisePlan
    denoise_seconds: float
    fidelity: Mapping[str, Any]

    @property
    def ssim(self) -> float:
        """Of its frames against the exact plan's."""
        return float(self.fidelity["ssim"])

    def reaches(self, ssim: float) -> bool:
        """Whether it is so near to exact, and follows instructions no worse, where a judge said how well."""
        score, exact = (self.fidelity.get(f"instruction_score{whose}") for whose in ("", "_exact"))
        return self.ssim >= ssim and (score is None or exact is None or float(score) >= float(exact))

    @property
    def skipped(self) -> str:
        """Which blocks it skips, and where; empty for none."""
        spans = [step.blocks for step in self.plan if step.blocks is not None and step.blocks.reused]
        return f"blocks {spans[0].first} to {spans[0].last} in {len(spans)} steps" if spans else ""

    @property
    def words(self) -> str:
        """What it plays and costs."""
        said = f"{self.rows} rows in {len(self.plan)} steps"
        return f"{said}, skipping {self.skipped}: the cost of {self.cost:.1f} rows" if self.skipped else said


def curve(
    bundle: Bundle,
    engines: Engines,
    instructions: Sequence[str],
    budget: SearchBudget,
    say: Callable[[str], object] = print,
    scorer: ClipScorer | None = None,
) -> list[PlanResult]:
    """The best plan found at each cost, the cheapest first; with a scorer, what it says of its clips.

    Raises PlanError if the bundle's `exact` is not.
    """
    pipeline = Pipeline.open(bundle, engines, EXACT)
    _require_exact(pipeline.plan)
    texts = list(islice(cycle(instructions), 2 * budget.turns))
    asked = first_turns(pipeline, texts[: budget.turns], SEARCH_SEED)
    say(f"recording the exact path of {len(asked)} turns")
    gram = trajectory.gram(engines.denoiser, pipeline.denoiser, pipeline.plan, asked)
    found = {emphasis: search.plans(gram, emphasis, max(budget.rows)) for emphasis in EMPHASES}
    true = [draw(pipeline.denoiser, turn) for turn in asked]
    say(f"playing {len(texts) - len(asked)} other turns exactly")
    yardstick = PlanEvaluator.play(pipeline, texts[budget.turns :], CHECK_SEED, scorer)
    blocks = engines.denoiser.skippable_blocks

    def measured(one: _Played) -> PlanResult:
        fidelity = {**yardstick.fidelity(pipeline.denoiser.with_plan(one.plan)), "runs_on": engines.device}
        point = PlanResult(one.plan.network_rows, one.plan.cost(blocks), one.plan, one.seconds, fidelity)
        say(f"{point.words}: {one.seconds:.2f} s, SSIM {point.ssim}, {fidelity['psnr_db']} dB")
        return point

    def nearest(plans: Sequence[DenoisePlan]) -> _Played | None:
        played = (_play(pipeline, plan, asked, true) for plan in plans)
        return min(played, key=lambda one: one.error, default=None)

    best: dict[int, _Played] = {}
    by_rows: dict[int, PlanResult] = {}
    for rows in budget.rows:
        if one := nearest(_within(found, rows)):
            best[rows], by_rows[rows] = one, measured(one)
        if sum(point.reaches(max(GOALS.values())) for point in by_rows.values()) >= ENOUGH:
            break
    say("playing plans that reuse guidance, from the dearest one down")
    for rows in range(max(best, default=0), min(best, default=0) - 1, -1):
        one = nearest(_reusing_at(rows, best))
        if one and (rows not in best or one.error < best[rows].error):
            best[rows], by_rows[rows] = one, measured(one)
    points = list(by_rows.values())
    if cheaper := _cheaper(points, blocks):
        say(f"playing {len(cheaper)} plans that skip blocks")
        played = [_play(pipeline, plan, asked, true) for plan in cheaper]
        points += [measured(one) for one in _nearer(played, [best[rows] for rows in sorted(best)], blocks)]
    return sorted(points, key=lambda point: point.cost)


def _reusing_at(rows: int, best: Mapping[int, _Played]) -> list[DenoisePlan]:
    """Plans of so many rows that reuse guidance, made of the best one of as many rows, or of one more."""
    dearer, same = best.get(rows + 1), best.get(rows)
    guided = guided_to_its_end(same.plan) if same else None
    return [*(reusing(dearer.plan) if dearer else []), *([guided] if guided else [])]


def _require_exact(plan: DenoisePlan) -> None:
    def steps(of: DenoisePlan) -> list[tuple[int, float]]:
        return [(step.timestep, round(step.coefficients.guidance_minus_one, 4)) for step in of]

    if steps(plan) != steps(exact_plan(len(plan))) or plan.noise_steps:
        raise PlanError(
            "the plan 'exact' is not the reference's own sampling",
            expected=f"{len(plan)} even steps, guided by the wave",
            do="export the bundle again",
        )


def choose(points: Sequence[PlanResult], goals: Mapping[str, float] = GOALS) -> dict[str, PlanResult]:
    """The cheapest point that reaches each goal and skips no blocks; as its name + SKIPPING a cheaper one that does.

    Where a judge was asked, its clips show no less of what was asked than those of exact. Raises PlanError, naming the
    best there is, where no point without skips reaches a goal.
    """
    chosen = {}
    for name, least in goals.items():
        good = sorted((point for point in points if point.reaches(least)), key=lambda point: point.cost)
        plain = [point for point in good if not point.skipped]
        if not plain:
            best = max((point.ssim for point in points), default=0.0)
            raise PlanError(f"no plan is near enough for {name!r}", found=f"SSIM {best}", expected=f"{least} or more")
        chosen[name] = plain[0]
        if good[0].cost < plain[0].cost:
            chosen[name + SKIPPING] = good[0]
    return chosen


def _cheaper(points: Sequence[PlanResult], blocks: int) -> list[DenoisePlan]:
    """Plans that skip blocks and may reach a goal for less than the points do; each once, and none for 0 blocks.

    Skipping brings a plan hardly nearer to the exact one, so it is tried on those that reach the goal themselves.
    """
    plans: list[DenoisePlan] = []
    for least in GOALS.values():
        good = [point for point in points if point.reaches(least)]
        for plan in (plan for point in good for plan in skipping(point.plan, blocks)):
            if plan.cost(blocks) < min(point.cost for point in good) and plan not in plans:
                plans.append(plan)
    return plans


def _nearer(played: Sequence[_Played], plain: Sequence[_Played], blocks: int) -> list[_Played]:
    """Of plans that skip blocks those worth measuring, the cheapest first: on the turns of the search each is nearer
    than any that costs less, and than the line between those that skip nothing, the best up to each cost.
    """
    costs, errors = [one.plan.cost(blocks) for one in plain], np.minimum.accumulate([one.error for one in plain])
    found: list[_Played] = []
    for one in sorted(played, key=lambda one: (one.plan.cost(blocks), one.error)):
        if found and one.error >= found[-1].error:
            continue
        if one.error <= np.interp(one.plan.cost(blocks), costs, errors):
            found.append(one)
    return found


def _within(found: Mapping[float, Mapping[int, DenoisePlan]], rows: int) -> list[DenoisePlan]:
    """The best plan of every emphasis that costs no more than `rows`, each plan once."""
    plans: list[DenoisePlan] = []
    for by_rows in found.values():
        affordable = [cost for cost in by_rows if cost <= rows]
        if affordable and by_rows[max(affordable)] not in plans:
            plans.append(by_rows[max(affordable)])
    return plans


@dataclass(frozen=True, slots=True)
class _Played:
    """A plan on the turns of the search: mean relative error of its latents, median seconds of a turn's denoising."""

    plan: DenoisePlan
    error: float
    seconds: float


def _play(pipeline: Pipeline, plan: DenoisePlan, asked: Sequence[TurnInput], true: Sequence[FloatArray]) -> _Played:
    denoiser, errors, seconds = pipeline.denoiser.with_plan(plan), [], []
    for turn, latent in zip(asked, true, strict=True):
        started = time.perf_counter()
        found = draw(denoiser, turn)
        seconds.append(time.perf_counter() - started)
        errors.append(relative_error(found, latent))
    return _Played(plan, float(np.mean(errors)), round(float(np.median(seconds)), 4))
