"""The fidelity-against-cost curve as an SVG that needs no plotting library. Knows a calibration's record."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from animegamer_rt.chart import svg
from animegamer_rt.files import write_file

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 70, 30, 60, 60
LINE, CHOSEN, GRID = "#4e79a7", "#e15759", "#dddddd"


def write_curve(path: Path, record: Mapping[str, Any]) -> Path:
    """SSIM over network rows, the chosen plans named; returns the path."""
    points, chosen = record["points"], record["chosen"]
    costs = [int(point["rows"]) for point in points]
    low_rows, high_rows = min(costs), max(costs)
    low = min(0.8, *(float(point["ssim"]) for point in points))

    def x(rows: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (rows - low_rows) / max(1, high_rows - low_rows)

    def y(ssim: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (ssim - low) / (1.0 - low)

    parts = [
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 14}" text-anchor="middle">network rows of a turn '
        f"(exact: {record['exact_rows']})</text>",
        '<text x="12" y="46" fill="#555">SSIM against exact</text>',
    ]
    for tick in range(int(low * 20), 21):
        level = tick / 20
        if level < low:
            continue
        parts.append(f'<path d="M{LEFT} {y(level):.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(level) + 4:.1f}" text-anchor="end">{level:.2f}</text>')
    for point in points:
        parts.append(
            f'<text x="{x(point["rows"]):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{point["rows"]}</text>'
        )
    line = " ".join(f"{x(point['rows']):.1f},{y(point['ssim']):.1f}" for point in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    for point in points:
        names = [name for name, rows in chosen.items() if rows == point["rows"]]
        colour, size = (CHOSEN, 6) if names else (LINE, 3.5)
        where = f'cx="{x(point["rows"]):.1f}" cy="{y(point["ssim"]):.1f}"'
        parts.append(f'<circle {where} r="{size}" fill="{colour}"/>')
        if names:
            where = f'x="{x(point["rows"]) + 9:.1f}" y="{y(point["ssim"]) + 18:.1f}"'
            parts.append(f'<text {where} fill="{CHOSEN}">{escape(", ".join(names))}: {point["ssim"]:.3f}</text>')
    write_file(path, svg(WIDTH, HEIGHT, f"{record['size']}: fidelity against cost", parts).encode())
    return path
