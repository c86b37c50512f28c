"""The command `animegamer-rt shots`: half of a turn with the published code, the other half with ours."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from animegamer_export.evaluate.metrics import relative_error
from animegamer_export.evaluate.turns import predict_turn
from animegamer_rt import video
from animegamer_rt.arguments import whole
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.claims import claim_file, claim_folder
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import REFERENCE
from animegamer_rt.engine_config import EngineConfig, add_engine_options
from animegamer_rt.errors import CheckpointError, InstructionError
from animegamer_rt.noise import SEEDS, VERSION
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.play.instructions_file import read_script
from animegamer_rt.session import Session
from animegamer_rt.state.game import Instruction
from animegamer_rt.untrusted import plain

if TYPE_CHECKING:  # the file needs torch
    from .file import HandedTurn

WHAT = (
    "Play the shots that the published inference_MLLM.py predicted (mllm-output.pt), write that file for its "
    "inference_Decoder.py, or compare its shots with those that a bundle predicts."
)


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt shots`."""
    parser.description = WHAT
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    decode = verbs.add_parser("decode", help="draw a clip for each shot of a file")
    decode.add_argument("--out", type=Path, required=True, metavar="DIR", help="new or empty folder for the clips")
    decode.add_argument("--seed", type=whole(0, SEEDS - 1), default=0, help="of the noise (default: 0)")
    decode.add_argument("--plan", help="plan to draw with (default: exact, the published 50 steps)", default="exact")
    write = verbs.add_parser("write", help="predict shots and write them")
    write.add_argument("--instructions", required=True, metavar="FILE", help="one line a turn, as for play")
    compare = verbs.add_parser("compare", help="predict the shots of a file again, and print the differences")
    for verb, run in ((decode, _decode), (write, _write), (compare, _compare)):
        verb.set_defaults(run=run, parser=verb)
        verb.add_argument("file", type=Path, help="mllm-output.pt")
        verb.add_argument("--bundle", required=True, metavar="BUNDLE", help="name or folder")
        add_engine_options(verb)
    for verb in (write, compare):
        verb.add_argument(
            "--as-played",
            action="store_true",
            help="predict as the bundle plays, with its history; else as the published scripts do, without",
        )


def _decode(options: argparse.Namespace) -> int:
    from .file import read_turns

    bundle = open_bundle(options.bundle)
    bundle.plan(options.plan)
    turns, fps = read_turns(options.file, _shape(bundle)), bundle.manifest.geometry.fps
    claim_folder(options.out, "clips", lambda _: None)
    pipeline = _open(bundle, options, options.plan)
    for number, turn in turns.items():
        noise = pipeline.denoiser.draw_noise(options.seed, number, VERSION)
        *_, step = pipeline.denoiser.denoise(turn.shot, turn.motion_scope, noise)
        path = options.out / f"turn-{number:03d}.mp4"
        video.write_clip(path, np.stack(list(pipeline.vae.decode(step.latent))), fps)
        print(f"{path}: motion scope {turn.motion_scope:g}; {plain(turn.instruction)}", flush=True)
    return 0


def _write(options: argparse.Namespace) -> int:
    from .file import read_turns, write_turns

    bundle = _of_scripts(options)
    prompts = [Instruction.parse(line) for line in read_script(options.instructions)]

    def is_ours(path: Path) -> bool:
        with suppress(CheckpointError):
            return bool(read_turns(path, _shape(bundle)))
        return False

    claim_file(options.file, "an mllm-output.pt of this bundle", is_ours)
    turns = _predict(_open(bundle, options), prompts)
    write_turns(options.file, turns)
    print(f"{options.file}: turns written: {len(turns)}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    from .file import read_turns

    bundle = _of_scripts(options)
    theirs = read_turns(options.file, _shape(bundle))
    ours = _predict(_open(bundle, options), [Instruction(turn.instruction) for turn in theirs.values()])
    for (number, their), our in zip(theirs.items(), ours, strict=True):
        error = relative_error(our.shot, their.shot)
        same = "equal" if our.strengths == their.strengths else f"{our.strengths}, theirs {their.strengths}"
        text = plain(their.instruction)
        print(f"turn {number}: relative error of the shot {error:.2e}; strengths {same}; {text}")
    return 0


def _predict(pipeline: Pipeline, instructions: Sequence[Instruction]) -> list[HandedTurn]:
    """The turns of one game, which need not be drawn."""
    from .file import HandedTurn

    session, turns = Session.start(pipeline.bundle, 0), []
    for number, instruction in enumerate(instructions, start=1):
        try:
            prediction, prompt = predict_turn(pipeline, session, instruction)
        except InstructionError as error:
            raise InstructionError(error.what, where=f"instruction {number}", do=error.do) from error
        turns.append(HandedTurn(prediction.shot, prompt.text, astuple(prediction.game_state)))
    return turns


def _of_scripts(options: argparse.Namespace) -> Bundle:
    """The bundle, with the settings of the published scripts unless --as-played."""
    bundle = open_bundle(options.bundle)
    rules = bundle.manifest.compatibility if options.as_played else REFERENCE
    return replace(bundle, manifest=replace(bundle.manifest, compatibility=rules))


def _open(bundle: Bundle, options: argparse.Namespace, plan: str | None = None) -> Pipeline:
    return Pipeline.open(bundle, open_engines(bundle, EngineConfig.from_arguments(options), plan=plan), plan)


def _shape(bundle: Bundle) -> tuple[int, int]:
    return bundle.manifest.geometry.shot_tokens, bundle.manifest.geometry.shot_width
