"""Measures the error of quantising one kind of weight alone: the evidence for `exclusions`.

A kind is a weight's name without the number of its block. The runs are single denoiser steps from the states of the
full precision, or prompts of the predictor.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from animegamer_export.evaluate.metrics import relative_error
from animegamer_export.onnx_io.read import open_graph
from animegamer_export.onnx_io.sessions import Feeds, open_plain
from animegamer_export.quantize.graph import matrices
from animegamer_export.quantize.ranges import record_activations
from animegamer_export.quantize.scheme import Scheme
from animegamer_export.quantize.weights import read_weight, rewrite

from .smoothing import activation_ranges


def weight_kind(name: str) -> str:
    """blocks.3.block.mlp_in.weight -> blocks.*.mlp_in."""
    bare = re.sub(r"blocks\.\d+\.(block\.)?", "blocks.*.", name).removesuffix(".weight")
    # The denoiser's graph holds queries, keys and values as weights.0, 1 and 2.
    named = dict(zip("012", ("query", "key", "value"), strict=True))
    return re.sub(r"weights\.(\d)$", lambda found: f"attention.{named.get(found[1], found[1])}", bare)


def error_by_kind(source: Path, scheme: Scheme, runs: Sequence[Feeds], output: str) -> Iterator[tuple[str, int, float]]:
    """Yields (kind, number of its weights, mean relative error of `output` over the runs)."""
    plain = open_plain(source)
    true = [plain.run([output], dict(feeds))[0] for feeds in runs]
    found = matrices(open_graph(source))
    measured = None
    if scheme.calibrated:
        seen = record_activations(source, runs, lambda name: False)
        measured = {one.name: activation_ranges(read_weight(one), seen[one.name], scheme) for one in found}
    for one in dict.fromkeys(weight_kind(matrix.name) for matrix in found):
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / source.name
            report = rewrite(source, target, scheme, lambda name, one=one: weight_kind(name) != one, measured)  # type: ignore[misc]
            session = open_plain(target)
            errors = [
                relative_error(session.run([output], dict(feeds))[0], expected)
                for feeds, expected in zip(runs, true, strict=True)
            ]
            del session
        yield one, len(report.errors), float(np.mean(errors))
