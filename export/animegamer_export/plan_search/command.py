"""The command `animegamer-rt search-plans`: options, record, and writing plans to the bundle."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from animegamer_bench import records
from animegamer_bench.run import LIBRARIES
from animegamer_export.evaluate.judges import judge_of
from animegamer_export.evaluate.turns import plan_engines
from animegamer_export.plan_search.measure import SearchBudget, measure_own_plans, measure_plans
from animegamer_export.plan_search.results import PlanResult, choose_plans
from animegamer_rt.arguments import whole
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.files import make_folder
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import EXACT, PlanEntry
from animegamer_rt.bundle.manifest_file import MANIFEST
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig, add_engine_options
from animegamer_rt.errors import ConfigError
from animegamer_rt.play.instructions_file import example_script, read_script
from animegamer_rt.profiling.host import environment

WHAT = "Find cheaper plans for a bundle, and write them with their measured fidelity into its manifest."
DEFAULT = "balanced"


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt search-plans`."""
    parser.set_defaults(run=_run)
    parser.description = WHAT
    parser.add_argument(
        "bundle", nargs="?", default="pocket", help="name or folder; its plans balanced and fast are replaced"
    )
    add_engine_options(parser)
    parser.add_argument("--instructions", metavar="FILE", help="one per line (default: the bundle's own examples)")
    parser.add_argument(
        "--turns",
        type=whole(1, 10_000),
        default=SearchBudget().turns,
        help="turns to search on; as many others check the result",
    )
    parser.add_argument(
        "--judge", action="store_true", help="also score how well clips follow their instructions (needs a judge)"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("bench-results"),
        metavar="DIR",
        help="folder of the record (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="do not change the bundle")


def _run(options: argparse.Namespace) -> int:
    make_folder(options.results)
    bundle = open_bundle(options.bundle)
    if not options.dry_run:
        make_folder(bundle.folder)  # Fail early for an unwritable folder.
    texts = (
        read_script(options.instructions) if options.instructions is not None else example_script(bundle.manifest.world)
    )
    judge = judge_of(bundle) if options.judge else None
    if options.judge and judge is None:
        raise ConfigError(
            "no judge is installed for this bundle's world",
            where=bundle.folder,
            do="for pocket, run in a checkout: pip install ./export; or drop --judge",
        )
    config = EngineConfig.from_arguments(options)
    engines_of, budget = plan_engines(bundle, config), SearchBudget(turns=options.turns)
    engines = engines_of(EXACT)
    points = measure_plans(bundle, engines, texts, budget, _print_line, judge)
    own = measure_own_plans(bundle, engines_of, texts, budget, _print_line, judge)
    chosen = choose_plans(points)
    record = {
        **environment(LIBRARIES.get(config.device, "onnxruntime")),
        **describe(bundle, points, chosen),
        **({"own": own} if own else {}),
        "runs_on": engines.device,
        "instructions": list(islice(cycle(texts), 2 * options.turns)),
    }
    print(f"record: {records.write_record(options.results, f'calibrate-{bundle.manifest.name}', record)}")
    for name, point in chosen.items():
        print(f"{name}: {point.summary}, SSIM {point.ssim}, {_instruction(point)}")
    if not options.dry_run:
        write_plans(bundle, chosen, own)
        print(f"written into {bundle.folder / MANIFEST}, replacing the earlier plans")
    return 0


def write_plans(
    bundle: Bundle, chosen: dict[str, PlanResult], own: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> Bundle:
    """Writes these plans and their figures into the manifest, with `balanced` as the default plan.

    own: figures for plans with their own parts, one of which stays the default if it is. Other plans stay. The measured
    quality of a changed plan is removed.
    """
    default = bundle.default_plan if bundle.default_plan in own else DEFAULT
    entries = {name: replace(entry, default=name == default) for name, entry in bundle.manifest.plans.items()}
    for name, figures in own.items():
        entries[name] = replace(entries[name], fidelity={**entries[name].fidelity, **figures})
    for name, point in chosen.items():
        entries[name] = PlanEntry(point.plan.to_dict(), dict(point.fidelity), default=name == default)
    before = bundle.manifest.plans
    stale = {name for name in chosen if name in before and before[name].plan != entries[name].plan}
    quality = {name: figures for name, figures in bundle.manifest.quality.items() if name not in stale}
    return write_manifest(bundle.folder, replace(bundle.manifest, plans=entries, quality=quality), changed=())


def describe(bundle: Bundle, points: Sequence[PlanResult], chosen: dict[str, PlanResult]) -> dict[str, Any]:
    """The record of a search: all measured plans, and the cost of each chosen one."""
    return {
        "kind": "calibrate",
        "size": bundle.manifest.name,
        "origin": bundle.manifest.origin,
        "fingerprint": bundle.fingerprint,
        "exact_rows": DenoisePlan.from_dict(bundle.plan(EXACT)).network_evaluations,
        "points": [
            {
                "rows": one.rows,
                "steps": len(one.plan),
                "denoise_seconds_p50": one.denoise_seconds,
                **one.fidelity,
            }
            for one in points
        ],
        "chosen": {name: point.rows for name, point in chosen.items()},
    }


def _instruction(point: PlanResult) -> str:
    score, exact = point.fidelity["instruction_score"], point.fidelity["instruction_score_exact"]
    judge = point.fidelity["instruction_judge"]
    if score is None:
        return f"instruction score not measured ({judge})"
    return f"instruction score {score}, exact's {exact} ({judge})"


def _print_line(line: str) -> None:
    print(line, flush=True)
