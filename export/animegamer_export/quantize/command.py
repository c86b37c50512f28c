"""The command `animegamer-rt quantize`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from animegamer_export.quantize.scheme import SCHEMES, Scheme, scheme
from animegamer_export.support.progress import Progress
from animegamer_rt.arguments import whole
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.errors import ConfigError

WHAT = "Write a copy of a bundle with parts in another precision. A run that is interrupted leaves nothing behind."


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt quantize`."""
    parser.set_defaults(run=_run)
    parser.description = WHAT
    parser.add_argument("bundle", help="name or folder of the source bundle")
    parser.add_argument(
        "--precision", required=True, help=f"predictor=int4-qdq,denoiser=w8a8 ..; of {', '.join(SCHEMES)}"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the new bundle")
    parser.add_argument(
        "--calibration-turns",
        type=whole(1, 10_000),
        default=4,
        metavar="N",
        help="calibration turns for fp8 and w8a8 (default: 4)",
    )


def _run(options: argparse.Namespace) -> int:
    from .bundle import quantize_bundle  # needs onnx

    precisions = parse_precisions(options.precision)
    bundle, step = open_bundle(options.bundle), Progress(Console(markup=False)).step
    reports = quantize_bundle(bundle, options.out, precisions, options.calibration_turns, step=step)
    for name, report in reports.items():
        print(
            f"{name}: {report.scheme}, {len(report.errors)} weights (mean relative error {report.mean_error:.4f}), "
            f"{len(report.kept)} kept, {report.bytes_before / 2**20:.1f} -> {report.bytes_after / 2**20:.1f} MiB"
        )
    print(f"compare with the original: animegamer-rt verify {options.out} --against {options.bundle}")
    print(f"measure its plans (until then only exact can be played): animegamer-rt search-plans {options.out}")
    return 0


def parse_precisions(text: str) -> dict[str, Scheme]:
    """`predictor=int4-qdq,denoiser=w8a8` as schemes by part. Raises ConfigError."""
    found: dict[str, Scheme] = {}
    for entry in text.split(","):
        part, equals, name = (word.strip() for word in entry.partition("="))
        if not equals or not part or part in found:
            raise ConfigError(
                "not PART=PRECISION", where="--precision", found=repr(entry), expected="PART=PRECISION, each part once"
            )
        found[part] = scheme(name)
    return found
