"""The plot shows the newest record of each kind, to scale."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from animegamer_rt.bench.chart import newest, on_device, read_records, write_chart


def record(date: str, plan: str, total: float) -> dict[str, Any]:
    return {
        "date": date,
        "machine": "A & B <CPU>",
        "size": "pocket",
        "plan": plan,
        "peer": None,
        "playback_seconds": 2.125,
        "seconds_per_turn_p50": total,
        "stages": {stage: {"p50": total / 3, "p95": total / 2} for stage in ("predictor", "denoiser", "vae")},
    }


def test_only_the_newest_of_a_kind_is_shown_and_the_slowest_comes_first() -> None:
    records = [
        record("2026-01-01", "exact", 9.0),
        record("2026-01-02", "exact", 4.0),
        record("2026-01-01", "fast", 1.0),
    ]
    assert [(shown["plan"], shown["seconds_per_turn_p50"]) for shown in newest(records)] == [
        ("exact", 4.0),
        ("fast", 1.0),
    ]


def test_what_pytorch_was_told_is_a_row_of_its_own_and_named() -> None:
    told = [("bf16", "torch", 3.0), ("fp8", "torch", 2.0), ("fp8", "int8", 1.0), ("fp8", "int8", 1.5)]
    records = [
        {**record(f"2026-01-0{day}", "exact", total), "device": "torch", "attention": attention}
        | {"precision": {"denoiser": precision}}
        for day, (precision, attention, total) in enumerate(told, 1)
    ]
    assert [(shown["seconds_per_turn_p50"], on_device(shown)) for shown in newest(records)] == [
        (3.0, ", torch, bf16"),
        (2.0, ", torch, fp8"),
        (1.5, ", torch, fp8, int8 attention"),
    ]


def test_fastest_of_the_newest_variants_of_a_precision_is_shown() -> None:
    timed = [("fp8-kernels", "01", 1.0), ("fp8-kernels", "02", 3.0), ("fp8", "01", 4.0), ("fp8-compiled", "01", 5.0)]
    records = [
        {**record(f"2026-01-{day}", "exact", total), "device": "torch", "variant": name}
        | {"precision": {"denoiser": "fp8"}}
        for name, day, total in timed
    ]
    plain = [{**record("2026-01-01", "exact", 2.0), "device": device} for device in ("cpu", "cuda")]
    for order in (records, records[::-1]):
        shown = newest(sorted([*plain, *order], key=lambda one: str(one["date"])))
        assert [(one.get("variant"), one["device"]) for one in shown] == [
            ("fp8-kernels", "torch"),
            (None, "cpu"),
            (None, "cuda"),
        ]
        assert shown[0]["seconds_per_turn_p50"] == 3.0


def test_records_are_read_by_their_dates_whatever_their_files_are_called(tmp_path: Path) -> None:
    for name, date in (("a", "2026-01-03"), ("b", "2026-01-01"), ("c", "2026-01-02")):
        (tmp_path / f"{name}.json").write_text(json.dumps(record(date, "exact", 1.0)))
    assert [one["date"][-1] for one in read_records(tmp_path)] == ["1", "2", "3"]


def test_chart_is_well_formed_and_to_scale(tmp_path: Path) -> None:
    for number, (plan, total) in enumerate((("exact", 4.0), ("fast", 2.0))):
        (tmp_path / f"{number}.json").write_text(json.dumps(record(f"2026-01-0{number + 1}", plan, total)))
    path = write_chart(tmp_path / "turn.svg", read_records(tmp_path))
    svg = ElementTree.parse(path).getroot()
    bars = [
        float(bar.get("width", 0)) for bar in svg.iter("{http://www.w3.org/2000/svg}rect") if bar.get("height") == "20"
    ]
    assert len(bars) == 6
    assert abs(sum(bars[:3]) / sum(bars[3:]) - 2.0) < 0.01
    assert "4.00 s" in path.read_text() and "a clip plays 2.12 s" in path.read_text()


def test_bars_begin_behind_the_longest_name(tmp_path: Path) -> None:
    long = {**record("2026-01-01", "balanced", 2.0), "variant": "fp8-kernels-int4-predictor-12gb"}
    for name, shown in (
        ("short", record("2026-01-01", "exact", 4.0)),
        ("long", {**long, "precision": {"denoiser": "fp8"}}),
    ):
        svg = ElementTree.parse(write_chart(tmp_path / f"{name}.svg", [shown])).getroot()
        bar = next(one for one in svg.iter("{http://www.w3.org/2000/svg}rect") if one.get("height") == "20")
        label = next(
            one for one in svg.iter("{http://www.w3.org/2000/svg}text") if one.get("x") == "12" and "·" in str(one.text)
        )
        # A sans-serif letter at this size is some 7 pixels wide.
        assert float(bar.get("x", 0)) >= 12 + 7 * len(str(label.text))


def test_a_bundle_that_took_anothers_name_leaves_it_no_record() -> None:
    first = {**record("2026-01-01", "exact", 9.0), "machine": "another", "fingerprint": "first"}
    second = {**record("2026-01-02", "exact", 4.0), "fingerprint": "second"}
    assert newest([record("2026-01-01", "fast", 1.0), first, second]) == [second]
    elsewhere = {**record("2026-01-03", "exact", 2.0), "size": "full-random"}
    assert newest([second, elsewhere]) == [elsewhere, second]


def test_no_label_stands_in_the_line_of_playback(tmp_path: Path) -> None:
    """Bars that end well before it, shortly before, at it, shortly behind and far behind."""
    totals = (1.0, 1.9, 2.05, 2.125, 2.2, 4.0)
    shown = [{**record("2026-01-01", "exact", total), "machine": str(total)} for total in totals]
    svg = ElementTree.parse(write_chart(tmp_path / "turn.svg", shown)).getroot()
    path = next(svg.iter("{http://www.w3.org/2000/svg}path")).get("d", "")
    line = float(path[1 : path.index(" ")])
    labels = [text for text in svg.iter("{http://www.w3.org/2000/svg}text") if str(text.text).endswith(" s")]
    places = {str(text.text): float(text.get("x", 0)) for text in labels if "clip" not in str(text.text)}
    assert len(places) == len(totals)
    # A digit of a sans-serif font at this size is some 8 pixels wide; a line 2.
    crossed = {words: x for words, x in places.items() if x - 1 <= line <= x + 8 * len(words) + 1}
    assert crossed == {}
    assert places["1.00 s"] < line < places["2.05 s"]
    assert max(places.values()) + 8 * len("4.00 s") < float(svg.get("width", 0))
