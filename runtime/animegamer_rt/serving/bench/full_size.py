"""A bundle of the published model's sizes without networks: enough for engines that only take time.

Knows sizes (docs/MODEL.md); takes words, plans and tokenizer from another bundle.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import RANDOM_WEIGHTS, Geometry
from animegamer_rt.bundle.writer import write_manifest

NAME = "full-size"
GEOMETRY = Geometry(height=480, width=720, latent_height=60, latent_width=90, shot_width=1920)


def write_full_size(folder: Path, model: Bundle) -> Bundle:
    """Write it into a new folder."""
    folder.mkdir(parents=True)
    manifest = model.manifest
    for name in (manifest.tokenizer.model, manifest.tokenizer.added_tokens):
        shutil.copy(model.path(name), folder / name)
    return write_manifest(
        folder,
        replace(
            manifest,
            name=NAME,
            description="sizes of the published model, no networks: to measure everything around the engines",
            origin=RANDOM_WEIGHTS,
            geometry=GEOMETRY,
            parts={},
            reader=None,
            files={},
            engines={},
            sizes={},
            quality={},
        ),
    )
