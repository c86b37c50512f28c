"""`animegamer-rt bench compare A B`: two records of one cohort side by side, with n, spread and the ratio's interval.

Records of different machines, bundles or suites, or of one plan in different precisions, are refused, because their
ratio would measure neither the software nor the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from animegamer_rt.errors import ConfigError
from animegamer_rt.untrusted import plain

from .records import SAMPLES, TURN_FORMAT, UPDATE, Record, of_newer_version, percentiles, read_json

COHORT = (
    *("machine", "instruction_sets", "device", "bundle", "fingerprint", "shape", "suite", "suite_sha256", "peer"),
)
"""Settings that must be equal in both records, unless a record is too old to have them."""
OF_PLAN = ("network_rows", "precision")
"""Settings that must be equal, too, if the plans are."""
SETTINGS = (
    *("plan", "gpu", "runs_on", "attention", "variant", "memory_source", "threads"),
    *("kernel", "libc", "governor", "packages", "software", "commit", "date"),
)
"""Settings whose differences are listed."""
FIGURES = (
    *("seconds_per_turn_p50", "seconds_per_turn_p90", "seconds_per_turn_p95", "seconds_per_turn_p99"),
    *("seconds_per_turn_max", "sustained_seconds_per_turn", "seconds_to_state_p50", "seconds_to_first_frame_p50"),
    *("start_to_prompt_seconds", "memory_peak_mib", "host_memory_peak_mib", "fps"),
)
WIDEST = 1 + max(map(len, FIGURES))
RESAMPLES, CONFIDENCE = 2000, 95


def compare(first_path: Path, second_path: Path) -> int:
    """Prints the figures of two records; returns 0.

    Raises ConfigError if these are not two records of turns, or not of one cohort.
    """
    first, second = read_turns(first_path), read_turns(second_path)
    cohort = COHORT if first.get("plan") != second.get("plan") else (*COHORT, *OF_PLAN)
    if unlike := [one for one in differences(first, second, cohort) if one[0] in first and one[0] in second]:
        raise ConfigError(
            "the two records cannot be compared",
            found="; ".join(plain(f"{name}: A {a}, B {b}") for name, a, b in map(_only_unlike, unlike)),
            expected="the same machine, bundle and suite, and for one plan the same precision",
            do="compare two runs on one machine",
        )
    for label, path, record in (("A", first_path, first), ("B", second_path, second)):
        print(plain(f"{label}: {path} ({_about(record)})"))
    print(f"{'seconds':<{WIDEST}}{'A':>10}{'B':>10}{'B / A':>8}")
    for name, a, b in figures(first, second):
        print(f"{plain(name):<{WIDEST}}{a:>10.3f}{b:>10.3f}{f'{b / a:.3f}' if a else '':>8}")
    for name, a, b in differences(first, second, SETTINGS):
        print(plain(f"{name}: A {a}; B {b}"))
    print(verdict(first, second))
    return 0


def verdict(first: Record, second: Record) -> str:
    """Whether B is faster or slower than A, in one sentence, or why that is unknown.

    No difference if the interval of the ratio of medians contains 1.
    """
    if SAMPLES not in first or SAMPLES not in second:
        return "no verdict: without every turn's seconds there is no spread; both records must be from `bench run`"
    if shaky := [label for label, record in zip("AB", (first, second), strict=True) if record.get("unsteady")]:
        are = "A and B are" if len(shaky) > 1 else f"{shaky[0]} is"
        return f"no verdict: {are} unsteady; repeat on an idle machine"
    value, low, high = ratio(first[SAMPLES], second[SAMPLES])
    if low <= 1 <= high:
        return f"no difference found: the ratio's interval, {low:.3f} to {high:.3f}, contains 1"
    how = f"{100 * abs(value - 1):.1f} % {'slower' if value > 1 else 'faster'}"
    return f"B is {how} (ratio {low:.3f} to {high:.3f} with {CONFIDENCE} % confidence)"


def figures(first: Record, second: Record) -> Iterator[tuple[str, float, float]]:
    """(name, A, B) of each figure that both records have."""
    for name in FIGURES:
        if _is_number(first.get(name)) and _is_number(second.get(name)):
            yield name, float(first[name]), float(second[name])
    for stage, seconds in first["stages"].items():
        if stage in second["stages"]:
            yield f"{stage} p50", float(seconds["p50"]), float(second["stages"][stage]["p50"])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def differences(first: Record, second: Record, names: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    """(name, A, B) of each setting in which the records differ."""
    for name in names:
        if first.get(name) != second.get(name):
            yield name, first.get(name), second.get(name)


def _only_unlike(setting: tuple[str, Any, Any]) -> tuple[str, Any, Any]:
    """Of two mappings, such as precisions by part, only the entries that differ."""
    name, a, b = setting
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return setting
    keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    return name, {key: a.get(key) for key in keys}, {key: b.get(key) for key in keys}


def _about(record: Record) -> str:
    told = f"n = {record.get('n', 'unknown')} turns"
    if SAMPLES in record:
        seconds = record[SAMPLES]["seconds"]
        told += f", the middle half of them within {100 * spread(seconds):.1f} % of the median"
    reasons = record.get("unsteady")
    if reasons:
        told += f"; unsteady: {', '.join(map(str, reasons))}"
    if (record.get("quality_gate") or {}).get("passed") is False:
        told += "; quality gate failed"
    return told


def read_turns(path: Path) -> Record:
    """The record of turns in a file. Raises ConfigError for any other file."""
    content = read_json(path)
    if of_newer_version(content):
        found, expected = f"format {content['format']}", f"at most {TURN_FORMAT}"
        raise ConfigError("the record is of a newer version", where=path, found=found, expected=expected, do=UPDATE)
    try:
        record = dict(content)
        measured = {name for name, _, _ in figures(record, record)}
        if SAMPLES in record:
            percentiles([float(value) for value in record[SAMPLES]["seconds"]])
            assert len(record[SAMPLES]["game"]) == len(record[SAMPLES]["seconds"])
            _about(record)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError, AssertionError):
        measured = set()
    if "seconds_per_turn_p50" not in measured:
        raise ConfigError("not a record of turns", where=path, do="pass a record of `animegamer-rt bench`")
    return record


def spread(values: Sequence[float]) -> float:
    """The interquartile range relative to the median."""
    low, median, high = np.percentile(values, (25, 50, 75))
    return float((high - low) / median) if median else 0.0


def ratio(first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]]) -> tuple[float, float, float]:
    """Median seconds of `second` over those of `first`, with the bounds of its 95 % bootstrap interval.

    Both have the columns seconds and game. Resamples whole games, because turns of one game are correlated.
    Deterministic.
    """
    random, medians = np.random.default_rng(0), []
    for columns in (first, second):
        seconds, games = np.asarray(columns["seconds"], np.float64), np.asarray(columns["game"])
        groups = [seconds[games == game] for game in np.unique(games)]
        groups = groups if len(groups) > 1 else list(seconds[:, None])
        draws = random.integers(len(groups), size=(RESAMPLES, len(groups)))
        medians.append(np.array([np.median(np.concatenate([groups[one] for one in draw])) for draw in draws]))
    low, high = np.percentile(medians[1] / medians[0], ((100 - CONFIDENCE) / 2, (100 + CONFIDENCE) / 2))
    return float(np.median(second["seconds"]) / np.median(first["seconds"])), float(low), float(high)
