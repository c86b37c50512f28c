"""Claims about how modules become ONNX files: weights once, half precision only where exact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from animegamer_export.onnx_io.write import Case, Graph, check_outputs, round_to_fp16, write
from animegamer_rt.errors import BundleError


class Doubled(nn.Module):
    def __init__(self, linear: nn.Linear, factor: float) -> None:
        super().__init__()
        self.linear, self.factor = linear, factor

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.factor


@pytest.fixture(scope="module")
def linear() -> nn.Linear:
    torch.manual_seed(0)
    return round_to_fp16(nn.Linear(64, 64))


@pytest.fixture(scope="module")
def graphs(linear: nn.Linear) -> list[Graph]:
    x = torch.randn(3, 64)
    return [
        Graph(name, Doubled(linear, factor), {"x": x}, ("y",), {"x": {0: "rows"}})
        for name, factor in (("once", 1.0), ("twice", 2.0))
    ]


@pytest.fixture(scope="module")
def folder(graphs: list[Graph], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    write(folder, graphs, "both.weights")
    return folder


def case(linear: nn.Linear, factor: float, rows: int) -> Case:
    x = torch.randn(rows, 64)
    with torch.no_grad():
        return Case(f"{rows} rows", {"x": x}, {"y": linear(x) * factor})


def test_a_part_that_computes_something_else_is_refused(folder: Path, linear: nn.Linear) -> None:
    with pytest.raises(BundleError, match=r"twice\.onnx: outputs of onnxruntime and torch differ: y"):
        check_outputs(folder, [("twice", case(linear, 2.01, 2))], 1e-5)


def test_a_part_names_its_axes_and_no_source_file(folder: Path, graphs: list[Graph], tmp_path: Path) -> None:
    parts = write(tmp_path, graphs[:1], "both.weights")
    assert parts["once"].inputs == {"x": {"dtype": "float32", "shape": ["rows", 64]}}
    assert parts["once"].outputs == {"y": {"dtype": "float32", "shape": ["rows", 64]}}
    written = (tmp_path / "once.onnx").read_bytes()
    assert b".py" not in written and str(Path(__file__).parent).encode() not in written
    assert written == (folder / "once.onnx").read_bytes()  # the same bytes at every export
