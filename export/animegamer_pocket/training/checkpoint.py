"""One weights file per phase, with a few figures."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import torch
from torch import nn

from animegamer_export.distill.files import write_whole


def save(path: Path, *modules: tuple[str, nn.Module], **figures: object) -> None:
    """Saves the modules' weights and figures atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    saved = {name: module.state_dict() for name, module in modules}
    write_whole(path, partial(torch.save, {**saved, "facts": {"json": json.dumps(figures)}}))


def load(path: Path, *modules: tuple[str, nn.Module]) -> dict[str, object]:
    """Loads the weights saved by `save` into the modules; returns the figures."""
    saved = torch.load(path, weights_only=True, map_location="cpu")
    for name, module in modules:
        module.load_state_dict(saved[name])
    figures: dict[str, object] = json.loads(saved["facts"]["json"])
    return figures
