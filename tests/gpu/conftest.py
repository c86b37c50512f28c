"""Leaves out the tests marked `gpu` of this folder where PyTorch finds no NVIDIA GPU, and says how many."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    dropped = [item for item in items if HERE in item.path.parents and item.get_closest_marker("gpu")]
    items[:] = [item for item in items if item not in dropped]
    config.hook.pytest_deselected(items=dropped)
