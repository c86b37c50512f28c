"""The GPU benchmark run: what goes wrong in one process costs only that, and nothing that was measured is lost."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from project import ROOT

from animegamer_rt.bench.compare import compare

Run = Callable[..., int]

STAND_IN = """
import json, os, pathlib, subprocess, sys, time
asked, out = json.loads(sys.argv[1]), open(sys.argv[2], "a")
folder = pathlib.Path(sys.argv[3])
name, faults = asked["stage"] + " " + asked["name"], json.loads((folder / "faults").read_text())
with open(folder / "log", "a") as log:
    log.write(name + " " + ",".join(asked["plans"]) + "\\n")
def say(**entry):
    print(json.dumps(entry), file=out, flush=True)
def misbehave(fault):
    if fault == "die":
        print("an illegal memory access was encountered", flush=True)
        os.abort()
    if fault == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (folder / "grandchild").write_text(str(child.pid))
        time.sleep(600)
if faults.get("machine") and asked["stage"] == "machine":
    raise AssertionError("Torch not compiled with CUDA enabled")
elif asked["stage"] == "machine":
    say(machine="a card, a processor", software={"torch": "0"}, gpu={"name": "a card"})
elif asked["stage"] == "build":
    say(built=False, library=None)
elif asked["stage"] == "turns":
    for plan in asked["plans"]:
        seconds = {"exact": 4.0, "balanced": 2.0, "fast": 1.0, "balanced-skipping": 1.5}[plan]
        figures = {"p50": seconds, "p95": seconds}
        say(date="2026-01-02T03:04:05+00:00", gpu={"name": "a card"}, device="torch", runs_on="torch", preset=None,
            size=asked["size"], origin="random weights", shape=[17, 480, 720], plan=plan, steps=50, branches=100,
            cost_rows=80.0, fingerprint=None, attention="torch",
            peer=None, variant=asked["variant_name"], precision={"denoiser": asked["variant"]["precision"]}, n=3,
            playback_seconds=2.125, seconds_per_turn_p50=seconds, seconds_per_turn_p95=seconds,
            stages={"predictor": figures, "denoiser": figures, "vae": figures}, seconds_to_state_p50=0.05,
            seconds_to_first_frame_p50=seconds, first_frame_of_vae=0.5, real_time_factor=1.0, energy_j_per_turn=None,
            energy_source="none", first_prompt_seconds=None, memory_peak_mib=9000.0, fidelity={})
        misbehave(faults.get(name))
elif asked["stage"] == "peers":
    say(date="2026-01-02T03:04:05+00:00", part=asked["part"], mode=asked["mode"], library="diffusers 0", p50=4.0,
        p95=5.0, n=3, pairs=50, device="torch", gpu={"name": "a card"}, precision="bf16", size="full",
        shape=[17, 480, 720], playback_seconds=2.125, memory_peak_mib=None)
    misbehave(faults.get(name))
elif asked["stage"] == "checks":
    say(check="an answer", passed=faults.get(name) != "wrong", error=1.0)
elif asked["stage"] == "tests":
    say(ran=True, passed=3, failed=0, skipped=1, failures=[])
"""
FOUR = ["--variants", "bf16,fp8,bf16-eager,bf16-turn", "--size", "full", "--commit", "abc"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT)
    return importlib.import_module("benchmarks.gpu.run")


@pytest.fixture
def run(gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The whole command with stand-ins for what needs a GPU; faults: "stage name" -> die, hang or wrong."""

    def stand_in(asked: dict[str, Any], entries: Path) -> list[str]:
        return [sys.executable, "-S", "-c", STAND_IN, json.dumps(asked), str(entries), str(tmp_path)]

    def run(*arguments: str, faults: dict[str, str] | None = None) -> int:
        (tmp_path / "faults").write_text(json.dumps(faults or {}))
        (tmp_path / "log").write_text("")
        return int(gpu.main([*FOUR, "--results", str(tmp_path / "results"), *arguments]))

    monkeypatch.setattr(gpu, "command", stand_in)
    monkeypatch.setattr(gpu, "POLL_S", 0.01)
    return run


def record_in(folder: Path) -> tuple[Path, dict[str, Any]]:
    (path,) = (folder / "results").glob("*-gpu.json")
    return path, json.loads(path.read_text())


def turns_in(record: dict[str, Any]) -> list[tuple[str, str]]:
    return [(turn["variant"], turn["plan"]) for turn in record["turns"]]


def ended(record: dict[str, Any]) -> dict[str, str]:
    return {f"{job['stage']} {job['job']}": job["ended"] for job in record["jobs"]}


PLANS = ("exact", "balanced", "fast")
ALL = [(name, plan) for name in ("bf16", "fp8", "bf16-turn", "bf16-eager") for plan in PLANS]
ALL.insert(3, ("bf16", "balanced-skipping"))


def test_variant_that_dies_costs_only_what_it_had_not_measured(run: Run, tmp_path: Path) -> None:
    assert run("--stages", "turns,peers", faults={"turns full-fp8": "die", "peers eager-vae": "die"}) == 1
    _, record = record_in(tmp_path)
    assert turns_in(record) == [turn for turn in ALL if turn not in (("fp8", "balanced"), ("fp8", "fast"))]
    (failed,) = (job for job in record["jobs"] if job["job"] == "full-fp8")
    assert failed["ended"] == "failed" and "illegal memory access" in failed["said"]
    assert len(record["peers"]) == 6


def test_what_keeps_a_run_from_beginning_is_one_line(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(faults={"machine": "die"}) == 2
    assert run("--bundle", "pockt") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "found AssertionError: Torch not compiled with CUDA enabled; see what is needed in benchmarks/" in first
    assert "no bundle 'pockt'" in second
    assert not list((tmp_path / "results").iterdir())


def test_ctrl_c_says_how_to_go_on(
    run: Run, gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu, "publish", interrupted)
    assert run("--stages", "turns") == 130
    path, record = record_in(tmp_path)
    assert capsys.readouterr().err == f"stopped; the rest: --continue {path}\n"
    assert [turn for turn, _ in turns_in(record)] == ["bf16"] * 4, "what was measured is kept"


def test_variant_that_hangs_is_ended_with_all_that_it_started(
    run: Run, gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "LIMITS_S", {**gpu.LIMITS_S, "turns": 5.0})
    assert run("--stages", "turns", faults={"turns full-bf16": "hang"}) == 1
    _, record = record_in(tmp_path)
    assert turns_in(record) == [turn for turn in ALL if turn[0] != "bf16" or turn[1] == "exact"]
    assert ended(record)["turns full-bf16"] == "timed out"
    process = Path("/proc", (tmp_path / "grandchild").read_text(), "stat")
    assert not process.exists() or process.read_text().split()[2] == "Z"


def test_time_that_is_up_ends_what_runs_and_says_nothing_against_it(run: Run, tmp_path: Path) -> None:
    assert run("--stages", "turns", "--seconds", "8", faults={"turns full-fp8": "hang"}) == 0
    path, record = record_in(tmp_path)
    assert ended(record) == {"turns full-bf16": "well", "turns full-fp8": "cut"}
    assert run("--stages", "turns", "--continue", str(path)) == 0
    assert (tmp_path / "log").read_text().splitlines()[1] == "turns full-fp8 balanced,fast"


def test_continued_run_measures_what_is_missing_and_what_failed_last(run: Run, tmp_path: Path) -> None:
    faults = {"turns full-bf16": "die"}
    assert run("--stages", "checks,turns", "--plans", "exact,fast", faults=faults) == 1
    path, _ = record_in(tmp_path)
    assert run("--continue", str(path), "--stages", "build,checks,turns") == 0
    assert (tmp_path / "log").read_text().splitlines() == [
        "machine cuda ",
        "build library ",
        "turns full-fp8 balanced",
        "turns full-bf16-turn balanced",
        "turns full-bf16-eager balanced",
        "turns full-bf16 balanced,fast,balanced-skipping",
    ]
    _, record = record_in(tmp_path)
    assert sorted(turns_in(record)) == sorted(ALL)


def test_record_of_another_commit_is_not_continued(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--stages", "turns") == 0
    path, _ = record_in(tmp_path)
    before = path.read_bytes()
    assert run("--stages", "turns", "--continue", str(path), "--commit", "def") == 2
    assert path.read_bytes() == before and "another commit" in capsys.readouterr().err


def test_record_is_whole_when_it_cannot_be_written_any_more(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, written = os.replace, []

    def full_disk(part: Path, path: Path) -> None:
        if str(path).endswith("-gpu.json"):
            written.append(path)
            if len(written) > 2:
                raise OSError(28, "No space left on device")
        replace(part, path)

    monkeypatch.setattr(os, "replace", full_disk)
    assert run("--stages", "turns") == 2
    _, record = record_in(tmp_path)
    assert turns_in(record) == ALL[:2]
    assert not list((tmp_path / "results").glob(".*"))


def test_library_that_is_not_there_any_more_is_built_again(run: Run, tmp_path: Path) -> None:
    assert run("--stages", "build") == 0
    path, record = record_in(tmp_path)
    for library, again in ((path, []), (tmp_path / "gone.so", ["build library "])):
        record["build"][0]["library"] = str(library)
        path.write_text(json.dumps(record))
        assert run("--stages", "build", "--continue", str(path)) == 0
        assert (tmp_path / "log").read_text().splitlines()[1:] == again


@pytest.mark.parametrize("tools", [("cmake", "make"), ("cmake", "ninja")])
def test_kernels_are_built_where_no_path_names_nvcc_and_there_may_be_no_make(
    gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tools: tuple[str, ...]
) -> None:
    build = importlib.import_module("benchmarks.gpu.build")
    for name in (*tools, "cuda/nvcc"):
        tool = tmp_path / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\ncommand -v nvcc >> {tmp_path}/said\n')
        tool.chmod(0o755)
    monkeypatch.setattr(build, "CUDA", str(tmp_path / "cuda"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("ANIMEGAMER_KERNELS", "CMAKE_GENERATOR"):
        monkeypatch.delenv(name, raising=False)
    (entry,) = build.entries({"device": "cuda"})
    configured, nvcc, *_ = (tmp_path / "said").read_text().splitlines()
    assert entry["built"] and nvcc == str(tmp_path / "cuda" / "nvcc")
    assert configured.startswith("-G Ninja" if "ninja" in tools else "-S")


@pytest.mark.parametrize("named", ["abc", None])
def test_run_needs_no_git(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ANIMEGAMER_COMMIT", named or "")
    assert run("--stages", "build", "--commit", "") == 0
    assert record_in(tmp_path)[1]["commit"] == (named or f"v{importlib.import_module('animegamer_rt').__version__}")


def test_failed_check_is_the_exit_status_and_stops_nothing(run: Run, tmp_path: Path) -> None:
    assert run("--stages", "checks,turns", faults={"checks bf16": "wrong"}) == 1
    assert turns_in(record_in(tmp_path)[1]) == ALL


def test_turns_and_peers_are_records_of_turns_too(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--stages", "turns,peers") == 0
    results = tmp_path / "results"
    newest = max((ROOT / "benchmarks" / "results").glob("*-pocket-exact.json"))
    wanted = set(json.loads(newest.read_text())) | {"cost_rows", "fingerprint", "attention"}
    paths = {path.stem.partition("-")[2]: path for path in results.glob("*Z-full-*.json")}
    assert len(paths) == len(ALL) + 2
    for path in paths.values():
        assert wanted <= set(json.loads(path.read_text())), path.name
    peer = paths["full-exact-diffusers-eager"]
    assert json.loads(peer.read_text())["seconds_per_turn_p50"] == 12.0
    assert compare([peer, paths["full-fast-fp8"]]) == 0
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    table = importlib.import_module("tables")
    rows = table.table(table.read_records(results))
    assert "| full, **exact**, torch | diffusers eager |" in rows
    fast = next(line for line in rows.splitlines() if "**fast**" in line and "fp8" in line)
    assert "| 12.0 |" in fast and "random weights" in fast
    assert "diffusers eager" in (results / "turn.svg").read_text()


def test_goals_say_what_was_found_and_on_which_card(run: Run, tmp_path: Path) -> None:
    assert run("--stages", "turns,peers") == 0
    goals = {goal["goal"]: goal for goal in record_in(tmp_path)[1]["goals"]}
    exact = goals["exact in FP8, seconds"]
    assert (exact["found"], exact["reached"], exact["gpu"], exact["variant"]) == (4.0, True, "a card", "fp8")
    assert goals["fast, times as fast as diffusers eager"]["found"] == 12.0
    assert goals["balanced, times as fast as diffusers eager"]["reached"] is True
    assert goals["exact in FP8, denoiser over its floor"]["found"] is None


def test_floor_counts_no_wrong_answers(gpu: ModuleType) -> None:
    def rate(of: str, ms: float, passed: bool = True, way: str | None = None) -> dict[str, Any]:
        return {"of": of, "ms_p50": ms, "a_pair": 30, "passed": passed, "way": way}

    rates = [rate("product fp8", 0.5)] * 4
    rates += [rate("attention", 1.0, False, "flash"), rate("attention", 2.0, way="cudnn")]
    rates += [rate("attention", 3.0, way="torch"), rate("attention", 1.5, way="int8")]
    floor = gpu.gpu_record.floor_seconds
    assert floor(rates, 100, "fp8") == pytest.approx(50 * 30 * (4 * 0.5 + 2.0) / 1000)
    assert floor(rates, 100, "fp8", "torch") == pytest.approx(50 * 30 * (4 * 0.5 + 3.0) / 1000)
    assert floor(rates, 100, "fp8", "int8") == pytest.approx(50 * 30 * (4 * 0.5 + 1.5) / 1000)
    assert floor(rates, 100, "fp8", "flash") is None
    assert floor(rates, 100, "bf16") is None
    assert floor(rates[1:], 100, "fp8") is None


def test_each_attention_is_checked_and_a_predictor_in_4_bits_is_of_random_weights(gpu: ModuleType) -> None:
    jobs = [*gpu.gpu_jobs.jobs("cuda", ["full", "pocket"], ["exact"], lambda variant: True)]
    checked = {tuple(map(job.asks.get, ("precision", "kernels", "attention"))) for job in jobs if job.stage == "checks"}
    assert {(precision, True, "int8") for precision in ("bf16", "fp16", "fp8")} <= checked
    assert {(precision, True, "fastest") for precision in ("bf16", "fp8")} <= checked
    assert any(job.name == "full-fp8-kernels-int4-predictor-12gb" for job in jobs)
    on_cpu = gpu.gpu_jobs.jobs("cpu", ["tiny", "pocket"], ["exact"], lambda variant: True)
    assert [job.name for job in on_cpu if "int4" in job.name] == ["tiny-fp8-eager-int4-predictor"]


def test_tests_are_counted_in_what_is_said_last(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--stages", "tests") == 0
    assert "tests of parts: 3 passed, 0 failed, 1 skipped" in capsys.readouterr().out.splitlines()


def test_library_is_built_for_those_that_need_it(gpu: ModuleType) -> None:
    def names(variant: str) -> list[str]:
        options = gpu.parse(["--stages", "turns", "--size", "full", "--variants", variant])
        return [f"{job.stage} {job.name}" for job in gpu.wanted(options)]

    assert names("fp8-kernels") == ["build library", "turns full-fp8-kernels"]
    assert names("fp8") == ["turns full-fp8"]


def test_most_telling_comes_first_and_nothing_twice(gpu: ModuleType) -> None:
    jobs = [*gpu.gpu_jobs.jobs("cuda", ["full", "pocket"], ["exact"], lambda variant: True)]
    names = [f"{job.stage} {job.name}" for job in jobs]
    assert len(set(names)) == len(names)
    order = ["build library", "checks bf16", "turns full-bf16", "turns full-fp8-kernels", "peers eager-denoiser"]
    order += ["queue full-fp8-kernels", "tests parts", "tests kernels", "turns full-fp8-turn-kernels"]
    order += [
        "turns full-fp16-kernels",
        "turns full-fp8",
        "peers compiled-denoiser",
        "turns pocket-bf16",
        "profile full-bf16-eager",
    ]
    assert [name for name in names if name in order] == order
    assert {f"turns full-{variant.name}" for variant in gpu.gpu_jobs.VARIANTS} <= set(names)


TINY = """
import json, sys, torch
sys.path.insert(0, "tests/fakes")
import half_products
half_products.install()
torch.set_num_threads(1)  # tiny work, and other tests run beside it
from benchmarks.gpu import jobs as gpu_jobs, run as gpu, stage as gpu_stage
options = gpu.parse(["--device", "cpu", "--turns", "1"])
for job in gpu_jobs.jobs("cpu", ["tiny"], ["fast"], lambda variant: variant.name == "fp8-eager-int4-predictor"):
    if job.stage in ("rates", "turns", "peers", "profile") and not job.kernels:
        gpu_stage.main(json.dumps(gpu.vars_of(options, job, None)), sys.argv[1] + job.stage)
"""


def test_what_is_measured_on_a_gpu_runs_on_a_cpu_at_tiny_size(gpu: ModuleType, tmp_path: Path) -> None:
    # In a process of its own: what the peers' libraries warn of when they are imported is not ours to mend.
    done = subprocess.run([sys.executable, "-c", TINY, f"{tmp_path}/"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {path.name: [*map(json.loads, path.read_text().splitlines())] for path in tmp_path.iterdir()}
    assert len(found["rates"]) == 13 and all(rate["passed"] for rate in found["rates"])
    assert len(found["profile"]) == 3 and all(entry["top"] for entry in found["profile"])
    heading = dict.fromkeys(gpu.gpu_record.HEADING, "")
    turn, peer = gpu.gpu_record.turn_records({**heading, **found})
    assert turn["attention"] == "torch" and turn["precision"]["predictor"] == "int4-qdq"
    assert turn["size"] == "tiny" and 0 < turn["seconds_to_state_p50"] < turn["seconds_to_first_frame_p50"]
    assert set(turn) >= set(peer) and peer["peer"] == "diffusers eager"
    for record in (turn, peer):
        assert set(record["stages"]) == {"predictor", "denoiser", "vae"}
        stages = sum(seconds["p50"] for seconds in record["stages"].values())
        assert 0 < stages < 1.2 * record["seconds_per_turn_p50"] + 1e-3
    assert abs(peer["seconds_per_turn_p50"] - sum(stage["p50"] for stage in peer["stages"].values())) < 1e-3
