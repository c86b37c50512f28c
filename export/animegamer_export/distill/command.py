"""The command `animegamer-rt distill`: from games to the plan `turbo`, in a work folder."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from animegamer_rt.arguments import whole
from animegamer_rt.bundle.files import lock_folder, make_folder, sha256
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.engine_config import EngineConfig, add_engine_options
from animegamer_rt.errors import BackendError, ConfigError

WHAT = (
    "Train a student of a bundle's denoiser and a light decoder, and write them into the bundle as the plan turbo. "
    "An interrupted run continues where it stopped."
)
TIMESTEPS = "999,319,19"


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt distill`."""
    parser.set_defaults(run=_run)
    parser.description = WHAT
    add = parser.add_argument
    add("bundle", help="name or folder; its plan turbo is replaced")
    add_engine_options(parser)
    add("--work", type=Path, required=True, metavar="DIR", help="folder for training data and checkpoints")
    about = "saved games, or a text file with one turn per line and an empty line between games"
    add("--games", type=Path, metavar="PATH", help=f"{about} (default: the bundle's own words)")
    add("--teacher", default="balanced", metavar="PLAN", help="plan to learn from (default: %(default)s)")
    add("--timesteps", default=TIMESTEPS, metavar="T,T,..", help="the student's steps (default: %(default)s)")
    add("--pairs", type=whole(1, 10**6), default=2000, metavar="N", help="training turns (default: %(default)s)")
    about = "train a LoRA of this rank, in a fifth of the memory (default: 0, all weights)"
    add("--rank", type=whole(0, 4096), default=0, metavar="N", help=about)
    add(
        "--batch",
        type=whole(1, 4096),
        default=8,
        metavar="N",
        help="turns per step of the student (default: %(default)s)",
    )
    for what, steps in (("student", 1000), ("decoder", 10000)):
        about = f"training steps of the {what} (default: %(default)s)"
        add(f"--{what}-steps", type=whole(1, 10**8), default=steps, metavar="N", help=about)
    for option in ("--student", "--light-decoder"):
        add(option, type=Path, metavar="FILE", help="use this trained file")
    add("--default", action="store_true", help="make turbo the default plan")


def _run(options: argparse.Namespace) -> int:
    from torch import OutOfMemoryError

    from .add import TURBO, add_turbo
    from .files import read_light_decoder, read_student
    from .turns import read_games, sample_games
    from .work import Distillation, Recipe

    steps = options.timesteps.split(",")
    if not all(step.isdecimal() for step in steps):
        expected = f"a list like {TIMESTEPS}"
        raise ConfigError("not timesteps", where="--timesteps", found=repr(options.timesteps), expected=expected)
    bundle, config = open_bundle(options.bundle), EngineConfig.from_arguments(options)
    make_folder(bundle.folder)
    make_folder(options.work)
    if options.work.samefile(bundle.folder):  # each is locked
        raise ConfigError("--work is the bundle's own folder", where=options.work, do="choose another folder")
    student, light = options.student, options.light_decoder
    for given, read in ((student, read_student), (light, read_light_decoder)):
        if given is not None:
            read(given, bundle)  # refused before any work
    with lock_folder(options.work):
        if student is None or light is None:
            world, pairs = bundle.manifest.world, options.pairs
            games = sample_games(world, pairs) if options.games is None else read_games(options.games)
            counts = options.rank, options.batch, options.student_steps, options.decoder_steps
            recipe = Recipe(
                options.teacher, [int(step) for step in steps], pairs, *counts, sha256(student) if student else ""
            )
            distillation = Distillation(bundle, options.work, recipe, games, config)
            try:
                student = student or distillation.train_student()
                light = light or distillation.train_decoder(student)
            except OutOfMemoryError as error:
                do = "run it with a smaller --batch or with --rank 32, and another --work folder"
                raise BackendError("the GPU's memory is full", found=str(error).partition(". ")[0], do=do) from error
        made, missed = add_turbo(bundle, student, light, options.default, config)
    if missed:
        kept = "the bundle keeps its earlier one" if made.manifest.plans[TURBO].fidelity else "and is not played"
        print(f"{TURBO} misses these goals, so it stays unmeasured, {kept}: {'; '.join(missed)}")
        return 1
    print(json.dumps(made.manifest.plans[TURBO].fidelity, indent=1))
    return 0
