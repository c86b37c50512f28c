"""The record of a GPU benchmark: rewritten after each result, resumable, readable as turns.

It has a list of entries for each stage, and `jobs`: how each process ended, with the last lines of a failure.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from animegamer_bench.records import FEWEST, read_json
from animegamer_rt.bundle.files import write_file
from animegamer_rt.errors import ConfigError
from benchmarks.gpu.jobs import PEER_MODES, PEER_PARTS, Job

Entry = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
CHECKOUT = re.compile(r"(?<![\w./\\-])" + re.escape(f"{ROOT}{os.sep}"))
"""Where a path inside the checkout begins, in any text."""
IDENTITY_FIELDS = ("kind", "commit", "machine", "device", "bundle")
"""Fields that a continued record must share with this run. Of `machine`, only the GPU's name if there is one."""
HEADING = ("format", "commit", "machine", "software")
"""Fields that records of turns copy from the run's record."""
RECORD_NAMES = {"size": "bundle", "branches": "network_rows", "first_prompt_seconds": "start_to_prompt_seconds"}
"""Field of a timed turn -> its name in a record of turns."""
FAILED = ("failed", "timed out")


class Record:
    """One file, rewritten after every change."""

    def __init__(self, path: Path, data: Entry) -> None:
        self.path, self.data = path, data

    def start(self, job: Job) -> None:
        """Removes the entries of an earlier, unfinished run of the job."""
        kept = [entry for entry in self.data.get(job.stage, []) if not _to_redo(entry, job)]
        self.data[job.stage] = kept

    def add(self, job: Job, entry: Entry) -> None:
        """Appends an entry of a job to its stage."""
        self.data.setdefault(job.stage, []).append({"job": job.name, **entry})
        self._write()

    def end(self, job: Job, outcome: str, seconds: float, output: str) -> None:
        """Records how a job ended, with the last lines of a failure."""
        about = {"stage": job.stage, "job": job.name, "ended": outcome, "seconds": round(seconds, 1)}
        about |= {"said": output} if outcome != "well" else {}
        others = [entry for entry in self.data["jobs"] if (entry["stage"], entry["job"]) != (job.stage, job.name)]
        self.data["jobs"] = [*others, about]
        self._write()

    def forget(self, stage: str) -> None:
        """Removes all entries of a stage."""
        self.data["jobs"] = [entry for entry in self.data["jobs"] if entry["stage"] != stage]
        self.data.pop(stage, None)

    def update(self, **fields: Any) -> None:
        """Replaces fields of the record itself."""
        self.data.update(fields)
        self._write()

    def remaining(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs still to run, without measured plans; those that failed before come last."""
        ended = {(entry["stage"], entry["job"]): entry["ended"] for entry in self.data["jobs"]}
        fresh: list[Job] = []
        again: list[Job] = []
        for job in jobs:
            outcome = ended.get((job.stage, job.name))
            measured = {entry.get("plan") for entry in self.data.get(job.stage, []) if entry["job"] == job.name}
            plans = tuple(plan for plan in job.plans if plan not in measured)
            if plans or (not job.plans and outcome != "well"):
                (again if outcome in FAILED else fresh).append(replace(job, plans=plans))
        return fresh + again

    def _write(self) -> None:
        write_file(self.path, (json.dumps(_relative(self.data), indent=1) + "\n").encode())


def _relative(value: Any) -> Any:
    """The value with paths relative to the checkout, also in tracebacks, because records are read elsewhere."""
    if isinstance(value, dict):
        return {name: _relative(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_relative(inner) for inner in value]
    return CHECKOUT.sub("", value) if isinstance(value, str) else value


def _to_redo(entry: Entry, job: Job) -> bool:
    return bool(entry["job"] == job.name and (not job.plans or entry["plan"] in job.plans))


def open_record(results: Path, heading: Entry, before: Path | None) -> Record:
    """A new record, or the one to continue. Raises ConfigError if that is of another machine, commit or bundle."""
    if before is None:
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        return Record(results / f"{stamp}-gpu.json", {**heading, "jobs": []})
    data = read_json(before)
    if not isinstance(data, dict) or data.get("kind") != "gpu":
        raise ConfigError("not a record of the GPU benchmark", where=before, do="pass a file that ends in -gpu.json")
    for name in IDENTITY_FIELDS:
        found, expected = str(data.get(name)), str(heading[name])
        if name == "machine" and heading["device"] == "cuda":
            found, expected = (words.partition(",")[0] for words in (found, expected))
        if found != expected:
            raise ConfigError(
                f"the record has a different {name}",
                where=before,
                found=found,
                expected=expected,
                do="start a new one without --continue; select with --stages and --variants",
            )
    return Record(before, data)


def turn_records(data: Mapping[str, Any]) -> list[Entry]:
    """Every timed turn and peer, in the fields of a record of `animegamer-rt bench`."""
    heading = {name: data[name] for name in HEADING}
    found = []
    for entry in [*data.get("turns", []), *_peers(data.get("peers", []))]:
        about = {RECORD_NAMES.get(name, name): value for name, value in entry.items() if name != "job"}
        counted = {
            # Too few turns for a 95th percentile.
            "seconds_per_turn_p95": entry["seconds_per_turn_p95"] if entry["n"] >= FEWEST[95] else None,
            "stages": {stage: {"p50": figures["p50"]} for stage, figures in entry["stages"].items()},
        }
        found.append({**heading, **about, **counted})
    return found


def _peers(entries: Sequence[Entry]) -> list[Entry]:
    """A turn of each mode whose parts were all timed. A part that could not be compiled counts with its eager time."""
    timed = {(entry["mode"], entry["part"]): entry for entry in entries}
    turns = []
    for mode in PEER_MODES:
        parts = {part: timed.get((mode, part), timed.get(("eager", part))) for part in PEER_PARTS}
        if (mode, "denoiser") in timed and all(parts.values()):
            turns.append(_peer_turn(mode, {part: entry for part, entry in parts.items() if entry is not None}))
    return turns


def _peer_turn(mode: str, parts: Mapping[str, Entry]) -> Entry:
    last = parts["denoiser"]
    total = {p: round(sum(entry[p] for entry in parts.values()), 4) for p in ("p50", "p95")}
    about = ("gpu", "device", "size", "shape", "playback_seconds")
    return {
        **{name: last[name] for name in about},
        "date": max(entry["date"] for entry in parts.values()),
        "runs_on": ", ".join(f"{part} {entry['library']} {entry['mode']}" for part, entry in parts.items()),
        "fingerprint": None,
        "origin": "random weights",
        "plan": "exact",
        "steps": last["pairs"],
        "branches": 2 * last["pairs"],
        "peer": f"diffusers {mode}",
        "variant": None,
        "precision": {part: entry["precision"] for part, entry in parts.items()},
        "attention": None,
        "n": min(entry["n"] for entry in parts.values()),
        "seconds_per_turn_p50": total["p50"],
        "seconds_per_turn_p95": total["p95"],
        "stages": {part: {"p50": parts[part]["p50"], "p95": parts[part]["p95"]} for part in sorted(parts)},
        "seconds_to_state_p50": parts["predictor"]["p50"],
        "seconds_to_first_frame_p50": total["p50"],  # Its decoder returns all frames at once.
        "real_time_factor": round(last["playback_seconds"] / total["p50"], 3),
        "memory_peak_mib": None,  # Each part had the card to itself.
    }
