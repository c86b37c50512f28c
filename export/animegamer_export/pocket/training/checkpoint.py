"""One file of trained weights a phase, with a few figures beside them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn


def save(path: Path, *modules: tuple[str, nn.Module], **facts: object) -> None:
    """Write the modules' weights and the facts about them; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {name: module.state_dict() for name, module in modules}
    whole["facts"] = {"json": json.dumps(facts)}
    unfinished = path.with_suffix(".part")
    torch.save(whole, unfinished)
    unfinished.replace(path)


def load(path: Path, *modules: tuple[str, nn.Module]) -> dict[str, object]:
    """Load weights saved by `save` into the modules; gives back the facts."""
    whole = torch.load(path, weights_only=True, map_location="cpu")
    for name, module in modules:
        module.load_state_dict(whole[name])
    facts: dict[str, object] = json.loads(whole["facts"]["json"])
    return facts
