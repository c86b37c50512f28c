"""Bundles with a plan `x` that names parts of its own: copies of the bundle's denoiser and vae, or changed ones."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace

import onnx
import onnx.parser
from tiny_parts import PARTS

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import DENOISER, VAE, graph_names
from animegamer_rt.bundle.writer import write_manifest

OWN: Mapping[str, str] = {DENOISER: "denoiser_x", VAE: "vae_x"}
CHANGES = {"quarter = {0.25}": "quarter = {0.3}", "{0, 0, 0, 0, 1, 1, 1, 1}": "{0, 1, 0, 1, 0, 1, 0, 1}"}
"""Of the tiny graphs: another denoiser, and another second chunk."""


def add_plan(bundle: Bundle, like: str = "balanced", *, changed: bool = False) -> Bundle:
    """Writes the plan `x` into a bundle: the steps of `like`, played by copies of its graphs over the same weights.

    changed: of the tiny bundle, whose own graphs then give other frames.
    """
    parts = dict(bundle.manifest.parts)
    for role, part in OWN.items():
        for name, own in zip(graph_names(role), graph_names(role, part), strict=True):
            file = f"{own}.onnx"
            shutil.copy(bundle.part_path(name), bundle.folder / file)
            if changed:
                text = PARTS[name]
                for before, after in CHANGES.items():
                    text = text.replace(before, after)
                onnx.save(onnx.parser.parse_model(text), bundle.folder / file)
            parts[own] = replace(parts[name], file=file, int8_file="")
    entry = replace(bundle.manifest.plans[like], default=False, parts=OWN)
    plans = {**bundle.manifest.plans, "x": entry}
    return write_manifest(bundle.folder, replace(bundle.manifest, parts=parts, plans=plans))
