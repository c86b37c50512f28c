"""Exports the tiny networks of a folder of fixtures in float32, quantises them, and compares their outputs with torch.

Their weights are random, without the outliers and redundancy of trained ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from animegamer_export.evaluate.metrics import relative_error
from animegamer_export.onnx_io.read import open_graph
from animegamer_export.onnx_io.sessions import Feeds, open_plain
from animegamer_export.parity.diffusion import networks
from animegamer_export.parity.fixtures import open_folder
from animegamer_export.parity.language import predictors
from animegamer_export.parts.denoiser import INPUTS, OUTPUTS, example_step, export_denoiser
from animegamer_export.parts.predictor import example_prompt, export_predictor, feeds, read_prompt
from animegamer_export.parts.streamed.write import write_streamed
from animegamer_export.quantize.exclusions import fp16_exclusions
from animegamer_export.quantize.graph import matrices
from animegamer_export.quantize.ranges import record_activations
from animegamer_export.quantize.scheme import scheme
from animegamer_export.quantize.smoothing import activation_ranges
from animegamer_export.quantize.weights import read_weight, rewrite
from animegamer_export.towers.parts import text_tower_part
from animegamer_export.towers.text import TextTower, TextTowerSize
from animegamer_rt.models.denoiser_step import DenoiserStep
from animegamer_rt.stages.readouts import Prompt

PREDICTOR, DENOISER = "mllm_1turn_a", "dit_step_a"
# Blocks of 32: the tiny networks' widths are no multiples of 64.
PREDICTOR_SCHEMES = (("fp16", None), ("int8", 32), ("nf4", 32), ("int4", 32), ("int4-qdq", 32))
DENOISER_SCHEMES = (("fp16", None), ("int8", 32), ("int8-qdq", None), ("w8a8", None), ("fp8", None))
TEXT_SCHEMES = (("int8", None), ("fp16", None))
TEXT_SIZE = TextTowerSize(hidden=64, layers=3, heads=4, head_width=16, mlp=128, vocabulary=300)
CALIBRATION = 3


@torch.no_grad()
def fixture_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields rows: part, precision, errors of outputs against torch in float32, mean error of the weights.

    A predictor's row also says whether the most likely token is the same.
    """
    sets = open_folder(folder)
    predictor = predictors(sets, sets.sets[PREDICTOR])["factors merged"]
    prompt = example_prompt(predictor, history_turns=2)
    assert prompt.history is not None
    past = read_prompt(predictor, Prompt(None, prompt.history, 2))[2:]
    given = feeds(prompt.turn, past)
    shot, logits = predictor.answer(**given)[:2]
    run = {name: value.numpy() for name, value in given.items()}
    with tempfile.TemporaryDirectory() as work:
        export_predictor(predictor, Path(work), "fp32")
        source = Path(work) / "predictor.onnx"
        yield from _rows("predictor", source, PREDICTOR_SCHEMES, run, [run], {"shot": shot, "logits": logits})
    denoiser, encoder = networks(sets, sets.sets[DENOISER])
    reference = DenoiserStep(denoiser, encoder.unconditional()).eval()
    steps = [example_step(denoiser, [0, 1], 0.0, seed) for seed in range(CALIBRATION + 1)]
    runs = [{name: value.numpy() for name, value in zip(INPUTS, step, strict=True)} for step in steps]
    true = dict(zip(OUTPUTS, reference(*steps[0]), strict=True))
    with tempfile.TemporaryDirectory() as work:
        export_denoiser(denoiser, encoder.unconditional(), Path(work), "fp32", attention="onnxruntime")
        source = Path(work) / "denoiser.onnx"
        outputs = {name: true[name] for name in ("x0", "next_latent")}
        yield from _rows("denoiser", source, DENOISER_SCHEMES, runs[0], runs[1:], outputs)
    yield from _text_tower_rows()


def _text_tower_rows() -> Iterator[dict[str, Any]]:
    """A tiny T5 of random weights; the fixtures have none."""
    torch.manual_seed(0)
    tower = TextTower(TEXT_SIZE).eval()
    tower.relative_bias.normal_()
    weights: Any = _InMemoryWeights(tower.state_dict())
    ids = torch.arange(TEXT_SIZE.tokens)[None] * 7 % TEXT_SIZE.vocabulary
    with tempfile.TemporaryDirectory() as work:
        write_streamed(Path(work), text_tower_part(TEXT_SIZE, weights), "fp32")
        source, run = Path(work) / "text_tower.onnx", {"ids": ids.numpy()}
        yield from _rows("text_tower", source, TEXT_SCHEMES, run, [], {"text_features": tower(ids)})


@dataclass(frozen=True, slots=True)
class _InMemoryWeights:
    """Weights in memory."""

    state: dict[str, torch.Tensor]

    def merged(self, parameter: str, dtype: torch.dtype) -> torch.Tensor:
        return self.state[parameter].to(dtype)


def _rows(
    part: str,
    source: Path,
    schemes: Sequence[tuple[str, int | None]],
    run: Feeds,
    calibration: Sequence[Feeds],
    expected: Mapping[str, torch.Tensor],
) -> Iterator[dict[str, Any]]:
    exclude = fp16_exclusions(part)
    for name, block in schemes:
        chosen, measured = scheme(name, block), None
        if chosen.calibrated:
            seen = record_activations(source, calibration, exclude)
            matched = [one for one in matrices(open_graph(source)) if one.name in seen]
            measured = {one.name: activation_ranges(read_weight(one), seen[one.name], chosen) for one in matched}
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / source.name
            report = rewrite(source, target, chosen, exclude, measured)
            session = open_plain(target)
            found = dict(zip(expected, session.run(list(expected), dict(run)), strict=True))
            del session
        errors = {name: relative_error(found[name], true.numpy()) for name, true in expected.items()}
        row: dict[str, Any] = {"part": part, "errors": errors, "weight_error": report.mean_error}
        if "logits" in expected:
            row["same_token"] = bool(found["logits"].argmax() == expected["logits"].argmax())
        precision = name if block is None else f"{name}, blocks of {block}"
        yield {**row, "precision": precision}
