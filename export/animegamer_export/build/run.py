"""Runs `animegamer-rt export`: its source, precisions and messages; `steps` makes the parts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from rich.console import Console

from animegamer_export.parts.streamed.write import STORED
from animegamer_export.support.new_bundle import new_folder
from animegamer_export.support.progress import Progress
from animegamer_rt.bundle.config import suggest
from animegamer_rt.errors import ConfigError

from .sizes import PARTS
from .steps import export, part_scheme
from .weight_source import TOWER_PARTS, ExportSource, from_checkpoints, from_seed

DEFAULT_PRECISION = "fp16"
DEFAULT_SIZE, DEFAULT_RELEASE, DEFAULT_PICTURE = "full", "Qiqi", (480, 720)


def run(options: argparse.Namespace) -> int:
    """Exports what the options ask for; returns the exit code. Raises AnimeGamerError."""
    precision = precisions(options.parts, options.precision)
    for part, name in precision.items():
        if name not in STORED:
            part_scheme(part, name)
    new_folder(options.out)  # before the checkpoints are read, which takes minutes
    console = Console(markup=False)
    say = partial(console.print, highlight=False, soft_wrap=True)
    source = _source(options, console)
    for line in source.not_used:
        say(line)
    if source.unpublished:
        say(f"warning: sizes differ from the published ones: {source.unpublished}")
    if "encoder" in precision and source.towers is None:
        precision = {part: name for part, name in precision.items() if part not in TOWER_PARTS}
        names = " and ".join(TOWER_PARTS)
        say(f"without {names}: {source.towers_missing}; needed only to start a game from a picture")
    bundle = export(source, precision, options.out, Progress(console))
    say(f"{options.out}: {bundle.bytes / 1e6:.1f} MB; compare it with torch: {_verify_command(options)}")
    if bundle.unmeasured_plans:
        say(f"only exact can be played until other plans are measured: animegamer-rt search-plans {options.out}")
    return 0


def _verify_command(options: argparse.Namespace) -> str:
    checkpoints = "" if options.checkpoints is None else f" --checkpoints {options.checkpoints}"
    return f"animegamer-rt verify {options.out}{checkpoints}"


def precisions(parts: str, given: Sequence[str]) -> dict[str, str]:
    """The precision of each requested part; the encoder includes the towers. Raises ConfigError for unknown names."""
    chosen = dict.fromkeys((_check_part_name(part, PARTS, "--parts") for part in parts.split(",")), DEFAULT_PRECISION)
    if "encoder" in chosen:
        chosen |= dict.fromkeys(TOWER_PARTS, DEFAULT_PRECISION)
    for setting in ",".join(given).split(",") if given else ():
        part, equals, name = (word.strip() for word in setting.partition("="))
        if not equals:
            raise ConfigError("no precision given", where="--precision", found=setting, expected="part=name")
        if _check_part_name(part, (*PARTS, *TOWER_PARTS), "--precision") not in chosen:
            raise ConfigError(f"{part} is not exported", where="--precision", do=f"add it to --parts ({parts})")
        chosen[part] = name
    return chosen


def _check_part_name(part: str, parts: Sequence[str], where: str) -> str:
    if part not in parts:
        raise ConfigError(f"unknown part {part!r}", where=where, do=suggest(part, parts))
    return part


def _source(options: argparse.Namespace, console: Console) -> ExportSource:
    """Raises ConfigError for an option that does not apply to the source."""
    random = options.checkpoints is None
    for name in ("release", "picture", "alpha") if random else ("size",):
        if getattr(options, name) is not None:
            source = "random weights" if random else "checkpoints"
            raise ConfigError(f"{source} do not use it", where=f"--{name}", do="leave it out")
    if random and options.random_weights < 0:
        raise ConfigError("not a seed", where="--random-weights", found=options.random_weights, expected="0 or more")
    if random:
        return from_seed(options.random_weights, options.size or DEFAULT_SIZE)
    height, width = options.picture or DEFAULT_PICTURE
    with console.status("reading the checkpoints"):
        return from_checkpoints(
            options.checkpoints, options.release or DEFAULT_RELEASE, height, width, dict(options.alpha or ())
        )
