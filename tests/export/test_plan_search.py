"""The plans that export writes, and `animegamer-rt search-plans`: only measured plans are written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import own_parts
import pytest

import fakes
from animegamer_export.evaluate.fidelity import denoise_turn, predict_first_turns
from animegamer_export.evaluate.metrics import relative_error
from animegamer_export.plan_search import command, measure, results
from animegamer_export.plan_search.measure import SearchBudget
from animegamer_export.plan_search.results import PlanResult
from animegamer_export.support.plans import coarse_plan, exact_plan
from animegamer_rt import cli
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.denoise_plan import DenoisePlan, build_plan, noise_weights
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.manifest import PlanEntry
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import PlanError
from animegamer_rt.pipeline import Pipeline

STEPS = 20


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """The tiny bundle with a longer exact plan, and nothing else."""
    written = fakes.write_bundle(tmp_path / "tiny")
    plans = {"exact": PlanEntry(exact_plan(STEPS).to_dict(), default=True)}
    return write_manifest(written.folder, replace(written.manifest, plans=plans))


def test_a_searched_plan_is_nearer_the_more_it_may_cost(bundle: Bundle) -> None:
    engines = open_engines(bundle)
    budget = SearchBudget(rows=(2, 6, 16, 38), turns=2)
    points = measure.measure_plans(bundle, engines, fakes.WORLD.examples, budget, lambda line: None)
    ends = [points[0], points[len(points) // 2], points[-1]]
    errors = [point.fidelity["latent_relative_error"] for point in ends]
    assert errors == sorted(errors, reverse=True) and ends[0].rows < ends[1].rows < ends[2].rows
    assert points[-1].ssim > 0.99
    assert [step.timestep for step in points[0].plan] == [even_timesteps(STEPS)[0], even_timesteps(STEPS)[-1]]
    assert min(SearchBudget().rows) == 2
    pipeline = Pipeline.open(bundle, engines, "exact")
    (turn,) = predict_first_turns(pipeline, ["Tobo runs."], 8)
    again = denoise_turn(pipeline.denoiser.with_plan(points[-1].plan), turn)
    assert relative_error(again, denoise_turn(pipeline.denoiser, turn)) < 0.1


def test_the_cheapest_plan_that_is_near_enough_is_chosen() -> None:
    def point(rows: int, ssim: float) -> PlanResult:
        return PlanResult(rows, exact_plan(3), 0.1, {"ssim": ssim})

    curve = [point(10, 0.8), point(20, 0.9), point(30, 0.96), point(40, 0.99)]
    chosen = results.choose_plans(curve, {"balanced": 0.95, "fast": 0.85})
    assert {name: one.rows for name, one in chosen.items()} == {"balanced": 30, "fast": 20}
    with pytest.raises(PlanError, match="the goal for 'balanced'.*0.9"):
        results.choose_plans(curve[:2])


def test_a_plan_that_is_not_exact_is_no_yardstick(bundle: Bundle) -> None:
    entry = PlanEntry(exact_plan(STEPS).to_dict(), default=True)
    entry.plan["steps"][3]["branch"] = "conditional"  # type: ignore[index]
    spared = write_manifest(bundle.folder, replace(bundle.manifest, plans={"exact": entry}))
    with pytest.raises(PlanError, match="differs from the reference's sampling"):
        measure.measure_plans(
            spared, open_engines(spared), ["Mia waves."], SearchBudget(rows=(8,), turns=1), lambda line: None
        )


def test_the_command_writes_plans_figures_record_and_picture(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "SearchBudget", lambda turns=1: SearchBudget(rows=(10, 24, 38), turns=turns))
    arguments = [str(bundle.folder), "--turns", "1", "--results", str(tmp_path / "results")]
    mine = PlanEntry(exact_plan(3).to_dict())
    write_manifest(bundle.folder, replace(bundle.manifest, plans={**bundle.manifest.plans, "mine": mine}))
    assert cli.main(["search-plans", *arguments, "--dry-run"]) == 0
    assert set(load(bundle.folder).manifest.plans) == {"exact", "mine"}
    assert str(bundle.folder) not in capsys.readouterr().out
    assert cli.main(["search-plans", *arguments]) == 0
    after = load(bundle.folder).manifest
    assert set(after.plans) == {"exact", "balanced", "fast", "mine"}
    assert after.plans["mine"] == mine
    assert after.plans["balanced"].default and after.plans["balanced"].fidelity["ssim"] >= 0.97
    assert after.plans["fast"].fidelity["ssim"] >= 0.87
    assert after.parts == bundle.manifest.parts
    assert after.plans["fast"].fidelity["instruction_score"] is None
    assert after.plans["fast"].fidelity["instruction_judge"].startswith("none: no judge")
    said = capsys.readouterr().out
    assert "instruction score not measured (none: no judge" in said
    assert f"written into {bundle.folder / 'manifest.json'}" in said
    assert "38 network evaluations in " in said and " dB\n" in said and "{" not in said  # words, no dictionaries
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").glob("*calibrate-tiny.json")]
    assert records and records[0]["points"][-1]["rows"] == 38
    assert len(records[0]["instructions"]) == 2
    assert after.plans["fast"].fidelity["runs_on"] == records[0]["runs_on"] != ""


BUDGET = SearchBudget(rows=(10, 24, 38), turns=1)


def test_a_plan_with_parts_of_its_own_is_measured_with_them(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = own_parts.add_plan(bundle, "exact", changed=True).manifest
    trained = write_manifest(bundle.folder, replace(manifest, origin="trained"))
    with pytest.raises(PlanError, match="never measured"):
        trained.plan("x")
    monkeypatch.setattr(command, "SearchBudget", lambda turns=1: BUDGET)
    assert cli.main(["search-plans", str(bundle.folder), "--turns", "1", "--results", str(tmp_path)]) == 0
    written = load(bundle.folder)
    assert written.manifest.plans["x"].parts == own_parts.OWN
    assert written.manifest.plans["x"].fidelity["against"] == "exact" and written.plan("x")
    assert written.manifest.plans["x"].fidelity["ssim"] != 1, "the same steps, by other parts"


def test_the_wave_has_the_published_values() -> None:
    steps = exact_plan().steps
    for index, expected in {0: 2.2915, 1: 2.5435, 2: 6.9744, 3: 6.4204, 6: 1.0376, 10: 1.0048}.items():
        assert steps[index].guidance == pytest.approx(expected, abs=5e-5)


def test_a_reduced_plan_takes_its_guidance_from_the_curve_of_50_steps() -> None:
    ten, fifty = build_plan(even_timesteps(10)), exact_plan(50)
    at_timestep = {step.timestep: step.guidance for step in fifty}
    assert [step.guidance for step in ten] == [at_timestep[step.timestep] for step in ten]
    assert exact_plan(10).steps[0].guidance == pytest.approx(3.433157, abs=1e-6)


def test_exact_plan_is_fifty_guided_pairs_with_noise_in_all_but_the_last() -> None:
    plan = exact_plan()
    assert {step.branch for step in plan} == {"pair"}
    assert plan.network_evaluations == 100
    table = plan.coefficients()
    assert table.shape == (50, 8) and table.dtype == np.float32
    assert np.isfinite(table).all()
    assert [step.coefficients.c_noise != 0 for step in plan] == [*[True] * 49, False]
    assert plan.steps[-1].coefficients[4:] == (0.0, 1.0, 0.0, 0.0)


def test_steps_47_and_48_alone_need_no_guidance() -> None:
    plan = exact_plan(conditional_below=1e-5)
    assert [k for k, step in enumerate(plan) if step.branch == "conditional"] == [47, 48]
    assert plan.network_evaluations == 98


def last_latent(plan: DenoisePlan, draws: np.ndarray, target: float) -> np.ndarray:
    """The latent before the last step, if the network always sees x0 = `target` whatever the guidance."""
    weights = noise_weights(plan)
    latent, previous, drawn = draws[0], np.zeros_like(draws[0]), 1
    for step, mix in zip(plan.steps[:-1], weights, strict=True):
        noise = sum(weight * draws[drawn + k] for k, weight in enumerate(mix))
        drawn += len(mix)
        c, x0 = step.coefficients, np.full_like(latent, target)
        latent = c.c_latent * latent + c.c_x0 * x0 + c.c_x0_prev * (previous if step is not plan.steps[0] else x0)
        latent, previous = latent + c.c_noise * noise, x0
    return latent


@pytest.mark.parametrize("steps", [2, 10, 49])
def test_where_the_network_says_nothing_new_the_coarse_path_ends_where_the_fine_one_does(steps: int) -> None:
    draws = np.random.default_rng(0).standard_normal((50, 200))
    fine, coarse = (last_latent(plan, draws, 0.7) for plan in (exact_plan(50), coarse_plan(steps)))
    # float32 weights; with noise of its own the two would be as far apart as two clips
    assert np.abs(fine - coarse).max() < 1e-5
    apart = last_latent(build_plan(even_timesteps(steps)), draws, 0.7)
    assert np.abs(fine - apart).std() > 10 * np.abs(fine - coarse).max()


@pytest.mark.parametrize("steps", [1, 51])
def test_impossible_number_of_steps_is_refused(steps: int) -> None:
    with pytest.raises(PlanError, match="2 to 50"):
        coarse_plan(steps)
