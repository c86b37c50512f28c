"""Compares a bundle with the one it was made from, part by part: shot, strengths, steps, latent, frames, features.

Each part of both bundles gets the reference's inputs, so that errors do not accumulate. The bundles must have the same
geometry and tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from animegamer_export.evaluate.fidelity import TurnInput, denoise_turn, predict_first_turns
from animegamer_export.evaluate.metrics import psnr, relative_error
from animegamer_export.evaluate.turns import open_with_plan, sample_instructions
from animegamer_export.onnx_io.part_session import PartSession
from animegamer_export.onnx_io.sessions import open_plain
from animegamer_export.quantize.bundle import part_names
from animegamer_export.quantize.recording import RecordingDenoiser
from animegamer_rt.backends.interface import Engines, FloatArray, Frames
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.bundle.roles import DENOISER, ENCODER, PREDICTOR, VAE
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BundleError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.stages.image_start import motion_ids, motion_text
from animegamer_rt.stages.prompt import HistoryTurn
from animegamer_rt.state.game import STRENGTHS, Instruction

from .figures import PARTS, START_PARTS, Figures

SEED = 0
GAME_TURNS = 2
"""Instructions are played as games of two turns, so that half of the prompts contain an earlier shot."""


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """Sample sizes: instructions for the predictor, turns for other parts, by `plan` (see `open_with_plan`)."""

    instructions: int = 200
    turns: int = 4
    plan: str | None = None


@dataclass(frozen=True, slots=True)
class _Pair:
    """The bundle under test and its reference, both loaded."""

    tried: Pipeline
    true: Pipeline
    tried_bundle: Bundle
    true_bundle: Bundle
    true_engines: Engines


def compare(bundle: Bundle, against: Bundle, amount: SampleCounts, parts: Sequence[str] = ()) -> dict[str, Figures]:
    """Errors and bytes of each part that differs, or of the named `parts`.

    Raises BundleError if the bundles differ in geometry or sizes, or if no part differs.
    """
    if bundle.manifest.geometry != against.manifest.geometry or bundle.manifest.sizes != against.manifest.sizes:
        raise BundleError("the bundles differ in size", where=bundle.folder, expected=f"that of {against.folder}")
    both = [name for name in START_PARTS if name in bundle.manifest.parts and name in against.manifest.parts]
    parts = parts or [name for name in (*PARTS, *both) if _files(bundle, name) != _files(against, name)]
    if not parts:
        found, do = f"those of {against.folder}", "name the parts with --parts to compare equal ones"
        raise BundleError("the bundles' parts are identical", where=bundle.folder, found=found, do=do)
    compared: dict[str, Callable[[], Figures]] = {
        name: partial(_starting, name, bundle, against, amount) for name in parts if name in START_PARTS
    }
    if set(parts) & set(PARTS):
        pair = _open_pair(bundle, against, amount, parts)
        compared |= {PREDICTOR: partial(_predictor, pair, amount), DENOISER: partial(_denoiser, pair, amount)}
        compared[VAE] = partial(_vae, pair, amount)
    return {
        name: {
            "precision": bundle.manifest.parts[part_names(bundle, name)[0]].precision,
            "against": against.manifest.parts[part_names(against, name)[0]].precision,
            **compared[name](),
            "bytes": part_bytes(bundle, name),
            "bytes_before": part_bytes(against, name),
        }
        for name in parts
    }


def _open_pair(bundle: Bundle, against: Bundle, amount: SampleCounts, parts: Sequence[str]) -> _Pair:
    engines = open_engines(against, EngineConfig("cpu-fp32"), plan=EXACT)
    tried = engines if tuple(parts) == (DENOISER,) else open_engines(bundle, EngineConfig("cpu-fp32"), plan=EXACT)
    if DENOISER in parts:
        # An exact session; the runtime's may fuse operators (see plain_options).
        tried = replace(tried, denoiser=RecordingDenoiser(bundle.part_path(DENOISER), record=False))
    # Both play the reference's plan: a quantised bundle has only `exact` until its plans are measured.
    true = open_with_plan(against, engines, against, amount.plan)
    return _Pair(open_with_plan(bundle, tried, against, amount.plan), true, bundle, against, engines)


def part_bytes(bundle: Bundle, name: str) -> int:
    """Bytes of a part's graphs and weights."""
    return sum(bundle.manifest.files[file].bytes for file in _files(bundle, name))


def _files(bundle: Bundle, name: str) -> dict[str, str]:
    parts = [bundle.manifest.parts[part] for part in part_names(bundle, name)]
    files = [file for part in parts for file in (part.file, *part.data_files)]
    return {file: bundle.manifest.files[file].sha256 for file in files}


def _predictor(pair: _Pair, amount: SampleCounts) -> Figures:
    return predictor_figures(pair.tried, pair.true, amount)


def predictor_figures(tried: Pipeline, reference: Pipeline, amount: SampleCounts) -> Figures:
    """Errors of shots, and share of equal strengths, for the same prompts with the reference's earlier shots."""
    errors, equal_states, equal_strengths = [], 0, 0
    history: list[HistoryTurn] = []
    world = reference.bundle.manifest.world
    for number, text in enumerate(sample_instructions(world, amount.instructions, SEED)):
        if number % GAME_TURNS == 0:
            history = []
        instruction = Instruction.parse(text)
        expected = reference.predictor.predict(history, instruction)
        found = tried.predictor.predict(history, instruction)
        errors.append(relative_error(found.shot, expected.shot))
        equal_states += found.game_state == expected.game_state
        equal_strengths += sum(
            getattr(found.game_state, name) == getattr(expected.game_state, name) for name in STRENGTHS
        )
        history.append(HistoryTurn(text, expected.game_state, expected.shot.astype(np.float16)))
    return {
        "instructions": amount.instructions,
        "shot_relative_error": _mean(errors),
        "shot_relative_error_max": round(max(errors), 6),
        "four_strengths_equal": equal_states,
        "strengths_equal": equal_strengths,
    }


def _denoiser(pair: _Pair, amount: SampleCounts) -> Figures:
    """Errors of single steps from the reference's states (x0), and of whole turns, decoded by the reference's vae."""
    recorded = RecordingDenoiser(pair.true_bundle.part_path(DENOISER))
    engines = replace(pair.true_engines, denoiser=recorded)
    pipeline = open_with_plan(pair.true_bundle, engines, pair.true_bundle, amount.plan)
    latents, decibels = [], []
    for turn in _turns(pipeline, amount):
        latent, tried = denoise_turn(pipeline.denoiser, turn), denoise_turn(pair.tried.denoiser, turn)
        latents.append(relative_error(tried, latent))
        decibels.append(psnr(_decode(pair.true, tried), _decode(pair.true, latent)))
    session = open_plain(pair.tried_bundle.part_path(DENOISER))
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
    """Errors of the frames of the reference's latents."""
    decibels, largest = [], 0
    for turn in _turns(pair.true, amount):
        latent = denoise_turn(pair.true.denoiser, turn)
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
    """Errors of a tower's features for texts or noise, or of the encoder's shots for the reference's features."""
    feeds = list(_starting_feeds(part, against, amount))
    true, tried = _answers(against, part, feeds), _answers(bundle, part, feeds)
    errors = [relative_error(one, other) for one, other in zip(tried, true, strict=True)]
    output = "shot" if part == ENCODER else "features"
    worst = {f"{output}_relative_error_max": round(max(errors), 6)}
    return {"inputs": len(feeds), f"{output}_relative_error": _mean(errors), **worst}


def _starting_feeds(part: str, against: Bundle, amount: SampleCounts) -> Iterator[dict[str, npt.NDArray[Any]]]:
    if part == ENCODER:
        names = {"text_features": "text_tower", "image_features": "image_tower"}
        features = (_answers(against, tower, _starting_feeds(tower, against, amount)) for tower in names.values())
        yield from (dict(zip(names, both, strict=True)) for both in zip(*features, strict=True))
        return
    for number, text in enumerate(sample_instructions(against.manifest.world, amount.turns, SEED)):
        if part == "text_tower":
            tokens = against.manifest.parts[part].inputs["ids"]["shape"][1]
            yield {"ids": motion_ids(against, motion_text(text), tokens)}
        else:
            random = np.random.default_rng(SEED + number)
            shape = against.manifest.parts[part].inputs["picture"]["shape"]
            yield {"picture": random.uniform(-1, 1, shape).astype(np.float32)}


def _answers(bundle: Bundle, part: str, feeds: Iterable[Mapping[str, npt.NDArray[Any]]]) -> list[FloatArray]:
    session = PartSession(bundle, part)
    return [session.run(session.outputs, given)[0] for given in feeds]


def _turns(pipeline: Pipeline, amount: SampleCounts) -> list[TurnInput]:
    return predict_first_turns(pipeline, sample_instructions(pipeline.bundle.manifest.world, amount.turns, SEED), SEED)


def _decode(pipeline: Pipeline, latent: FloatArray) -> Frames:
    return np.stack(list(pipeline.vae.decode(latent)))


def _mean(errors: Sequence[float]) -> float:
    return round(float(np.mean(errors)), 6)
