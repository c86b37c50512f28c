"""Adds the towers to a bundle that has an encoder: writes them beside its parts, then the manifest that names them.

It does not know networks. Nothing is taken for whole before the new manifest lies in its place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from animegamer_export.large.parts import LargePart
from animegamer_export.large.write import STORED, write_large
from animegamer_export.quantize.keep import keep_rule
from animegamer_export.quantize.scheme import scheme
from animegamer_export.quantize.weights import rewrite_together
from animegamer_export.towers.files import TOKENIZER, image_tower_part, motion_tokenizer, text_tower_part
from animegamer_rt.bundle import Bundle, load, write_manifest
from animegamer_rt.errors import BundleError, CheckpointError
from animegamer_rt.manifest import Part

MOTION_MODEL = "motion.model"
"""T5's sentencepiece file under the bundle's own name, apart from the prompt's."""
WORK = ".towers"


def add_towers(
    folder: Path,
    t5: Path,
    clip: Path,
    text_precision: str = "fp16",
    image_precision: str = "fp16",
    written: Callable[[int], None] | None = None,
) -> Bundle:
    """The bundle with its text and image towers. `written` is told of each weight's bytes.

    Precisions: fp32, fp16, bf16, or a scheme of weights (int8 for T5: its blocks' matrices; the embedding stays).
    Raises CheckpointError for files that are not the towers', BundleError for a bundle without a fitting encoder.
    """
    bundle = load(folder)
    parts, tokenizer = {"text_tower": text_tower_part(t5), "image_tower": image_tower_part(clip)}, t5 / TOKENIZER
    if not tokenizer.is_file():
        raise CheckpointError("no such file", where=tokenizer, do="take the tokenizer of google/t5-v1_1-xxl")
    work = folder / WORK
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        entries: dict[str, Part] = {}
        for (name, part), precision in zip(parts.items(), (text_precision, image_precision), strict=True):
            entries |= _write(work, name, part, precision, written)
        _check_fit(bundle, entries)
        shutil.copyfile(tokenizer, work / MOTION_MODEL)
        for path in sorted(path for path in work.iterdir() if path.is_file()):
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    manifest = replace(
        bundle.manifest,
        parts={**bundle.manifest.parts, **entries},
        motion_tokenizer=motion_tokenizer(t5, MOTION_MODEL),
    )
    return write_manifest(folder, manifest)


def _write(
    work: Path, name: str, part: LargePart, precision: str, written: Callable[[int], None] | None
) -> Mapping[str, Part]:
    if precision in STORED:
        return write_large(work, part, precision, written)
    chosen, base = scheme(precision), work / "base"
    entries = write_large(base, part, "fp16", written)
    rewrite_together([base / f"{name}.onnx"], work, part.weights_file, chosen, keep_rule(name))
    shutil.rmtree(base)
    return {key: replace(entry, precision=chosen.name) for key, entry in entries.items()}


def _check_fit(bundle: Bundle, towers: Mapping[str, Part]) -> None:
    if "encoder" not in bundle.manifest.parts:
        raise BundleError("the bundle has no encoder for the towers", where=bundle.folder, do="export it with encoder")
    wanted = bundle.manifest.parts["encoder"].inputs
    for part, feature in (("text_tower", "text_features"), ("image_tower", "image_features")):
        found, expected = towers[part].outputs[feature]["shape"], wanted[feature]["shape"]
        if list(found) != list(expected):
            raise CheckpointError(
                "the tower is not the one that the encoder was trained on",
                where=bundle.folder,
                misshapen={feature: (list(found), list(expected))},
                do="take google/t5-v1_1-xxl and laion/CLIP-ViT-B-16-laion2B-s34B-b88K",
            )
