"""A run of the GPU benchmark: a job that fails costs only itself, nothing measured is lost, a run can be continued."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import record as records
from benchmarks.gpu import run as gpu

Run = Callable[..., int]

STAND_IN = """
import json, os, pathlib, subprocess, sys, time
job, out = json.loads(sys.argv[1]), open(sys.argv[2], "a")
folder = pathlib.Path(sys.argv[3])
name, faults = job["stage"] + " " + job["name"], json.loads((folder / "faults").read_text())
with open(folder / "log", "a") as log:
    log.write(name + " " + ",".join(job["plans"]) + "\\n")
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
if faults.get("machine") and job["stage"] == "machine":
    raise AssertionError("Torch not compiled with CUDA enabled")
elif job["stage"] == "machine":
    say(machine="a card, a processor", software={"torch": "0"}, gpu={"name": "a card"})
elif job["stage"] == "build":
    say(built=False, library=str(folder / "faults") if faults.get("build") else None)
elif job["stage"] == "turns":
    for plan in job["plans"]:
        seconds = {"exact": 4.0, "balanced": 2.0, "fast": 1.0}.get(plan, 1.5)
        figures = {"p50": seconds, "p95": seconds}
        say(date="2026-01-02T03:04:05+00:00", gpu={"name": "a card"}, device="torch", runs_on="torch",
            size=job["size"], origin="random weights", shape=[17, 480, 720], plan=plan, steps=50, branches=100,
            fingerprint=None, attention="torch",
            peer=None, variant=job["variant_name"], precision={"denoiser": job["variant"]["precision"]}, n=3,
            playback_seconds=2.125, seconds_per_turn_p50=seconds, seconds_per_turn_p95=seconds,
            stages={"predictor": figures, "denoiser": figures, "vae": figures}, seconds_to_state_p50=0.05,
            seconds_to_first_frame_p50=seconds, first_frame_of_vae=0.5, real_time_factor=1.0,
            first_prompt_seconds=None, memory_peak_mib=9000.0, fidelity={},
            against_plain_bf16={"passed": plan != "fast" or faults.get(name) != "unlike", "latent_error": 0.4})
        misbehave(faults.get(name))
elif job["stage"] == "peers":
    say(date="2026-01-02T03:04:05+00:00", part=job["part"], mode=job["mode"], library="diffusers 0", p50=4.0,
        p95=5.0, n=3, pairs=50, device="torch", gpu={"name": "a card"}, precision="bf16", size="full",
        shape=[17, 480, 720], playback_seconds=2.125, memory_peak_mib=None)
    misbehave(faults.get(name))
"""
THREE = ["--variants", "bf16,fp8,bf16-eager", "--size", "full", "--commit", "abc"]
PLANS = ("balanced", "fast", "exact")
ALL = [(name, plan) for name in ("bf16", "fp8", "bf16-eager") for plan in (*PLANS, "turbo")]
ALL[3:3] = [("bf16", plan) for plan in ("exported-balanced", "exported-fast")]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The whole command with stand-ins for what needs a GPU; faults: "stage name" -> die, hang or unlike."""

    def stand_in(job_args: dict[str, Any], entries: Path) -> list[str]:
        return [sys.executable, "-S", "-c", STAND_IN, json.dumps(job_args), str(entries), str(tmp_path)]

    def run(*arguments: str, faults: dict[str, str] | None = None) -> int:
        (tmp_path / "faults").write_text(json.dumps(faults or {}))
        (tmp_path / "log").write_text("")
        return gpu.main([*THREE, "--results", str(tmp_path / "results"), *arguments])

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


def test_variant_that_dies_costs_only_what_it_had_not_measured(run: Run, tmp_path: Path) -> None:
    assert run("--stages", "turns,peers", faults={"turns full-fp8": "die", "peers eager-vae": "die"}) == 1
    _, record = record_in(tmp_path)
    assert turns_in(record) == [turn for turn in ALL if turn not in (("fp8", "fast"), ("fp8", "exact"))]
    (failed,) = (job for job in record["jobs"] if job["job"] == "full-fp8")
    assert failed["ended"] == "failed" and "illegal memory access" in failed["said"]
    assert len(record["peers"]) == 5


def test_ctrl_c_ends_the_job_that_runs(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        while not (tmp_path / "grandchild").exists():
            time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert run("--stages", "turns", faults={"turns full-bf16": "hang"}) == 130
    path, record = record_in(tmp_path)
    assert capsys.readouterr().err == f"stopped; resume with --continue {path}\n"
    assert ended(record)["turns full-bf16"] == "cut"
    assert turns_in(record) == [("bf16", "balanced")], "what was measured is kept"


def test_variant_that_hangs_is_ended_with_all_that_it_started(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.gpu_jobs, "LIMITS_S", {**gpu.LIMITS_S, "turns": 5.0})
    assert run("--stages", "turns", faults={"turns full-bf16": "hang"}) == 1
    _, record = record_in(tmp_path)
    assert turns_in(record) == [turn for turn in ALL if turn[0] != "bf16" or turn[1] in ("balanced", "turbo")]
    assert ended(record)["turns full-bf16"] == "timed out"
    process = Path("/proc", (tmp_path / "grandchild").read_text(), "stat")
    assert not process.exists() or process.read_text().split()[2] == "Z"


def test_continued_run_measures_what_is_missing_and_what_failed_last(run: Run, tmp_path: Path) -> None:
    faults = {"turns full-bf16": "die"}
    assert run("--stages", "turns", "--plans", "exact,fast", faults=faults) == 1
    path, _ = record_in(tmp_path)
    assert run("--continue", str(path), "--stages", "build,turns") == 0
    assert (tmp_path / "log").read_text().splitlines() == [
        "machine cuda ",
        "build library ",
        "turns full-bf16-turbo turbo",
        "turns full-fp8 balanced",
        "turns full-fp8-turbo turbo",
        "turns full-bf16-eager balanced",
        "turns full-bf16-eager-turbo turbo",
        "turns full-bf16 balanced,fast,exported-balanced,exported-fast",
    ]
    _, record = record_in(tmp_path)
    assert sorted(turns_in(record)) == sorted(ALL)


def test_a_peers_parts_are_a_turn_of_the_record(run: Run, tmp_path: Path) -> None:
    assert run("--stages", "turns,peers", "--timeout-scale", "2") == 0
    path, record = record_in(tmp_path)
    turns = records.turn_records(record)
    assert [(turn["peer"], turn["seconds_per_turn_p50"]) for turn in turns[len(ALL) :]] == [
        ("diffusers eager", 12.0),
        ("diffusers compiled", 12.0),
    ]
    path.write_text(json.dumps({**record, "kind": "turn"}))
    assert run("--continue", str(path)) == 2, "not a record of this benchmark"


def test_jobs_that_did_not_fit_are_listed_as_not_run(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--stages", "turns", "--minutes", "0") == 0
    _, record = record_in(tmp_path)
    assert record["not_run"] == [
        "reference full",
        *(f"turns full-{name}{plan}" for name in ("bf16", "fp8", "bf16-eager") for plan in ("", "-turbo")),
    ]
    assert "7 jobs not run: reference full, " in capsys.readouterr().out
    assert run("--stages", "turns", "--minutes", "10") == 0
    assert [json.loads(path.read_text())["not_run"] for path in (tmp_path / "results").iterdir()].count([]) == 1


def test_with_limited_memory_each_plan_has_its_own_process() -> None:
    """As in play; a plan of another process may have left graphs. A card of 8 GB plays `turbo` alone."""
    jobs = gpu.gpu_jobs.jobs("cuda", ["full"], gpu.PLANS, lambda variant: variant.memory_gb is not None)
    turns = [(job.name.partition("int4-predictor-")[2], job.plans) for job in jobs if job.stage == "turns"]
    assert {("12gb-exact", ("exact",)), ("12gb-turbo", ("turbo",)), ("8gb-turbo", ("turbo",))} <= set(turns)
    assert all(len(plans) == 1 for _, plans in turns)
    assert [name for name, _ in turns if name.startswith("8gb")] == ["8gb-turbo"]


Entry = dict[str, Any]


def peer(part: str, mode: str, seconds: float, **changes: Any) -> Entry:
    """What a job of a peer's part says."""
    said = {"part": part, "mode": mode, "library": f"{part}s 1", "p50": seconds, "p95": 2 * seconds, "n": 5}
    said |= {"pairs": 50, "device": "torch", "gpu": None, "precision": "bf16", "size": "full", "shape": [17, 480, 720]}
    return said | {"date": "2026-01-02T03:04:05+00:00", "playback_seconds": 2.125, "job": "a peer"} | changes


def peer_turns(entries: list[Entry]) -> list[Entry]:
    return records.turn_records({**dict.fromkeys(records.HEADING, ""), "peers": entries})


def test_peers_turn_is_the_sum_of_its_parts() -> None:
    eager = [peer(part, "eager", seconds) for part, seconds in (("denoiser", 9.0), ("vae", 2.0), ("predictor", 1.0))]
    (found,) = peer_turns(eager)
    assert (found["seconds_per_turn_p50"], found["seconds_per_turn_p95"]) == (12.0, None)
    assert (found["peer"], found["plan"], found["steps"], found["network_rows"]) == (
        "diffusers eager",
        "exact",
        50,
        100,
    )
    # What could not be compiled counts as it runs eagerly; but a turn whose denoiser was not is none of its own.
    _, compiled = peer_turns([*eager, peer("denoiser", "compiled", 5.0)])
    assert (compiled["peer"], compiled["seconds_per_turn_p50"]) == ("diffusers compiled", 8.0)
    assert compiled["runs_on"] == "denoiser denoisers 1 compiled, vae vaes 1 eager, predictor predictors 1 eager"
    assert len(peer_turns([*eager, peer("vae", "compiled", 1.0)])) == 1
    assert peer_turns(eager[:2]) == []
