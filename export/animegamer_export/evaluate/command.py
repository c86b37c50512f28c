"""The command `animegamer-rt evaluate`: label-free measures for any bundle.

Plays instructions of the bundle's world, each twice, and compares plans. Counting characters needs an installed judge
of that world.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from animegamer_rt.api import Player
from animegamer_rt.arguments import whole
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.engine_config import EngineConfig, add_engine_options
from animegamer_rt.pipeline import Pipeline

from .fidelity import PlanEvaluator
from .judges import ClipJudge, judge_of
from .metrics import Clip
from .turns import plan_engines, sample_instructions

SECOND_CHUNK = 9
"""First frame of the vae's second chunk."""


def steadiness(clips: Sequence[Clip]) -> dict[str, float]:
    """Mean difference of neighbouring frames (of 255), and the largest and the seam's difference relative to it.

    A still clip counts as even: 1.
    """
    changes = np.stack([np.abs(np.diff(clip.astype(np.int16), axis=0)).mean(axis=(1, 2, 3)) for clip in clips])
    means = np.maximum(changes.mean(axis=1), 1e-6)
    largest, seam = changes.max(axis=1) / means, changes[:, SECOND_CHUNK - 1] / means
    still = changes.max(axis=1) < 1e-6
    return {
        "frame_difference": round(float(changes.mean()), 3),
        "largest_over_mean": round(float(np.where(still, 1, largest).mean()), 3),
        "seam_over_mean": round(float(np.where(still, 1, seam).mean()), 3),
    }


def measure(
    bundle: Bundle,
    plans: Sequence[str],
    turns: int,
    config: EngineConfig,
    judge: ClipJudge | None,
    log: Callable[[str], object],
) -> dict[str, Any]:
    """All measures: `state_repeats`, and per plan steadiness, `one_of_each` (None without a judge) and fidelity.

    Raises PlanError for an unknown plan.
    """
    for name in (EXACT, *plans):
        bundle.plan(name)  # Reject an unknown plan before loading the engines.
    texts, engines_of = sample_instructions(bundle.manifest.world, turns, seed=21), plan_engines(bundle, config)
    found: dict[str, Any] = {"bundle": bundle.manifest.name, "fingerprint": bundle.fingerprint, "turns": turns}
    by_plan: dict[str, Any] = {}
    for name in plans:
        log(f"{name}: {turns} instructions, each twice")
        clips, same = [], []
        with Player(bundle, engines_of(name), plan=name, config=config) as player:
            for text in texts:
                game = player.start(seed=21)
                first, second = game.turn(text), game.turn(text)
                clips += [first.frames, second.frames]
                same.append(first.state == second.state)
        found["state_repeats"] = round(sum(same) / len(same), 4)  # The same for all plans.
        right = None if judge is None else judge.one_of_each(clips)
        by_plan[name] = {
            **steadiness(clips),
            "one_of_each": None if right is None else round(sum(right) / len(right), 4),
        }
    log(f"{EXACT}: {turns} first turns as the reference")
    evaluator = PlanEvaluator.play(Pipeline.open(bundle, engines_of(EXACT), EXACT), texts, 21)
    for name in plans:
        figures = evaluator.fidelity(Pipeline.open(bundle, engines_of(name), name))
        by_plan[name] |= {key: figures[key] for key in ("psnr_db", "ssim", "motion_ratio")}
    return {**found, "plans": by_plan}


WORDS = {
    "one_of_each": "clips without doubled or smeared characters",
    "frame_difference": "mean change between frames, of 255",
    "largest_over_mean": "largest change between frames / mean",
    "seam_over_mean": "change where two chunks meet / mean",
    "psnr_db": "PSNR against exact, dB",
    "ssim": "SSIM against exact",
    "motion_ratio": "change between frames / exact's",
}


def lines(found: dict[str, Any]) -> list[str]:
    """The measures as a table of at most 80 columns."""
    plans = found["plans"]
    table = [f"{found['bundle']}, {found['turns']} instructions, each twice in a row", ""]
    table.append(f"{'same state both times, share':42s}{found['state_repeats']:>10}")
    table.append("".join([f"{'':42s}", *(f"{name[:11]:>12}" for name in plans)]).rstrip())
    for key, words in WORDS.items():
        values = ["no judge" if plan[key] is None else str(plan[key]) for plan in plans.values()]
        table.append("".join([f"{words:42s}", *(f"{value:>12}" for value in values)]))
    return table


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt evaluate`."""
    parser.set_defaults(run=_run)
    parser.add_argument("bundle", nargs="?", default="pocket", help="name or folder (default: pocket)")
    parser.add_argument(
        "--plan", action="append", metavar="NAME", help="plan to evaluate; repeatable (default: all but exact)"
    )
    parser.add_argument(
        "--turns", type=whole(1, 100_000), default=8, metavar="N", help="number of instructions (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_engine_options(parser)


def _run(options: argparse.Namespace) -> int:
    bundle = open_bundle(options.bundle)
    plans = options.plan or [name for name in bundle.manifest.plans if name != EXACT] or [bundle.default_plan]
    config = EngineConfig.from_arguments(options)

    def log(line: str) -> None:
        if not options.json:
            print(line, flush=True)

    found = measure(bundle, plans, options.turns, config, judge_of(bundle), log)
    print(json.dumps(found, indent=1) if options.json else "\n".join(lines(found)))
    return 0
