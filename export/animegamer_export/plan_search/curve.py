"""The fidelity-against-cost curve as an SVG that needs no plotting library. Knows a calibration's record."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.files import write_file
from animegamer_rt.profiling.svg import svg

from .measuring import SKIPPING

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 70, 30, 60, 60
LINE, CHOSEN, GRID = "#4e79a7", "#e15759", "#dddddd"


def write_curve(path: Path, record: Mapping[str, Any]) -> Path:
    """SSIM over cost in network rows, the chosen plans named, those that skip blocks hollow; returns the path.

    A record made before blocks were skipped has neither `cost` nor `skipped`.
    """
    points, chosen = [{"cost": point["rows"], "skipped": "", **point} for point in record["points"]], record["chosen"]
    plain = [point for point in points if not point["skipped"]]
    costs = [float(point["cost"]) for point in points]
    low_rows, high_rows = min(costs), max(costs)
    low = min(0.8, *(float(point["ssim"]) for point in points))

    def x(rows: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (rows - low_rows) / max(1, high_rows - low_rows)

    def y(ssim: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (ssim - low) / (1.0 - low)

    parts = [
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 8}" text-anchor="middle">network rows of a turn '
        f"(exact: {record['exact_rows']}), and the seconds that they took</text>",
        '<text x="12" y="46" fill="#555">SSIM against exact</text>',
    ]
    for tick in range(int(low * 20), 21):
        level = tick / 20
        if level < low:
            continue
        parts.append(f'<path d="M{LEFT} {y(level):.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(level) + 4:.1f}" text-anchor="end">{level:.2f}</text>')
    if len(plain) < len(points):
        hollow = "hollow: some blocks skipped, each row by the share computed"
        parts.append(f'<text x="{WIDTH - RIGHT}" y="46" text-anchor="end" fill="#555">{hollow}</text>')
    for point in plain:
        where, seconds = f'x="{x(point["rows"]):.1f}" text-anchor="middle"', f"{point['denoise_seconds_p50']:.2f} s"
        parts.append(f'<text {where} y="{HEIGHT - BOTTOM + 18}">{point["rows"]}</text>')
        parts.append(f'<text {where} y="{HEIGHT - BOTTOM + 33}" font-size="11" fill="#555">{seconds}</text>')
    line = " ".join(f"{x(point['rows']):.1f},{y(point['ssim']):.1f}" for point in plain)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    feet = count(HEIGHT - BOTTOM - 8, -18)
    for point in points:
        same = [name for name, cost in chosen.items() if cost == point["cost"]]
        names = [name for name in same if name.endswith(SKIPPING) == bool(point["skipped"])]
        colour, size = (CHOSEN, 6) if names else (LINE, 3.5)
        left, top = x(point["cost"]), y(point["ssim"])
        look = f'fill="white" stroke="{colour}" stroke-width="2"' if point["skipped"] else f'fill="{colour}"'
        parts.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="{size}" {look}/>')
        if names:
            where = f'x="{left + 9:.1f}" y="{top + 18:.1f}"'
            if point["skipped"]:
                # Near the axis, each above the one to its left: beside the point others are in the way.
                foot = next(feet)
                line = f'd="M{left:.1f} {top + size:.1f}V{foot}" stroke="{colour}" stroke-dasharray="2 3"'
                parts.append(f"<path {line}/>")
                where = f'x="{left + 6:.1f}" y="{foot}"'
            parts.append(f'<text {where} fill="{CHOSEN}">{escape(", ".join(names))}: {point["ssim"]:.3f}</text>')
    write_file(path, svg(WIDTH, HEIGHT, f"{record['size']}: fidelity against cost", parts).encode())
    return path
