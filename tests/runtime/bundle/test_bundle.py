"""Bundles are verified whole, and whatever is wrong with one or with a plan is named."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fakes
from animegamer_rt.bundle import loader as bundles
from animegamer_rt.bundle import search
from animegamer_rt.bundle.denoise_plan import DenoisePlan, build_plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Engine
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import BundleFileError, BundleFormatError, BundleNotFoundError, PlanError


def test_pocket_as_it_is_shipped_reaches_the_goals_of_its_plans() -> None:
    pocket = bundles.open_bundle("pocket")
    measured = {name: entry.fidelity for name, entry in pocket.manifest.plans.items()}
    assert pocket.default_plan == "turbo" and measured["exact"] == {}
    for name, goal in (("balanced", 0.95), ("fast", 0.85), ("turbo", 0.85)):
        assert measured[name]["against"] == "exact" and measured[name]["ssim"] >= goal, name
    plans = [pocket.plan(name) for name in ("turbo", "fast", "balanced", "exact")]
    rows = [DenoisePlan.from_dict(plan).network_evaluations for plan in plans]
    assert rows == sorted(set(rows)), "each costs less than what it is measured against"


POINTER = b"version https://git-lfs.github.com/spec/v1\n"


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("vae_next.onnx", None, "the bundle's file is missing"),
        ("denoiser.onnx", lambda content: content[:-10], r"truncated, or another bundle's; found \d+ bytes"),
        ("denoiser.onnx", lambda content: content + b"x", r"too long, or another bundle's; found \d+ bytes"),
        ("denoiser.onnx", lambda content: POINTER, "Git LFS pointer.*git lfs pull"),
        ("manifest.json", lambda content: POINTER, "Git LFS pointer.*git lfs pull"),
        ("tokenizer.model", lambda content: bytes([content[0] ^ 1]) + content[1:], "damaged.*sha256"),
    ],
)
def test_file_that_is_not_the_one_in_the_manifest_is_named(
    bundle: Bundle, name: str, change: Callable[[bytes], bytes] | None, said: str
) -> None:
    path = bundle.folder / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BundleFileError, match=f"{re.escape(name)}: .*{said}"):
        bundles.load(bundle.folder)


def test_a_folder_whose_name_is_no_utf8_is_named(bundle: Bundle) -> None:
    with pytest.raises(BundleNotFoundError, match=r"udcff'?: the folder's name is not UTF-8.*rename the folder"):
        bundles.load(bundle.folder / "\udcff")


def test_bundle_of_another_format_is_refused_with_what_to_do(bundle: Bundle) -> None:
    fakes.with_format_version(bundle, 1)
    with pytest.raises(BundleFormatError, match=r"older.*found format_version 1; .*build the bundle again"):
        bundles.load(bundle.folder)
    fakes.with_format_version(bundle, 99)
    with pytest.raises(BundleFormatError, match=r"newer.*found format_version 99.*update animegamer-rt"):
        bundles.load(bundle.folder)


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("compatibility",), {"motion_tabel": "paper"}, "unknown key 'motion_tabel'; did you mean 'motion_table'"),
        (("compatibility",), {"motion_table": "papr"}, "motion_table: not a known value.*did you mean 'paper'"),
        (("parts", "denoiser", "file"), "../denoiser.onnx", "leads out of the bundle"),
        (("files", "denoiser.onnx"), None, r"no size and hash.*denoiser\.onnx"),
        (("plans", "balanced", "default"), False, "not exactly one plan is the default"),
        (("plans", "exact", "plan"), {"step": []}, "'exact'.*unknown key 'step'; did you mean 'steps'"),
    ],
)
def test_contradictory_manifest_is_refused(bundle: Bundle, keys: tuple[str, ...], value: object, said: str) -> None:
    path = bundle.folder / "manifest.json"
    manifest = place = json.loads(path.read_text())
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    if value is None:
        del place[keys[-1]]
    path.write_text(json.dumps(manifest))
    with pytest.raises(BundleFormatError, match=said):
        bundles.load(bundle.folder)


def test_a_manifest_changed_by_hand_is_read_and_has_no_key_twice(bundle: Bundle) -> None:
    path = bundle.folder / "manifest.json"
    content = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + content)  # as Windows' editors save it
    assert bundles.load(bundle.folder).manifest == bundle.manifest
    path.write_bytes(content.replace(b"{", b'{"name": "mine",', 1))
    with pytest.raises(BundleFormatError, match="not readable JSON; found 'name' is given twice"):
        bundles.load(bundle.folder)


def test_file_that_the_system_does_not_give_is_named(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(bundles, "sha256", refuse)
    with pytest.raises(BundleFileError, match=r"cannot be read; found input/output error; .*restore"):
        bundles.load(bundle.folder)


def test_a_plan_is_refused_without_its_figures(bundle: Bundle) -> None:
    plans = bundle.manifest.plans.items()
    unmeasured = {name: replace(plan, fidelity={}, default=name == "exact") for name, plan in plans}
    trained = replace(bundle.manifest, origin="checkpoints", plans=unmeasured)
    bundle = write_manifest(bundle.folder, trained)
    assert bundle.unmeasured_plans == ["balanced"]
    with pytest.raises(PlanError, match=f"'balanced'.*run: animegamer-rt search-plans {bundle.folder}"):
        bundle.plan("balanced")
    assert bundle.default_plan == "exact" and bundle.plan() == bundle.plan("exact")
    # Random weights have nothing to come near to: such a bundle is for time and memory.
    random = write_manifest(bundle.folder, replace(trained, origin="random weights"))
    assert not random.unmeasured_plans and random.plan("balanced")


def test_bundle_is_found_by_path_and_by_name(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert search.find(bundle.folder) == bundle.folder
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", os.pathsep.join([str(tmp_path / "nowhere"), str(tmp_path)]))
    assert search.find("tiny") == tmp_path / "tiny"
    assert search.list_bundles()["tiny"] == tmp_path / "tiny"
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", str(tmp_path / "tiny"))
    assert search.find("tiny") == tmp_path / "tiny"


def test_unknown_bundle_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", str(tmp_path))
    with pytest.raises(BundleNotFoundError) as caught:
        bundles.open_bundle("no-such-bundle")
    assert str(tmp_path / "no-such-bundle") in str(caught.value)
    assert "ANIMEGAMER_BUNDLES" in str(caught.value)
    (tmp_path / "packed/snapshots/1f").mkdir(parents=True)
    (tmp_path / "packed/snapshots/1f/manifest.json").touch()
    with pytest.raises(BundleNotFoundError, match="give .*packed/snapshots/1f"):
        search.find("packed")
    with pytest.raises(BundleNotFoundError, match="no bundle 'aaa"):
        search.find("a" * 5000)


def test_fingerprint_follows_the_files_and_not_the_name(bundle: Bundle) -> None:
    assert fakes.renamed(bundle, "other").fingerprint == bundle.fingerprint
    added = bundle.folder / "added_tokens.json"
    added.write_text(added.read_text() + "\n")
    assert write_manifest(bundle.folder, bundle.manifest).fingerprint != bundle.fingerprint


def test_engines_built_later_leave_the_fingerprint_as_it_was(bundle: Bundle) -> None:
    (bundle.folder / "engines").mkdir()
    (bundle.folder / "engines" / "denoiser-sm89.engine").write_bytes(b"built")
    engines = {"denoiser-sm89": Engine("engines/denoiser-sm89.engine", {"arch": "sm89"})}
    built = write_manifest(bundle.folder, replace(bundle.manifest, engines=engines))
    assert "engines/denoiser-sm89.engine" in built.manifest.files
    assert bundles.load(bundle.folder).fingerprint == bundle.fingerprint


def test_unguided_step_keeps_the_difference_and_ignores_it() -> None:
    plan = build_plan([999, 500, 200, 50], branches=["pair", "conditional", "reuse", "pair"])
    _, conditional, reuse, pair = (step.coefficients for step in plan)
    assert (conditional.reuse, conditional.guidance_minus_one) == (1.0, 0.0)
    assert reuse.reuse == 1.0 and reuse.guidance_minus_one == plan.steps[2].guidance - 1.0
    assert pair.reuse == 0.0
    assert [step.rows for step in plan] == [(0, 1), (1,), (1,), (0, 1)]


def test_a_plan_survives_json() -> None:
    plan = build_plan([999, 500, 200, 50], branches=["pair", "conditional", "reuse", "pair"], stochastic=False)
    again = DenoisePlan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan
    coarse = build_plan(even_timesteps(50)[::7], branches=["pair", *["conditional"] * 7], noise_steps=50)
    assert DenoisePlan.from_dict(coarse.to_dict()) == coarse


def _steps(**change: Any) -> dict[str, Any]:
    steps = [{"timestep": t, "guidance": 2.0, "branch": "pair"} for t in (999, 500)]
    steps[1].update(change)
    return {"steps": steps}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"steps": 3}, "wrong type of value; found 3; expected a list"),
        ({"steps": []}, "too few steps"),
        ({"stepps": []}, "did you mean 'steps'"),
        (_steps(timestep=999), "step 1: impossible timestep"),
        (_steps(guidance=float("nan")), "impossible guidance"),
        (_steps(branch="both"), "unknown branch"),
        (_steps(skip_blocks=[1, 2]), "unknown key 'skip_blocks'"),
        ({"steps": [{"timestep": 999, "guidance": 1}]}, "the key 'branch' is missing"),
        ({"steps": [{"timestep": t, "guidance": 1, "branch": "reuse"} for t in (9, 5)]}, "reuse before any pair"),
    ],
)
def test_an_impossible_plan_is_refused_with_its_reason(data: object, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        DenoisePlan.from_dict(data)
