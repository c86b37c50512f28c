"""Adds the reader to a pocket bundle, as a part with its words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from animegamer_export.onnx_io.write import Case, ExportResult, Graph, Precision, check_outputs, export_copy, write
from animegamer_export.pocket.world.scene import ADVERBS, CHARACTERS, MOTIONS, OUTFITS, PLACES, POSITIONS
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.stages.instruction_words import split_words, word_features

from .accuracy import no_scene
from .model import OUTPUTS, Reader

TOLERANCE = 2e-3
WORDS = ReaderWords(
    people=CHARACTERS,
    clothes=OUTFITS,
    clothes_words=("everyday clothes", "a raincoat", "party clothes"),
    motions=MOTIONS,
    manners=ADVERBS,
    places=PLACES,
    positions=tuple(POSITIONS),
    position_words=("on the left", "in the middle", "on the right"),
)
_EXAMPLE = "Tofi waves gently in the meadow, at night."


def export_reader(reader: Reader, folder: Path, precision: Precision = "fp16") -> ExportResult:
    """Write reader.onnx: features int64 [1, W, GRAMS] and scene int64 [1, 10] -> logits f32 of `OUTPUTS`."""
    reader = export_copy(reader, precision)
    inputs = {
        "features": torch.from_numpy(word_features(split_words(_EXAMPLE)))[None],
        "scene": torch.from_numpy(no_scene())[None],
    }
    with torch.no_grad():
        graph = Graph("reader", reader, inputs, OUTPUTS, {"features": {1: "words"}})
        parts = write(folder, [graph], "reader.weights", precision)
        case = Case("a sentence", inputs, dict(zip(OUTPUTS, reader(*inputs.values()), strict=True)))
        return ExportResult(parts, check_outputs(folder, [("reader", case)], TOLERANCE))


def add_reader(folder: Path, reader: Reader) -> Bundle:
    """Write the reader into a bundle's folder and name it in the manifest; the other parts stay as they are."""
    print(f"{(written := export_reader(reader, folder)).report()}", flush=True)
    manifest = load(folder).manifest
    return write_manifest(folder, replace(manifest, parts={**manifest.parts, **written.parts}, reader=WORDS))
