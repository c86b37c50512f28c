"""Compares a bundle with the one it was made from, part by part: shot, strengths, steps, latent, frames, features.

Each part is given the reference's inputs, so that no error is counted twice. It knows the runtime's pipeline and of
precisions only what some may cost: any two bundles of one geometry and tokenizer can be compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from animegamer_export.evaluate.fidelity import TurnInput, draw, first_turns
from animegamer_export.evaluate.metrics import psnr, relative_error
from animegamer_export.evaluate.turns import RecordedDenoiser, by_plan, instructions
from animegamer_export.onnx_io.load_memory import load_memory_mib
from animegamer_export.onnx_io.part_session import PartSession
from animegamer_export.onnx_io.sessions import open_plain
from animegamer_export.quantize.bundle import part_names
from animegamer_rt.backends.interface import Engines, FloatArray, Frames
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BundleError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.profiling import host as machine
from animegamer_rt.stages.image_start import motion_ids, motion_text
from animegamer_rt.stages.prompt import HistoryTurn
from animegamer_rt.state.instruction import Instruction

from .figures import PARTS, STARTING, Figures, too_far

DIFFERS = 1
"""Exit code of a bundle whose parts are further off than their precision explains."""
GAME_TURNS = 2
"""Instructions are played as games of two turns: half of the prompts carry an earlier shot."""


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """How much is compared: instructions for the predictor, turns of `plan` (None: the default) for the others."""

    instructions: int = 200
    turns: int = 4
    plan: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Pair:
    """The bundle that is tried and the one it is compared with, both loaded."""

    tried: Pipeline
    true: Pipeline
    tried_bundle: Bundle
    true_bundle: Bundle
    true_engines: Engines


def compare(bundle: Bundle, against: Bundle, amount: SampleCounts, parts: Sequence[str] = ()) -> dict[str, Figures]:
    """Figures of each part that differs (or of the `parts` named): errors, bytes, memory to load.

    Raises BundleError when the two are not of one geometry, or when nothing differs.
    """
    if bundle.manifest.geometry != against.manifest.geometry or bundle.manifest.sizes != against.manifest.sizes:
        raise BundleError("the bundles are not of one size", where=bundle.folder, expected=f"that of {against.folder}")
    both = [name for name in STARTING if name in bundle.manifest.parts and name in against.manifest.parts]
    parts = parts or [name for name in (*PARTS, *both) if _files(bundle, name) != _files(against, name)]
    if not parts:
        found, do = f"those of {against.folder}", "name parts with --parts to compare them all the same"
        raise BundleError("the bundles have the same parts", where=bundle.folder, found=found, do=do)
    compared: dict[str, Callable[[], Figures]] = {
        name: partial(_starting, name, bundle, against, amount) for name in parts if name in STARTING
    }
    if set(parts) & set(PARTS):
        pair = _open_pair(bundle, against, amount, parts)
        compared |= {"predictor": partial(_predictor, pair, amount), "denoiser": partial(_denoiser, pair, amount)}
        compared["vae"] = partial(_vae, pair, amount)
    return {
        name: {
            "precision": bundle.manifest.parts[part_names(bundle, name)[0]].precision,
            "against": against.manifest.parts[part_names(against, name)[0]].precision,
            **compared[name](),
            "bytes": part_bytes(bundle, name),
            "bytes_before": part_bytes(against, name),
            "load_mib": load_memory_mib([bundle.part_path(part) for part in part_names(bundle, name)]),
            "load_mib_before": load_memory_mib([against.part_path(part) for part in part_names(against, name)]),
        }
        for name in parts
    }


def _open_pair(bundle: Bundle, against: Bundle, amount: SampleCounts, parts: Sequence[str]) -> _Pair:
    engines = open_engines(against, EngineConfig("cpu-fp32"))
    tried = engines if tuple(parts) == ("denoiser",) else open_engines(bundle, EngineConfig("cpu-fp32"))
    if "denoiser" in parts:
        # A session that computes what the graph says: the runtime's own may fuse what it must not (see plain_options).
        tried = replace(tried, denoiser=RecordedDenoiser(bundle.part_path("denoiser"), keep=False))
    # Both by the reference's plan: a quantised bundle has none but `exact` until it is calibrated itself.
    true, pipeline = by_plan(Pipeline.open(against, engines), against, amount.plan), Pipeline.open(bundle, tried)
    return _Pair(by_plan(pipeline, against, amount.plan), true, bundle, against, engines)


def part_bytes(bundle: Bundle, name: str) -> int:
    """Bytes of a part's graphs and weights."""
    return sum(bundle.manifest.files[file].bytes for file in _files(bundle, name))


def _files(bundle: Bundle, name: str) -> dict[str, str]:
    parts = [bundle.manifest.parts[part] for part in part_names(bundle, name)]
    files = [file for part in parts for file in (part.file, *part.data_files)]
    return {file: bundle.manifest.files[file].sha256 for file in files}


def _predictor(pair: _Pair, amount: SampleCounts) -> Figures:
    return predictor_figures(pair.tried, pair.true, amount)


def predictor_figures(tried_pipeline: Pipeline, true_pipeline: Pipeline, amount: SampleCounts) -> Figures:
    """Shots and strengths of the same prompts; earlier shots are the reference's."""
    errors, same, slots = [], 0, 0
    history: list[HistoryTurn] = []
    world = true_pipeline.bundle.manifest.world
    for number, text in enumerate(instructions(world, amount.instructions, amount.seed)):
        if number % GAME_TURNS == 0:
            history = []
        instruction = Instruction.parse(text)
        true = true_pipeline.predictor.predict(history, instruction)
        tried = tried_pipeline.predictor.predict(history, instruction)
        errors.append(relative_error(tried.shot, true.shot))
        same += tried.game_state == true.game_state
        slots += sum(
            getattr(tried.game_state, name) == getattr(true.game_state, name)
            for name in ("motion_level", "social", "entertainment", "stamina")
        )
        history.append(HistoryTurn(text, true.game_state, true.shot.astype(np.float16)))
    return {
        "instructions": amount.instructions,
        "shot_relative_error": _mean(errors),
        "shot_relative_error_max": round(max(errors), 6),
        "four_strengths_equal": same,
        "strengths_equal": slots,
    }


def _denoiser(pair: _Pair, amount: SampleCounts) -> Figures:
    """Single steps from the reference's states (x0), and whole turns, where errors add up; frames by its own vae."""
    recorded = RecordedDenoiser(pair.true_bundle.part_path("denoiser"))
    pipeline = Pipeline.open(pair.true_bundle, replace(pair.true_engines, denoiser=recorded))
    pipeline = by_plan(pipeline, pair.true_bundle, amount.plan)
    latents, decibels = [], []
    for turn in _turns(pipeline, amount):
        latent, tried = draw(pipeline.denoiser, turn), draw(pair.tried.denoiser, turn)
        latents.append(relative_error(tried, latent))
        decibels.append(psnr(_decode(pair.true, tried), _decode(pair.true, latent)))
    session = open_plain(pair.tried_bundle.part_path("denoiser"))
    steps = [relative_error(session.run(("x0",), dict(feeds))[0], x0) for feeds, x0 in recorded.steps]
    return {
        "turns": amount.turns,
        "plan": pair.true.plan_name,
        "step_relative_error": _mean(steps),
        "step_relative_error_max": round(max(steps), 6),
        "latent_relative_error": _mean(latents),
        "frames_psnr_db": round(float(np.mean(decibels)), 2),
    }


def _vae(pair: _Pair, amount: SampleCounts) -> Figures:
    """Frames of the reference's latents."""
    decibels, largest = [], 0
    for turn in _turns(pair.true, amount):
        latent = draw(pair.true.denoiser, turn)
        tried, true = _decode(pair.tried, latent), _decode(pair.true, latent)
        decibels.append(psnr(tried, true))
        largest = max(largest, int(np.abs(tried.astype(np.int16) - true).max()))
    return {
        "turns": amount.turns,
        "plan": pair.true.plan_name,
        "frames_psnr_db": round(float(np.mean(decibels)), 2),
        "frames_max_error": largest,
    }


def _starting(part: str, bundle: Bundle, against: Bundle, amount: SampleCounts) -> Figures:
    """Features of texts and of pictures of noise, and shots of the reference's features: one a turn."""
    feeds = list(_starting_feeds(part, against, amount))
    true, tried = _answers(against, part, feeds), _answers(bundle, part, feeds)
    errors = [relative_error(one, other) for one, other in zip(tried, true, strict=True)]
    output = "shot" if part == "encoder" else "features"
    worst = {f"{output}_relative_error_max": round(max(errors), 6)}
    return {"inputs": len(feeds), f"{output}_relative_error": _mean(errors), **worst}


def _starting_feeds(part: str, against: Bundle, amount: SampleCounts) -> Iterator[dict[str, npt.NDArray[Any]]]:
    if part == "encoder":
        names = {"text_features": "text_tower", "image_features": "image_tower"}
        features = (_answers(against, tower, _starting_feeds(tower, against, amount)) for tower in names.values())
        yield from (dict(zip(names, both, strict=True)) for both in zip(*features, strict=True))
        return
    for number, text in enumerate(instructions(against.manifest.world, amount.turns, amount.seed)):
        if part == "text_tower":
            tokens = against.manifest.parts[part].inputs["ids"]["shape"][1]
            yield {"ids": motion_ids(against, motion_text(text), tokens)}
        else:
            random = np.random.default_rng(amount.seed + number)
            shape = against.manifest.parts[part].inputs["picture"]["shape"]
            yield {"picture": random.uniform(-1, 1, shape).astype(np.float32)}


def _answers(bundle: Bundle, part: str, feeds: Iterable[Mapping[str, npt.NDArray[Any]]]) -> list[FloatArray]:
    session = PartSession(bundle, part)
    return [session.run(session.outputs, given)[0] for given in feeds]


def _turns(pipeline: Pipeline, amount: SampleCounts) -> list[TurnInput]:
    return first_turns(pipeline, instructions(pipeline.bundle.manifest.world, amount.turns, amount.seed), amount.seed)


def _decode(pipeline: Pipeline, latent: FloatArray) -> Frames:
    return np.stack(list(pipeline.vae.decode(latent)))


def _mean(errors: Sequence[float]) -> float:
    return round(float(np.mean(errors)), 6)


def lines(figures: Mapping[str, Figures]) -> Iterator[str]:
    """What a person reads: a line a figure."""
    for part, found in figures.items():
        yield f"{part}: {found['precision']} against {found['against']}"
        for name, value in found.items():
            if name not in ("precision", "against"):
                yield f"  {name.replace('_', ' '):28s} {value}"


def main(arguments: Sequence[str]) -> int:
    """The command `animegamer-rt verify`; 1 when a part is further off than its precision explains."""
    parser = argparse.ArgumentParser(prog="animegamer-rt verify", description=__doc__.split("\n")[0])
    parser.add_argument("bundle", help="name or folder of the bundle that is tried")
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--against", metavar="BUNDLE", help="the bundle it was quantised from: prompts and whole turns")
    given.add_argument(
        "--checkpoints", type=Path, metavar="DIR", help="the checkpoints it was exported from: each part in torch"
    )
    parser.add_argument(
        "--parts",
        default="",
        help=f"of {','.join((*PARTS, *STARTING))} (default: all; with --against those that differ)",
    )
    parser.add_argument("--instructions", type=int, default=200, metavar="N", help="prompts (default: 200)")
    parser.add_argument("--turns", type=int, default=4, metavar="N", help="whole turns, texts, pictures (default: 4)")
    parser.add_argument("--plan", help="exact, balanced or fast (default: the bundle's default)")
    parser.add_argument("--results", type=Path, metavar="DIR", help="write a record there")
    options = parser.parse_args(arguments)
    parts = [name for name in options.parts.split(",") if name]
    known = (*PARTS, *STARTING)
    if min(options.instructions, options.turns) < 1 or set(parts) - set(known):
        parser.error(f"numbers from 1, and parts of {', '.join(known)}")
    bundle = open_bundle(options.bundle)
    if options.against:
        against = open_bundle(options.against)
        figures = compare(bundle, against, SampleCounts(options.instructions, options.turns, options.plan), parts)
        made_of, wrong = against.fingerprint, too_far(figures)
    else:
        from . import against_torch

        source = against_torch.source_of(bundle, options.checkpoints)
        figures = against_torch.compare_with_torch(bundle, source, parts, lambda line: print(line, flush=True))
        made_of, wrong = source.description, against_torch.wrong(figures)
    print("\n".join([*lines(figures), *(f"WRONG: {what}" for what in wrong)]))
    if options.results is not None:
        print(write_record(options.results, bundle, made_of, figures))
    return DIFFERS if wrong else 0


def write_record(results: Path, bundle: Bundle, against: str, figures: Mapping[str, Figures]) -> Path:
    """One JSON of a comparison with a bundle's fingerprint, or with what `against` says in words."""
    record = {
        **machine.environment("onnxruntime"),
        "kind": "verify",
        "bundle": bundle.manifest.name,
        "fingerprint": bundle.fingerprint,
        "against": against,
        "parts": figures,
    }
    return machine.write_record(results, f"verify-{bundle.manifest.name}", record)
