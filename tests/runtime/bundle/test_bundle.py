"""Bundles are verified whole, and whatever is wrong with one is named."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import fakes
from animegamer_rt.bundle import loader as bundles
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import REFERENCE, Engine, clear_fidelity
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import BundleError, BundleFileError, BundleFormatError, BundleNotFoundError, PlanError


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return fakes.write_bundle(tmp_path / "tiny")


def edit(bundle: Bundle, **changes: object) -> None:
    path = bundle.folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_written_bundle_loads_as_it_was_written(bundle: Bundle) -> None:
    assert bundles.load(bundle.folder) == bundle
    assert bundle.default_plan == "balanced"
    assert bundle.part_path("denoiser").name == "denoiser.onnx"


def test_pocket_as_it_is_shipped_reaches_the_goals_of_its_plans() -> None:
    pocket = bundles.open_bundle("pocket")
    measured = {name: entry.fidelity for name, entry in pocket.manifest.plans.items()}
    assert pocket.default_plan == "balanced" and measured["exact"] == {}
    for name, goal in (("balanced", 0.95), ("fast", 0.85)):
        assert measured[name]["against"] == "exact" and measured[name]["ssim"] >= goal, name
    rows = [DenoisePlan.from_dict(pocket.plan(name)).network_rows for name in ("fast", "balanced", "exact")]
    assert rows == sorted(set(rows)), "each costs less than what it is measured against"


def test_missing_file_is_named(bundle: Bundle) -> None:
    (bundle.folder / "vae_next.onnx").unlink()
    with pytest.raises(BundleFileError, match=r"vae_next\.onnx: the bundle's file is missing"):
        bundles.load(bundle.folder)


def test_truncated_file_is_named_with_its_sizes(bundle: Bundle) -> None:
    path = bundle.folder / "denoiser.onnx"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BundleFileError, match=rf"denoiser\.onnx: .* cut short; found {size - 10} .*expected {size}"):
        bundles.load(bundle.folder)


def test_one_flipped_bit_is_found_and_named(bundle: Bundle) -> None:
    path = bundle.folder / "tokenizer.model"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(BundleFileError, match=r"tokenizer\.model: .* damaged.*sha256"):
        bundles.load(bundle.folder)


def test_part_of_another_bundle_is_refused(bundle: Bundle) -> None:
    shutil.copy(bundle.folder / "vae_first.onnx", bundle.folder / "vae_next.onnx")
    with pytest.raises(BundleFileError, match=r"vae_next\.onnx"):
        bundles.load(bundle.folder)


def test_bundle_of_another_format_is_refused_with_what_to_do(bundle: Bundle) -> None:
    fakes.with_format_version(bundle, 1)
    with pytest.raises(BundleFormatError, match=r"older.*found format_version 1; .*build the bundle again"):
        bundles.load(bundle.folder)
    fakes.with_format_version(bundle, 99)
    with pytest.raises(BundleFormatError, match=r"newer.*found format_version 99.*update animegamer-rt"):
        bundles.load(bundle.folder)


def test_a_file_of_another_size_may_be_another_bundles(bundle: Bundle) -> None:
    (bundle.folder / "denoiser.onnx").write_bytes(b"another")
    with pytest.raises(BundleFileError, match=r"denoiser\.onnx: .* another bundle's, or cut short; found 7 bytes"):
        bundles.load(bundle.folder)
    (bundle.folder / "denoiser.onnx").write_bytes(bytes(1 << 20))
    with pytest.raises(BundleFileError, match=r"denoiser\.onnx: .* another bundle's, or too long; found 1048576 bytes"):
        bundles.load(bundle.folder)


def test_a_damaged_plan_is_named_with_its_manifest(bundle: Bundle) -> None:
    plans = json.loads((bundle.folder / "manifest.json").read_text())["plans"]
    plans["exact"]["plan"]["step"] = plans["exact"]["plan"].pop("steps")
    edit(bundle, plans=plans)
    with pytest.raises(BundleFormatError, match=r"manifest\.json: .*'exact'.*unknown key 'step'; did you mean 'steps'"):
        bundles.load(bundle.folder)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "something else"}', "\x00\x01"])
def test_a_foreign_manifest_is_refused(bundle: Bundle, content: str) -> None:
    (bundle.folder / "manifest.json").write_text(content)
    with pytest.raises(BundleFormatError, match=r"manifest\.json"):
        bundles.load(bundle.folder)


def test_a_manifest_nested_without_end_is_refused(bundle: Bundle) -> None:
    (bundle.folder / "manifest.json").write_text("[" * 200_000)
    with pytest.raises(BundleFormatError, match=r"manifest\.json: .*not readable JSON.*build the bundle again"):
        bundles.load(bundle.folder)


def test_file_that_the_system_does_not_give_is_named(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(bundles, "sha256", refuse)
    with pytest.raises(BundleFileError, match=r"cannot be read; found input/output error; .*restore"):
        bundles.load(bundle.folder)


def test_unknown_key_of_the_manifest_names_the_nearest(bundle: Bundle) -> None:
    edit(bundle, compatibility={"motion_tabel": "paper"})
    with pytest.raises(BundleFormatError, match="unknown key 'motion_tabel'; did you mean 'motion_table'"):
        bundles.load(bundle.folder)


def test_unknown_value_of_the_manifest_names_the_known_ones(bundle: Bundle) -> None:
    edit(bundle, compatibility={"readout": "backwards"})
    with pytest.raises(BundleFormatError, match="readout: not a known value.*aligned"):
        bundles.load(bundle.folder)


def test_file_name_that_leads_out_of_the_bundle_is_refused(bundle: Bundle) -> None:
    parts = json.loads((bundle.folder / "manifest.json").read_text())["parts"]
    parts["denoiser"]["file"] = "../denoiser.onnx"
    edit(bundle, parts=parts)
    with pytest.raises(BundleFormatError, match="leads out of the bundle"):
        bundles.load(bundle.folder)


def test_file_without_a_hash_is_refused(bundle: Bundle) -> None:
    files = json.loads((bundle.folder / "manifest.json").read_text())["files"]
    del files["denoiser.onnx"]
    edit(bundle, files=files)
    with pytest.raises(BundleFormatError, match=r"no size and hash.*denoiser\.onnx"):
        bundles.load(bundle.folder)


def test_bundle_without_a_default_plan_is_refused(bundle: Bundle) -> None:
    plans = json.loads((bundle.folder / "manifest.json").read_text())["plans"]
    plans["balanced"]["default"] = False
    edit(bundle, plans=plans)
    with pytest.raises(BundleFormatError, match="default"):
        bundles.load(bundle.folder)


def test_a_plan_is_refused_without_its_figures(bundle: Bundle) -> None:
    trained = replace(bundle.manifest, origin="checkpoints", plans=clear_fidelity(bundle.manifest.plans))
    bundle = write_manifest(bundle.folder, trained)
    assert bundle.unmeasured_plans == ["balanced"]
    with pytest.raises(PlanError, match=f"'balanced'.*run: animegamer-rt search-plans {bundle.folder}"):
        bundle.plan("balanced")
    assert bundle.default_plan == "exact" and bundle.plan() == bundle.plan("exact")
    # Random weights have nothing to come near to: such a bundle is for time and memory.
    random = write_manifest(bundle.folder, replace(trained, origin="random weights"))
    assert not random.unmeasured_plans and random.plan("balanced")


def test_unknown_plan_is_refused_with_the_plans_there_are(bundle: Bundle) -> None:
    with pytest.raises(PlanError, match="no plan 'balancd'; expected one of exact, balanced; did you mean 'balanced'"):
        bundle.plan("balancd")


def test_unknown_part_is_refused(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="no part 'denoisr'; did you mean 'denoiser'"):
        bundle.part_path("denoisr")


def test_bundle_is_found_by_path_and_by_name_in_the_search_path(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bundles.find(bundle.folder) == bundle.folder
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", os.pathsep.join([str(tmp_path / "nowhere"), str(tmp_path)]))
    assert bundles.find("tiny") == tmp_path / "tiny"
    assert bundles.list_bundles()["tiny"] == tmp_path / "tiny"
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", str(tmp_path / "tiny"))
    assert bundles.find("tiny") == tmp_path / "tiny"


def test_unknown_bundle_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANIMEGAMER_BUNDLES", str(tmp_path))
    with pytest.raises(BundleNotFoundError) as caught:
        bundles.open_bundle("no-such-bundle")
    assert str(tmp_path / "no-such-bundle") in str(caught.value)
    assert "ANIMEGAMER_BUNDLES" in str(caught.value)
    with pytest.raises(BundleNotFoundError, match="no bundle 'aaa"):
        bundles.find("a" * 5000)


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


def test_only_changed_files_are_measured_again_when_they_are_named(bundle: Bundle) -> None:
    before = bundle.manifest.files
    for name in ("denoiser.onnx", "vae_first.onnx"):
        (bundle.folder / name).write_bytes(b"another graph")
    after = write_manifest(bundle.folder, bundle.manifest, changed=("denoiser.onnx",)).manifest.files
    assert after["denoiser.onnx"].bytes == len(b"another graph")
    assert after["vae_first.onnx"] == before["vae_first.onnx"]


def test_manifest_that_names_an_absent_file_is_not_written(bundle: Bundle) -> None:
    before = (bundle.folder / "manifest.json").read_text()
    (bundle.folder / "denoiser.onnx").unlink()
    with pytest.raises(BundleFileError, match=r"denoiser\.onnx"):
        write_manifest(bundle.folder, bundle.manifest)
    assert (bundle.folder / "manifest.json").read_text() == before


def test_reference_compatibility_survives_the_manifest(tmp_path: Path) -> None:
    written = fakes.write_bundle(tmp_path / "reference", compatibility=REFERENCE)
    assert bundles.load(written.folder).manifest.compatibility == REFERENCE
