"""Claims about how modules become ONNX files: weights once, half precision only where exact."""

from __future__ import annotations

from pathlib import Path

import onnx
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


def test_two_graphs_hold_their_weights_once_and_in_half_precision(folder: Path) -> None:
    assert (folder / "both.weights").stat().st_size == 64 * 64 * 2
    model = onnx.load(folder / "twice.onnx", load_external_data=False)
    stored = [tensor for tensor in model.graph.initializer if len(tensor.dims) == 2]
    assert [tensor.data_type for tensor in stored] == [onnx.TensorProto.FLOAT16]
    assert not any(
        tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in model.graph.initializer if len(tensor.dims) == 1
    )


def test_parts_agree_with_torch_for_any_length_of_a_dynamic_axis(folder: Path, linear: nn.Linear) -> None:
    errors = check_outputs(folder, [("once", case(linear, 1.0, 1)), ("twice", case(linear, 2.0, 7))], 1e-5)
    assert set(errors) == {"once: 1 rows", "twice: 7 rows"}
    assert max(errors.values()) < 1e-5


def test_a_part_that_computes_something_else_is_refused(folder: Path, linear: nn.Linear) -> None:
    with pytest.raises(BundleError, match=r"twice\.onnx: the part does not compute what the network does: y"):
        check_outputs(folder, [("twice", case(linear, 2.01, 2))], 1e-5)


def test_a_part_names_its_axes_and_no_source_file(folder: Path, graphs: list[Graph], tmp_path: Path) -> None:
    parts = write(tmp_path, graphs[:1], "both.weights")
    assert parts["once"].inputs == {"x": {"dtype": "float32", "shape": ["rows", 64]}}
    assert parts["once"].outputs == {"y": {"dtype": "float32", "shape": ["rows", 64]}}
    written = (tmp_path / "once.onnx").read_bytes()
    assert b".py" not in written and str(Path(__file__).parent).encode() not in written
    assert written == (folder / "once.onnx").read_bytes()  # the same bytes at every export


def test_weights_that_half_precision_would_change_stay_whole(tmp_path: Path) -> None:
    torch.manual_seed(0)
    whole = nn.Linear(32, 32).eval()
    write(tmp_path, [Graph("part", whole, {"x": torch.randn(2, 32)}, ("y",))], "part.weights")
    assert (tmp_path / "part.weights").stat().st_size == 32 * 32 * 4
