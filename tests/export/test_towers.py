"""T5 and CLIP towers from files as transformers and open_clip write them: equal to those, whole, refused where not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from tower_files import clip_features, t5_config, write_open_clip, write_t5

from animegamer_export.parts.streamed.parts import StreamedPart
from animegamer_export.parts.streamed.write import write_streamed
from animegamer_export.towers.files import open_image_tower, open_text_tower
from animegamer_export.towers.image import ImageTower
from animegamer_export.towers.parts import image_tower_part, open_towers, text_tower_part
from animegamer_export.towers.text import TextTower
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.encoder import EncoderSize

ENCODER_SIZE = EncoderSize(text_width=64, image_width=16, hidden=8)
IDS = torch.tensor([[5, 9, 200, 17, 3, 1, *([0] * 24)]])


def whole(module: nn.Module, merged: Callable[[str, torch.dtype], Tensor]) -> nn.Module:
    module.load_state_dict({name: merged(name, torch.float32) for name in module.state_dict()})
    return module.eval()


def run(folder: Path, part: StreamedPart, inputs: dict[str, np.ndarray], precision: str = "fp32") -> np.ndarray:
    """The part's answer in onnxruntime, written as a full-size export writes it."""
    (name,) = write_streamed(folder, part, precision)
    return answer(folder / f"{name}.onnx", inputs)


def answer(path: Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


@torch.no_grad()
def test_text_tower_is_the_librarys_encoder(tmp_path: Path) -> None:
    expected = write_t5(tmp_path / "t5")(input_ids=IDS).last_hidden_state
    size, weights = open_text_tower(tmp_path / "t5")
    assert (size.hidden, size.layers, size.heads, size.head_width, size.mlp) == (32, 3, 4, 8, 48)
    found = whole(TextTower(size), weights.merged)(IDS)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    in_onnx = run(tmp_path / "onnx", text_tower_part(size, weights), {"ids": IDS.numpy()})
    np.testing.assert_allclose(in_onnx, expected.numpy(), atol=1e-5)
    halved = run(tmp_path / "half", text_tower_part(size, weights), {"ids": IDS.numpy()}, "fp16")
    error = np.linalg.norm(halved - expected.numpy()) / np.linalg.norm(expected.numpy())
    assert 0 < error < 2e-3


@torch.no_grad()
def test_whole_t5_as_a_bin_file_is_read_for_its_encoder(tmp_path: Path) -> None:
    from transformers import T5ForConditionalGeneration

    torch.manual_seed(5)
    model = T5ForConditionalGeneration(t5_config()).eval()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    size, weights = open_text_tower(tmp_path)
    found = whole(TextTower(size), weights.merged)(IDS)
    torch.testing.assert_close(found, model.encoder(input_ids=IDS).last_hidden_state, atol=1e-5, rtol=1e-5)
    assert weights.weight_map.unused["encoder.embed_tokens.weight"] == "the same as shared.weight"
    assert any(key.startswith("decoder.") for key in weights.weight_map.unused)


@torch.no_grad()
def test_image_tower_is_the_librarys_last_block_but_one(tmp_path: Path) -> None:
    library = write_open_clip(tmp_path / "clip")
    picture = torch.rand(1, 3, 56, 56) * 2 - 1
    expected = clip_features(library, picture)
    size, weights = open_image_tower(tmp_path / "clip")
    assert (size.side, size.heads, size.layers, size.mlp) == (56, 2, 3, 64)
    torch.testing.assert_close(whole(ImageTower(size), weights.merged)(picture), expected, atol=1e-5, rtol=1e-5)
    in_onnx = run(tmp_path / "onnx", image_tower_part(size, weights), {"picture": picture.numpy()})
    np.testing.assert_allclose(in_onnx, expected.numpy(), atol=1e-5)


def test_towers_that_the_encoder_was_not_trained_on_are_refused(tmp_path: Path) -> None:
    write_t5(tmp_path / "t5", 8, 1)
    write_open_clip(tmp_path / "clip")
    with pytest.raises(CheckpointError, match=r"text features \(found \[30, 8\], expected \[30, 64\]\)"):
        open_towers(tmp_path / "t5", tmp_path / "clip", ENCODER_SIZE)
    with pytest.raises(CheckpointError, match=r"image features \(found \[196, 16\], expected \[196, 24\]\)"):
        open_towers(tmp_path / "t5", tmp_path / "clip", EncoderSize(text_width=8, image_width=24, hidden=8))
    (tmp_path / "t5" / "spiece.model").unlink()
    with pytest.raises(CheckpointError, match=r"spiece\.model: no such file"):
        open_towers(tmp_path / "t5", tmp_path / "clip", ENCODER_SIZE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "bert"}, r"config\.json: not a T5-v1\.1 model: model_type 'bert'"),
        ({"layer_norm_epsilon": "x"}, "layer_norm_epsilon is 'x', not a number above 0; download it again"),
        ({"d_ff": 40}, r"misshapen .*\n.*wi_0\.weight \(found \[48, 32\], expected \[40, 32\]\)"),
        ({"dense_act_fn": "relu"}, "not a T5-v1.1 model: .*dense_act_fn 'relu'"),
        ({"quantization_config": {"quant_method": "quanto"}}, "quantised weights: quantization_config names quanto"),
        ({"d_kv": 10**9}, r"d_kv \(found 1000000000, expected 1 to"),
        ({"num_layers": 4}, r"missing .*\n.*encoder\.block\.3\."),
    ],
)
def test_folder_of_another_model_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    write_t5(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=f"(?s){said}"):
        open_text_tower(tmp_path)


def test_other_open_clip_folders_are_refused(tmp_path: Path) -> None:
    def refused(said: str) -> None:
        with pytest.raises(CheckpointError, match=said):
            open_image_tower(tmp_path)

    refused(r"neither open_clip_model\.safetensors nor open_clip_pytorch_model\.bin")
    torch.save({"logit_scale": torch.tensor(1.0)}, tmp_path / "open_clip_pytorch_model.bin")
    refused(r"not an open_clip vision transformer(?s:.*)visual\.conv1\.weight")
    write_open_clip(tmp_path)
    path, config = tmp_path / "open_clip_model.safetensors", tmp_path / "open_clip_config.json"
    tensors, plain = load_file(path), config.read_text()
    config.write_text(json.dumps({"model_cfg": {"vision_cfg": {"head_width": 3}}}))
    refused(r"open_clip_config\.json: head width 3 does not divide width 16")
    config.write_text(json.dumps({"model_cfg": {"vision_cfg": {"ls_init_value": 0.1}}}))
    refused(r"of another kind(?s:.*)ls_init_value \(found 0\.1")
    config.write_text(json.dumps({**json.loads(plain), "preprocess_cfg": {"mean": [0.5, 0.5, 0.5]}}))
    refused(r"of another kind(?s:.*)mean \(found \[0\.5, 0\.5, 0\.5\], expected \[0\.48")
    config.write_text(plain)
    save_file({**tensors, "visual.conv1.weight": torch.zeros(3)}, path)
    refused(r"open_clip_model\.safetensors: not (?s:.*)conv1\.weight \(found \[3\], expected 4 axes\)")
