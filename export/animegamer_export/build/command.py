"""The options of `animegamer-rt export`. `run` does the work: it is imported when it begins, as it needs PyTorch."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from animegamer_rt.arguments import whole
from animegamer_rt.bundle.roles import DENOISER, ENCODER, PLAY_ROLES, PREDICTOR

from .checkpoint_folders import TREE

PARTS = ",".join((*PLAY_ROLES, ENCODER))


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt export`."""
    parser.set_defaults(run=_run)
    parser.description = (
        "Make a bundle from the release's checkpoints or random weights. It appears once it is complete; an "
        "interrupted run starts again."
    )
    parser.epilog = "The folders that --checkpoints expects:\n\n" + TREE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--checkpoints", type=Path, metavar="DIR", help="folder of the checkpoints")
    given.add_argument(
        "--random-weights",
        type=whole(-(2**31), 2**63 - 1),
        metavar="SEED",
        help="random weights from this seed, for timing and memory",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="BUNDLE", help="folder of the new bundle")
    parser.add_argument(
        "--parts", default=PARTS, help=f"default: {PARTS}; the encoder, with its towers, may be left out"
    )
    parser.add_argument(
        "--precision",
        action="append",
        default=[],
        metavar="PART=NAME",
        help="fp32, fp16, bf16, or a precision of docs/QUANTIZATION.md; comma-separated (default: fp16)",
    )
    parser.add_argument("--release", metavar="NAME", help="the character whose checkpoints to use (default: Qiqi)")
    parser.add_argument("--size", choices=("full", "pocket", "tiny"), help="size of the random weights (default: full)")
    parser.add_argument(
        "--picture",
        type=_picture,
        metavar="HxW",
        help="frame size of the checkpoints, height x width (default: 480x720)",
    )
    parser.add_argument(
        "--alpha",
        action="append",
        type=_alpha,
        metavar="PART=NUMBER",
        help="alpha of your own LoRA, for predictor or denoiser, if no adapter_config.json states it",
    )


def _run(options: argparse.Namespace) -> int:
    from .run import run

    return run(options)


def _alpha(text: str) -> tuple[str, float]:
    part, _, number = text.partition("=")
    if part not in (PREDICTOR, DENOISER) or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number) or not float(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a part and a number above 0, as in predictor=16")
    return part, float(number)


def _picture(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not height x width, as in 480x720")
    return int(match[1]), int(match[2])
