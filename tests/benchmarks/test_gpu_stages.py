"""What gpu.py asks of pytest and of two turns in a queue: counts, failures by name, and a turn predicted in time."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from project import ROOT

TESTS = """
import os, pytest, unittest
@pytest.mark.gpu
def test_library_is_the_one_that_was_built():
    assert os.environ["ANIMEGAMER_TEST_LIBRARY"] == os.environ["ANIMEGAMER_KERNELS"] == "a.so"
@pytest.mark.gpu
def test_wrong():
    assert 1 == 2, "a wrong answer"
@pytest.mark.gpu
def test_left_out():
    raise unittest.SkipTest("no such card")
@pytest.fixture
def broken():
    yield
    raise RuntimeError("broke afterwards")
@pytest.mark.gpu
def test_broken(broken):
    pass
def test_of_no_gpu():
    assert False
"""


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    return lambda name: importlib.import_module(f"benchmarks.gpu.{name}")


@pytest.fixture
def tests(stages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    found: ModuleType = stages("tests")
    monkeypatch.setattr(found, "ROOT", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    return found


def test_tests_that_fail_are_named_and_fail_the_job(tests: ModuleType) -> None:
    said = tests.entries({"folder": "test_it.py", "library": "a.so"})
    found = next(said)
    failures = {one["test"]: one["said"] for one in found.pop("failures")}
    assert found == {"ran": True, "passed": 1, "failed": 2, "skipped": 1}
    assert "a wrong answer" in failures["test_it::test_wrong"]
    assert "broke afterwards" in failures["test_it::test_broken"]
    with pytest.raises(SystemExit, match="2 tests of test_it.py failed"):
        next(said)


def test_folder_without_such_tests_and_a_machine_without_pytest_are_no_failure(
    tests: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").write_text("def test_of_no_gpu():\n    assert False\n")
    (found,) = tests.entries({"folder": "test_it.py", "library": None})
    assert (found["passed"], found["failed"], found["skipped"]) == (0, 0, 0)
    with pytest.raises(SystemExit, match="exit status 4"):
        list(tests.entries({"folder": "no-such-folder", "library": None}))
    monkeypatch.setattr(tests, "find_spec", lambda name: None)
    assert list(tests.entries({"folder": "test_it.py", "library": None})) == [
        {"ran": False, "why": "pytest is not installed"}
    ]


def test_turn_that_follows_is_predicted_while_the_one_before_is_denoised(stages: Any, tmp_path: Path) -> None:
    variant = {"precision": "fp32", "graphs": "off"}
    asked = {
        "device": "cpu",
        "bundle": "pocket",
        "size": "tiny",
        "library": None,
        "turns": 1,
        "name": "tiny-fp32-eager",
    }
    (found,) = stages("turn_queue").entries({**asked, "variant": variant, "plan": "fast", "results": str(tmp_path)})
    assert (found["turns"], found["plan"], found["variant"]) == (2, "fast", "fp32-eager")
    assert found["saved_seconds"] == pytest.approx(
        found["seconds_apart_p50"] - found["seconds_overlapping_p50"], abs=1e-4
    )
    events = json.loads((tmp_path / found["trace"]).read_text())["traceEvents"]
    lanes = {event["args"]["name"]: event["tid"] for event in events if event["ph"] == "M"}
    began = {
        lane: sorted(event["ts"] for event in events if event["ph"] == "X" and event["tid"] == tid)
        for lane, tid in lanes.items()
    }
    assert began["predictor"] and began["ahead"], "the first turn's prompt, and the second's"
    assert began["predictor"][-1] < began["ahead"][0] < began["vae"][0]
    assert len(began["vae"]) == 4
