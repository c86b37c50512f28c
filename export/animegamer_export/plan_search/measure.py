"""Searches plans of every cost on some turns of a bundle, and measures their fidelity on others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np

from animegamer_export.evaluate.fidelity import (
    PlanEvaluator,
    TurnInput,
    denoise_turn,
    predict_first_turns,
    with_plan,
)
from animegamer_export.evaluate.judges import ClipJudge
from animegamer_export.evaluate.metrics import relative_error
from animegamer_export.support.plans import exact_plan
from animegamer_rt.backends.interface import Engines, FloatArray
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.errors import PlanError
from animegamer_rt.pipeline import Pipeline

from . import search, trajectory
from .guidance_reuse import extend_guidance, reuse_variants
from .results import GOALS, PlanResult

EARLY_ERROR_POWERS = (-0.25, 0.0, 0.25, 0.5, 1.0)
"""Values of `emphasis` (search.py). The best one depends on the network, so plans of each are played."""
ENOUGH_PLANS = 6
"""Higher costs are not tried once this many plans reach every goal; guidance-reusing variants start from these."""
SEARCH_SEED, CHECK_SEED = 500, 100


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """The search budget.

    rows: the costs to try, in network evaluations per turn, cheapest first, until `ENOUGH_PLANS` plans reach every
    goal. turns: number of turns for the search; as many others are used to check.
    """

    rows: Sequence[int] = (*range(2, 20), *range(20, 40, 2), *range(40, 81, 4))
    turns: int = 6


def measure_plans(
    bundle: Bundle,
    engines: Engines,
    instructions: Sequence[str],
    budget: SearchBudget,
    log: Callable[[str], object] = print,
    judge: ClipJudge | None = None,
) -> list[PlanResult]:
    """The best plan found at each cost, cheapest first, with its figures; the judge adds an instruction score.

    log: called with progress lines. Raises PlanError if the bundle's plan `exact` differs from the reference's
    sampling.
    """
    pipeline = Pipeline.open(bundle, engines, EXACT)
    _require_exact(pipeline.plan)
    texts = list(islice(cycle(instructions), 2 * budget.turns))
    turns = predict_first_turns(pipeline, texts[: budget.turns], SEARCH_SEED)
    log(f"recording the exact trajectory of {len(turns)} turns")
    gram = trajectory.trajectory_gram(engines.denoiser, pipeline.denoiser, pipeline.plan, turns)
    local = search.LocalErrors(gram)
    found = {emphasis: search.best_plans(local, emphasis, max(budget.rows)) for emphasis in EARLY_ERROR_POWERS}
    true = [denoise_turn(pipeline.denoiser, turn) for turn in turns]
    log(f"playing {len(texts) - len(turns)} other turns with exact")
    evaluator = PlanEvaluator.play(pipeline, texts[budget.turns :], CHECK_SEED, judge)

    def measured(one: _PlayedPlan) -> PlanResult:
        fidelity = {**evaluator.fidelity(with_plan(pipeline, one.plan, "searched")), "runs_on": engines.device}
        point = PlanResult(one.plan.network_evaluations, one.plan, one.seconds, fidelity)
        log(f"{point.summary}: {one.seconds:.2f} s, SSIM {point.ssim}, {fidelity['psnr_db']} dB")
        return point

    def nearest(plans: Sequence[DenoisePlan]) -> _PlayedPlan | None:
        played = (_play_plan(pipeline, plan, turns, true) for plan in plans)
        return min(played, key=lambda one: one.error, default=None)

    best: dict[int, _PlayedPlan] = {}
    by_rows: dict[int, PlanResult] = {}
    for rows in budget.rows:
        if one := nearest(_plans_within(found, rows)):
            best[rows], by_rows[rows] = one, measured(one)
        if sum(point.reaches(max(GOALS.values())) for point in by_rows.values()) >= ENOUGH_PLANS:
            break
    log("playing plans that reuse guidance, most expensive first")
    for rows in range(max(best, default=0), min(best, default=0) - 1, -1):
        one = nearest(_reuse_candidates(rows, best))
        if one and (rows not in best or one.error < best[rows].error):
            best[rows], by_rows[rows] = one, measured(one)
    return [by_rows[rows] for rows in sorted(by_rows)]


def measure_own_plans(
    bundle: Bundle,
    engines_of: Callable[[str], Engines],
    instructions: Sequence[str],
    budget: SearchBudget,
    log: Callable[[str], object] = print,
    judge: ClipJudge | None = None,
) -> dict[str, dict[str, Any]]:
    """Fidelity of plans with their own parts, measured with these; by plan.

    engines_of: the engines of a plan. Their steps are fixed by training, so they are not searched.
    """
    names = [name for name, entry in bundle.manifest.plans.items() if entry.parts]
    if not names:
        return {}
    log(f"playing {', '.join(names)} with their own parts")
    texts = list(islice(cycle(instructions), 2 * budget.turns))[budget.turns :]
    evaluator = PlanEvaluator.play(Pipeline.open(bundle, engines_of(EXACT), EXACT), texts, CHECK_SEED, judge)
    found = {}
    for name in names:
        engines = engines_of(name)
        figures = evaluator.fidelity(Pipeline.open(bundle, engines, name, unmeasured=True))
        found[name] = {**figures, "runs_on": engines.device}
    return found


def _reuse_candidates(rows: int, best: Mapping[int, _PlayedPlan]) -> list[DenoisePlan]:
    """Plans of `rows` evaluations that reuse guidance, derived from the best plans of that cost and one more."""
    dearer, same = best.get(rows + 1), best.get(rows)
    guided = extend_guidance(same.plan) if same else None
    return [*(reuse_variants(dearer.plan) if dearer else []), *([guided] if guided else [])]


def _require_exact(plan: DenoisePlan) -> None:
    def steps(of: DenoisePlan) -> list[tuple[int, float]]:
        return [(step.timestep, round(step.coefficients.guidance_minus_one, 4)) for step in of]

    if steps(plan) != steps(exact_plan(len(plan))) or plan.noise_steps:
        raise PlanError(
            "the plan 'exact' differs from the reference's sampling",
            expected=f"{len(plan)} even steps with the reference's guidance",
            do="export the bundle again",
        )


def _plans_within(found: Mapping[float, Mapping[int, DenoisePlan]], rows: int) -> list[DenoisePlan]:
    """The best plan of each emphasis that costs at most `rows`, without duplicates."""
    plans: list[DenoisePlan] = []
    for by_rows in found.values():
        affordable = [cost for cost in by_rows if cost <= rows]
        if affordable and by_rows[max(affordable)] not in plans:
            plans.append(by_rows[max(affordable)])
    return plans


@dataclass(frozen=True, slots=True)
class _PlayedPlan:
    """A plan played on the turns of the search: mean relative latent error, median seconds of denoising per turn."""

    plan: DenoisePlan
    error: float
    seconds: float


def _play_plan(
    pipeline: Pipeline, plan: DenoisePlan, turns: Sequence[TurnInput], true: Sequence[FloatArray]
) -> _PlayedPlan:
    denoiser, errors, seconds = pipeline.denoiser.with_plan(plan), [], []
    for turn, latent in zip(turns, true, strict=True):
        started = time.perf_counter()
        found = denoise_turn(denoiser, turn)
        seconds.append(time.perf_counter() - started)
        errors.append(relative_error(found, latent))
    return _PlayedPlan(plan, float(np.mean(errors)), round(float(np.median(seconds)), 4))
