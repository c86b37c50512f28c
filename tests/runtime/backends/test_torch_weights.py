"""Files that do not hold the weights of a network are refused by what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from animegamer_rt.backends.torch import weight_names
from animegamer_rt.backends.torch.onnx_reader import Weight, read_weights
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.errors import BackendError
from animegamer_rt.models.encoder import Encoder, EncoderSize


def test_part_of_another_size_is_refused_by_the_weight_that_does_not_fit() -> None:
    with torch.device("meta"):
        other = Encoder(EncoderSize(text_width=48, image_width=32, hidden=32))
    weights = read_weights(open_bundle("pocket").part_path("encoder"))
    with pytest.raises(BackendError, match=r"do not fit the network: text_projection.0.weight .*; .*\(32, 48\)"):
        weight_names.load_encoder(other, weights, Tensor.float)


def test_files_that_are_no_onnx_or_are_cut_short_are_named(tmp_path: Path) -> None:
    for content in (b"", b"not onnx at all", b"\x3a\x7f\x0a"):
        (tmp_path / "part.onnx").write_bytes(content)
        with pytest.raises(BackendError, match=r"part\.onnx: the part cannot be read as ONNX"):
            read_weights(tmp_path / "part.onnx")
    data = tmp_path / "some.weights"
    data.write_bytes(bytes(100))
    weight = Weight("a.weight", (8, 8), 1, memoryview(b""), data, 0, 256)
    with pytest.raises(
        BackendError, match=r"some\.weights: .* bytes are missing; found a\.weight: 100 bytes; .* 256 b"
    ):
        weight.tensor()
