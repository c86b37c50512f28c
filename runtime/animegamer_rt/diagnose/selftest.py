"""`animegamer-rt selftest`: compares every part with onnxruntime's on the CPU, plays two turns, writes one JSON report.

Every part gets inputs from a fixed seed, not another part's output, so the part named in an error is the one that
fails.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from animegamer_rt.api import Player
from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.registry import open_engines, open_towers
from animegamer_rt.bundle.claims import claim_file
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.files import write_file
from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.manifest import EXACT
from animegamer_rt.bundle.roles import (
    DEFAULT_PARTS,
    DENOISER,
    ENCODER,
    IMAGE_TOWER,
    PLAY_ROLES,
    PREDICTOR,
    READER,
    TEXT_TOWER,
    VAE,
)
from animegamer_rt.engine_config import INT8_DEVICES, EngineConfig
from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.language.words import split_words, word_features
from animegamer_rt.play.instructions_file import example_script
from animegamer_rt.profiling.host import environment
from animegamer_rt.stages.image_start import motion_ids
from animegamer_rt.stages.predictor import prefill_prompt
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import GameState

REFERENCE = EngineConfig("cpu-fp32")
ALLOWED: Mapping[str, float] = {
    "cpu": 1e-3,
    "cpu-fp32": 1e-3,
    "cuda": 2e-2,
    "tensorrt": 2e-2,
    "rtx": 2e-2,
    "torch": 2e-2,
    "torch-cpu": 1e-3,
}
"""Largest relative error by device. float32: another order of operations. 16 bits: pocket's outputs differ by at most
0.003 when onnxruntime runs its graphs in half precision."""
EIGHT_BIT_ALLOWED = 0.1
"""For an 8-bit denoiser: after four steps pocket's differs from float32 by 0.02 in INT8, by 0.04 in FP8."""
HALF_ALLOWED = ALLOWED["torch"]
"""For a 16-bit part: pocket's differ by at most 0.007."""
STEPS = 4
SEED = 11
TURNS = 2
MOTION = "gently wave"
"""Input of the text tower."""
FAILED = 1
REPORT_FIELDS = frozenset({"format", "date", "machine", "software", "bundle", "device"})
"""Fields that identify a report."""

Array = npt.NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Check:
    """One output of one part: its relative error against the reference, and the allowed error."""

    output: str
    relative_error: float
    allowed: float

    @property
    def passed(self) -> bool:
        """False for NaN, too."""
        return self.relative_error <= self.allowed


def selftest(bundle_name: str, config: EngineConfig, out: Path) -> int:
    """Run, print and write `out`; 0 if every part agrees.

    Raises AnimeGamerError if the engines cannot be opened or a turn fails; `out` then has the error too.
    """
    bundle = open_bundle(bundle_name)
    report: dict[str, Any] = {
        **environment("onnxruntime", "tensorrt-rtx-cu13", "cuda-python", "torch"),
        "bundle": {"name": bundle.manifest.name, "fingerprint": bundle.fingerprint, "origin": bundle.manifest.origin},
        "device": config.device,
        "precision": config.precision,
        "attention": config.attention,
    }
    claim_file(out, "a report of selftest", _is_report, do="choose another name with --out")
    _write_report(out, report)  # fails before the work starts if it cannot be written
    try:
        passed = _run(bundle, config, report)
    except AnimeGamerError as error:
        report["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        _write_report(out, report)
        print(f"report: {out}")
    return 0 if passed else FAILED


def _is_report(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        report = read_json(path)
        return isinstance(report, dict) and REPORT_FIELDS <= report.keys()
    return False


def _write_report(path: Path, report: Mapping[str, Any]) -> None:
    write_file(path, (json.dumps(report, indent=1) + "\n").encode())


def answers(bundle: Bundle, engines: Engines) -> Iterator[tuple[str, Array, float]]:
    """(part.output, values, seconds of the call) of every engine, on inputs that depend only on the bundle's sizes."""
    geometry, random = bundle.manifest.geometry, np.random.default_rng(SEED)

    def noise(*shape: int) -> npt.NDArray[np.float32]:
        return random.standard_normal(shape, dtype=np.float32)

    shot = noise(geometry.shot_tokens, geometry.shot_width)
    latent = geometry.latent_shape

    prompt_builder = PromptBuilder.from_bundle(bundle)
    text = example_script(bundle.manifest.world)[0]
    prompt = prompt_builder.build(text, [HistoryTurn(text, GameState(1, 2, 3, 4), shot.astype(np.float16))])
    prefill, seconds = _timed(prefill_prompt, engines.predictor, prompt)
    yield f"{PREDICTOR}.shot", prefill.shot, seconds
    yield f"{PREDICTOR}.logits", prefill.logits, 0.0
    tokens = np.array([prompt_builder.strength_ids[3], *prompt_builder.between_slots[0]], np.int64)
    (logits, _), seconds = _timed(engines.predictor.extend, tokens, prefill.cache)
    yield f"{PREDICTOR}.next_logits", logits, seconds

    plan = DenoisePlan.from_dict(bundle.plan(EXACT))  # the plan that no search replaces
    denoising = engines.denoiser.start(noise(*latent), shot, 10.0)
    started = time.perf_counter()
    for step, coefficients in list(zip(plan, plan.coefficients(), strict=True))[:STEPS]:
        denoising.step(np.array(coefficients, np.float32), float(step.timestep), step.rows, noise(*latent))
    yield f"{engines.parts.denoiser}.latent", denoising.latent(), time.perf_counter() - started

    clip, (first_graph, next_graph) = noise(*latent), engines.parts.graphs(VAE)
    (first, caches), seconds = _timed(engines.vae.first, np.ascontiguousarray(clip[:, :3]), (0, 1, 2), False)
    yield f"{first_graph}.frames", first, seconds
    yield f"{next_graph}.frames", *_timed(engines.vae.next, np.ascontiguousarray(clip[:, 3:]), caches, (0, 1, 2), False)
    if engines.encoder is not None:
        inputs = bundle.manifest.parts[ENCODER].inputs
        features = [noise(*inputs[name]["shape"]) for name in ("text_features", "image_features")]
        yield f"{ENCODER}.shot", *_timed(engines.encoder.encode, *features)
    if engines.reader is not None and bundle.manifest.reader is not None:
        scene = np.zeros((1, engines.reader.scene_numbers), np.int64)
        read, seconds = _timed(engines.reader.read, word_features(split_words(text))[None], scene)
        yield f"{READER}.logits", np.concatenate([getattr(read, name).ravel() for name in read.__slots__]), seconds


def _timed(call: Callable[..., T], *arguments: Any, **options: Any) -> tuple[T, float]:
    """What a call returns, and its seconds."""
    started = time.perf_counter()
    found = call(*arguments, **options)
    return found, time.perf_counter() - started


def tower_answers(bundle: Bundle, config: EngineConfig) -> Iterator[tuple[str, Array, float]]:
    """The same for the text and image towers, if the bundle has them."""
    if not {TEXT_TOWER, IMAGE_TOWER} <= bundle.manifest.parts.keys():
        return
    towers = open_towers(bundle, config)
    yield f"{TEXT_TOWER}.text_features", *_timed(towers.text, motion_ids(bundle, MOTION, towers.tokens))
    random = np.random.default_rng(SEED)
    picture = random.uniform(-1, 1, (1, 3, towers.height, towers.width)).astype(np.float32)
    yield f"{IMAGE_TOWER}.image_features", *_timed(towers.image, picture)


def own_answers(bundle: Bundle, config: EngineConfig) -> Iterator[tuple[str, Array, float]]:
    """The same for the parts that only some plans use."""
    seen = set(DEFAULT_PARTS.graphs(DENOISER) + DEFAULT_PARTS.graphs(VAE))
    for plan in bundle.manifest.plans:
        parts = bundle.parts_of(plan)
        fresh = {graph for role, _ in parts.own() for graph in parts.graphs(role)} - seen
        if fresh:
            seen |= fresh
            found = answers(bundle, open_engines(bundle, config, plan=plan))
            yield from (answer for answer in found if answer[0].partition(".")[0] in fresh)


def compare(found: Array, expected: Array) -> float:
    """Norm of the difference over the norm of `expected`; infinite if the shapes differ."""
    if found.shape != expected.shape:
        return float("inf")
    found, expected = found.astype(np.float32), expected.astype(np.float32)
    return float(np.linalg.norm(found - expected) / max(float(np.linalg.norm(expected)), 1e-12))


def _run(bundle: Bundle, config: EngineConfig, report: dict[str, Any]) -> bool:
    engines, seconds = _timed(open_engines, bundle, config, plan=EXACT)
    report["runs_on"], report["open_seconds"] = engines.device, round(seconds, 3)
    print(f"{bundle.manifest.name} on {engines.device}, compared with onnxruntime on the CPU in float32")
    reference = _reference(bundle)
    list(answers(bundle, engines))  # warm-up: a part's first call is slower
    print(f"{'part.output':<35}{'rel. error':>10}{'allowed':>10}{'seconds':>12}")
    report["parts"], passed = [], True
    others = chain(tower_answers(bundle, config), own_answers(bundle, config))
    for name, values, seconds in chain(answers(bundle, engines), others):
        check = Check(name, compare(values, reference[name]), allowed_error(bundle, config, name))
        passed &= check.passed
        row = {"relative_error": check.relative_error, "allowed": check.allowed, "passed": check.passed}
        report["parts"].append({"output": name, **row, "seconds": round(seconds, 4)})
        word = "ok" if check.passed else "WRONG"
        print(f"{name:<28}{word:<7}{check.relative_error:>10.1e}{check.allowed:>10.0e}{seconds:>12.3f}")
    report["turns"] = _turns(bundle, engines)
    report["passed"] = passed
    return passed


def allowed_error(bundle: Bundle, config: EngineConfig, output: str) -> float:
    """The relative error that one output may have."""
    part = output.partition(".")[0]
    if config.device in INT8_DEVICES and bundle.manifest.parts[part].int8_file:
        return EIGHT_BIT_ALLOWED
    if config.precision is None:
        return ALLOWED[config.device]
    denoisers = {bundle.parts_of(plan).denoiser for plan in bundle.manifest.plans}
    return EIGHT_BIT_ALLOWED if part in denoisers and config.precision in ("fp8", "int8") else HALF_ALLOWED


def _turns(bundle: Bundle, engines: Engines) -> list[dict[str, Any]]:
    default = engines.parts == bundle.parts_of()
    player = Player(bundle, engines, plan=bundle.default_plan if default else EXACT)
    game, plan, rows = player.start(SEED), player.pipeline.plan_name, []
    for text in example_script(bundle.manifest.world)[:TURNS]:
        clip = game.turn(text)
        stages = {name: round(getattr(clip.seconds, name), 4) for name in (*PLAY_ROLES, "total")}
        rows.append({"plan": plan, "frames": len(clip.frames), "seconds": stages})
        print(f"turn {len(rows)}, plan {plan}: {len(clip.frames)} frames in {clip.seconds.total:.2f} s")
    return rows


def _reference(bundle: Bundle) -> dict[str, Array]:
    """The outputs of onnxruntime on this machine's CPU, by name."""
    engines = open_engines(bundle, REFERENCE, plan=EXACT)
    found = chain(answers(bundle, engines), tower_answers(bundle, REFERENCE), own_answers(bundle, REFERENCE))
    return {name: values for name, values, _ in found}
