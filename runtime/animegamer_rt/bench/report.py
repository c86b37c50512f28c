"""Prints a record of turns for people, and the one line that quotes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from animegamer_rt.bundle.manifest import RANDOM_WEIGHTS

from .presets import QUICK

SAMPLES = "samples"
"""The field of every turn's seconds, left out of what is printed."""
INDENT = " " * 18


def print_record(record: Mapping[str, Any]) -> None:
    """For a terminal of 80 columns."""
    top = tail(record)
    print(f"{'seconds':<12}{'median':>10}{top:>10}   (n = {record['n']} turns)")
    for stage, seconds in record["stages"].items():
        print(f"{stage:<12}{seconds['p50']:>10.3f}{seconds[top]:>10.3f}")
    print(f"{'turn':<12}{record['seconds_per_turn_p50']:>10.3f}{record[f'seconds_per_turn_{top}']:>10.3f}")
    for name in ("first_turn", "turn_10_and_later"):
        if found := record[name]:
            print(f"{name.replace('_', ' '):<18}{found['p50']:.3f} s (median, n = {found['n']})")
    print(f"sustained         {record['sustained_seconds_per_turn']:.3f} s a turn")
    print(f"state predicted   {record['seconds_to_state_p50']:.2f} s after the instruction (median)")
    print(f"first frame       {record['seconds_to_first_frame_p50']:.2f} s after the instruction (median)")
    print(f"speed             {record['fps']} frames/s, {record['real_time_factor']} x real time")
    if record["denoiser_floor_seconds"] is not None:
        bound, ratio = record["denoiser_floor_seconds"], record["ratio_to_floor"]
        print(f"roofline bound    {bound:.3f} s of denoising; measured: {ratio} x the bound")
        print(f"{INDENT}({record['floor_source']})")
    elif record["floor_source"] is not None:
        print(f"roofline bound    {record['floor_source']}")
    print(f"start of process  {record['start_to_prompt_seconds']:.2f} s until the first instruction can be typed")
    if (cached := record.get("bundle_cached_share")) is not None:
        print(f"{INDENT}({cached:.0%} of the bundle was in the system's cache)")
    print(f"peak memory       {record['memory_peak_mib']} MiB, {record['memory_source']}")
    joules, source = record["energy_j_per_turn"], record["energy_source"]
    print(f"energy            {source}" if joules is None else f"energy            {joules:.1f} J per turn, {source}")
    for name, value in (record["gpu"] or {}).items():
        print(f"{name:<17} {value}")
    _print_trust(record)


def tail(record: Mapping[str, Any]) -> str:
    """The highest of p95 and p99 that the count carries, else "max"."""
    return next((name for name in ("p99", "p95") if record.get(f"seconds_per_turn_{name}") is not None), "max")


def quote(record: Mapping[str, Any]) -> str:
    """One line that says the figure, what it is of, and what kept it from being steady or right."""
    top, what = tail(record), ", ".join([record["bundle"], f"plan {record['plan']}", *settings(record)])
    of = f"preset {record.get('preset') or 'none'}"
    of = f"suite {record['suite']}" if record.get("suite") else "the GPU benchmark" if of_the_gpu(record) else of
    spoilt = ["unsteady"] if record.get("unsteady") else []
    spoilt += ["quality gate failed"] if (record.get("quality_gate") or {}).get("passed") is False else []
    figure = f"{record['seconds_per_turn_p50']:.3f} s a turn"
    if record.get(f"seconds_per_turn_{top}") is not None:
        figure += f" ({top} {record[f'seconds_per_turn_{top}']:.3f} s)"
    return (
        f"{engine(record)} {record['commit']}: {figure}, n = {record['n']}, {what}, {of}, on {record['machine']}, "
        f"{record['date'][:10]}{''.join(f'; {word}' for word in spoilt)}"
    )


def engine(record: Mapping[str, Any]) -> str:
    """Whose time it is: this project's, or that of another library which it timed."""
    return f"{peer}, timed by animegamer-rt" if (peer := record.get("peer")) else "animegamer-rt"


def settings(record: Mapping[str, Any]) -> list[str]:
    """The denoiser's precision and attention, where they are known, and whether the weights are random."""
    precision, attention = (record.get("precision") or {}).get("denoiser"), record.get("attention")
    told = [f"denoiser in {precision}"] if precision else []
    told += [f"{attention} attention"] if attention else []
    return told + ([RANDOM_WEIGHTS] if record.get("origin") == RANDOM_WEIGHTS else [])


def of_the_gpu(record: Mapping[str, Any]) -> bool:
    """Whether benchmarks/gpu/run.py made a record of turns: a few, and without a hash."""
    return bool(record.get("variant") or record.get("peer"))


def _print_trust(record: Mapping[str, Any]) -> None:
    gate = record["quality_gate"]
    words = {True: "passed", False: "FAILED: the frames are not those of this plan", None: "not judged"}
    print(f"quality gate      {words[gate['passed']]}")
    for reason in record["unsteady"]:
        print(f"unsteady          {reason}")
    if record["suite"] is None:
        what = "a quick look" if record["preset"] == QUICK else "of no suite"
        print(f"This is {what}. A figure to cite: animegamer-rt bench run --suite 1")
    elif record["unsteady"]:
        print("Unsteady: run it again on a quiet machine before you cite it.")
    print(f"to quote: {quote(record)}")
