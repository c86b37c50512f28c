"""The tables and plots of the documents: what they select from the records, and that they are up to date."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from benchmarks.records import cited, newest
from project import ROOT

from animegamer_bench.records import read_records
from benchmarks import plots, tables

STAGES = ("predictor", "denoiser", "vae")


def record(date: str = "2026-01-02", plan: str = "exact", total: float = 10.0, **changes: Any) -> dict[str, Any]:
    """A record of turns at full size."""
    about = {"date": date, "machine": "a machine", "bundle": "full", "plan": plan, "peer": None, "network_rows": 98}
    about |= {"stages": {stage: {"p50": share * total} for stage, share in zip(STAGES, (0.1, 0.6, 0.3), strict=True)}}
    about |= {"seconds_per_turn_p50": total, "seconds_per_turn_p95": 12.0, "playback_seconds": 2.125}
    about |= {"fidelity": {}, "commit": "abc", "denoiser_floor_seconds": 4.0, "precision": {"denoiser": "fp8"}}
    return about | changes


def test_only_the_newest_of_a_kind_is_shown_and_the_slowest_comes_first() -> None:
    records = [
        record("2026-01-01", "exact", 9.0),
        record("2026-01-01", "fast", 1.0),
        record("2026-01-02", "exact", 4.0),
    ]
    shown = [(one["plan"], one["seconds_per_turn_p50"]) for one in newest(records)]
    assert shown == [("exact", 4.0), ("fast", 1.0)]


def test_quick_runs_are_not_cited() -> None:
    assert cited({"preset": "standard", "peer": None})
    assert cited({"peer": None}), "a record from before there were presets"
    assert not cited({"preset": "quick", "peer": None}) and not cited({"preset": None, "peer": None})
    assert cited({"preset": None, "peer": None, "variant": "bf16"})
    of_suite = record("2026-01-01", suite=1, total=5.0)
    assert newest([of_suite, record("2026-01-02")]) == [of_suite], "a later preset does not replace a suite"


def test_a_gpus_table_leaves_out_what_most_of_its_rows_lack_and_says_that_weights_are_random() -> None:
    of_gpu = {"device": "torch", "origin": "random weights", "n": 3, "seconds_per_turn_p95": None}
    ours = record(variant="fp8-kernels-int8-wgmma", attention="int8-wgmma", total=4.0, memory_peak_mib=100.0, **of_gpu)
    peer = record(peer="diffusers eager", precision={"denoiser": "bf16"}, commit="a" * 40, **of_gpu)
    text = tables.table([ours, peer])
    head, _, *rows = (line for line in text.splitlines() if line.startswith("|"))
    assert "p95" not in head and "steady" not in head and "fidelity" not in head
    assert "(the GPU benchmark)" in text and "random weights: seconds and memory" in text
    assert rows[0].startswith("| full, **exact**, diffusers eager, bf16 | 98 | **10.00** | 3 |")
    assert "| 1.0 | not measured | `aaaaaaaaaa`, 2026-01-02 |" in rows[0]
    assert rows[1].startswith("| full, **exact**, torch, fp8, int8-wgmma attention | 98 | **4.00** |")
    assert "| 0.40 / 2.40 / 1.20 | 0.60 | 2.5 | 100 MiB |" in rows[1]


def test_readmes_table_names_its_machines_and_random_weights_in_the_title() -> None:
    of_gpu = {"device": "torch", "origin": "random weights", "machine": "a GPU", "n": 3, "memory_peak_mib": 2048.0}
    full = [record(plan=plan, total=total, **of_gpu) for plan, total in (("exact", 4.0), ("fast", 1.0))]
    pocket = [
        record(date, bundle="pocket", machine=machine, total=total, n=300)
        for date, machine, total in (("2026-01-01", "an older CPU", 3.0), ("2026-01-02", "a CPU", 2.0))
    ]
    title, *rows = (line for line in tables.headline_table([*full, *pocket]).splitlines() if line)
    assert "full with random weights (times, no pictures) on a GPU; pocket on a CPU" in title
    assert rows[2:] == [
        "| full, **exact**, torch, fp8 | 98 | **4.00** | 3 | - | 2.0 |",
        "| pocket, **exact** | 98 | **2.00** | 300 | - | - |",
    ], "one machine a bundle; pocket's plans mean nothing at full size"


def test_tables_are_up_to_date() -> None:
    assert tables.main(["--check"]) == 0, "run: python benchmarks/tables.py"


def test_every_plot_can_be_drawn_and_shows_the_records_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = tmp_path / "results"
    shutil.copytree(ROOT / "benchmarks" / "results", results)
    drawn = {path.stem: ElementTree.parse(path) for path in plots.draw_all(results)}
    assert set(drawn) == {"wire", "calibrate", "trace-queue"}
    labels = "".join(drawn["wire"].getroot().itertext())
    record = read_records(results, "wire")[-1]
    assert all(f"{1e3 * one['overhead_s']['p50']:.3g} ms" in labels for one in record["overhead"])
