"""The tiny networks of a folder of fixtures, exported in float32 and quantised: their outputs against torch.

Random weights: no outliers and no redundancy, so the errors are those of arithmetic alone, without what training made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from animegamer_export.denoiser import INPUTS, OUTPUTS, example_step, export_denoiser
from animegamer_export.open_graph import open_graph
from animegamer_export.parity.diffusion import networks
from animegamer_export.parity.fixtures import open_folder
from animegamer_export.parity.language import predictors
from animegamer_export.predictor import example_prompt, export_predictor, feeds, read
from animegamer_export.quantize.blocks import relative_error
from animegamer_export.quantize.calibrate import Feeds, activations
from animegamer_export.quantize.graph import matrices
from animegamer_export.quantize.keep import keep_rule
from animegamer_export.quantize.scheme import scheme
from animegamer_export.quantize.smooth import ranges
from animegamer_export.quantize.turns import open_plain
from animegamer_export.quantize.weights import rewrite, weight_of
from animegamer_rt.models.step import DenoiserStep
from animegamer_rt.readouts import Prompt

PREDICTOR, DENOISER = "mllm_1turn_a", "dit_step_a"
# Blocks of 32: the tiny networks' widths are no multiples of 64.
PREDICTOR_SCHEMES = (("int8", 32), ("nf4", 32), ("int4", 32), ("int4-qdq", 32))
DENOISER_SCHEMES = (("int8", 32), ("int8-qdq", None), ("w8a8", None), ("fp8", None))
CALIBRATION = 3


@torch.no_grad()
def golden_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """{part, precision, error of the output against float32 in torch, mean error of the weights}, one after another."""
    sets = open_folder(folder)
    predictor = predictors(sets, sets.sets[PREDICTOR])["factors merged"]
    prompt = example_prompt(predictor, history_turns=2)
    assert prompt.history is not None
    past = read(predictor, Prompt(None, prompt.history, 2))[2:]
    given = feeds(prompt.turn, past)
    shot = predictor.answer(**given)[0]
    runs = [{name: value.numpy() for name, value in given.items()}]
    with tempfile.TemporaryDirectory() as work:
        export_predictor(predictor, Path(work), "fp32")
        source = Path(work) / "predictor.onnx"
        yield from _rows("predictor", source, PREDICTOR_SCHEMES, runs, runs, "shot", [shot])
    denoiser, encoder = networks(sets, sets.sets[DENOISER])
    reference = DenoiserStep(denoiser, encoder.unconditional()).eval()
    steps = [example_step(denoiser, [0, 1], 0.0, seed) for seed in range(CALIBRATION + 1)]
    runs = [{name: value.numpy() for name, value in zip(INPUTS, step, strict=True)} for step in steps]
    x0 = dict(zip(OUTPUTS, reference(*steps[0]), strict=True))["x0"]
    with tempfile.TemporaryDirectory() as work:
        export_denoiser(denoiser, encoder.unconditional(), Path(work), "fp32", attention="onnxruntime")
        source = Path(work) / "denoiser.onnx"
        yield from _rows("denoiser", source, DENOISER_SCHEMES, runs[:1], runs[1:], "x0", [x0])


def _rows(
    part: str,
    source: Path,
    schemes: Sequence[tuple[str, int | None]],
    runs: Sequence[Feeds],
    calibration: Sequence[Feeds],
    output: str,
    expected: Sequence[torch.Tensor],
) -> Iterator[dict[str, Any]]:
    keep = keep_rule(part)
    for name, block in schemes:
        chosen, measured = scheme(name, block), None
        if chosen.calibrated:
            seen = activations(source, calibration, keep)
            found = [one for one in matrices(open_graph(source)) if one.name in seen]
            measured = {one.name: ranges(weight_of(one), seen[one.name], chosen) for one in found}
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / source.name
            report = rewrite(source, target, chosen, keep, measured)
            session = open_plain(target)
            errors = [
                relative_error(session.run([output], dict(feeds))[0], true.numpy())
                for feeds, true in zip(runs, expected, strict=True)
            ]
            del session
        precision = name if block is None else f"{name}, blocks of {block}"
        error = sum(errors) / len(errors)
        yield {"part": part, "precision": precision, "error": error, "weight_error": report.mean_error}
