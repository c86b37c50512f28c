"""Runs a training phase to its end and prints progress."""

from __future__ import annotations

import time
from collections.abc import Iterator

REPORT_EVERY_S = 20.0


def run_phase(name: str, losses: Iterator[dict[str, float]], steps: int) -> None:
    """Prints step, smoothed losses and seconds left every twenty seconds."""
    started = reported = time.monotonic()
    smooth: dict[str, float] = {}
    for step, loss in enumerate(losses):
        for key, value in loss.items():
            smooth[key] = value if key not in smooth else 0.95 * smooth[key] + 0.05 * value
        now = time.monotonic()
        if now - reported > REPORT_EVERY_S or step + 1 == steps:
            reported = now
            left = (now - started) / (step + 1) * (steps - step - 1)
            shown = "  ".join(f"{key} {value:.4f}" for key, value in smooth.items())
            print(f"{name} {step + 1}/{steps}  {shown}  {left:.0f} s left", flush=True)
