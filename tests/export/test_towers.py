"""T5 and CLIP towers from files as transformers and open_clip write them: equal to those, whole, refused where not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import T5Config, T5EncoderModel, T5ForConditionalGeneration

import fakes
from animegamer_export.large.parts import LargePart
from animegamer_export.large.write import write_large
from animegamer_export.towers import image_tower_part, open_image_tower, open_text_tower, text_tower_part
from animegamer_export.towers.bundle import add_towers
from animegamer_export.towers.image import MEAN, STD, ImageTower
from animegamer_export.towers.text import TextTower
from animegamer_rt.backends.onnxruntime import open_engines, open_towers
from animegamer_rt.bundle import Bundle, write_manifest
from animegamer_rt.clip import write_png
from animegamer_rt.errors import BundleError, CheckpointError
from animegamer_rt.manifest import Part
from animegamer_rt.picture import prepare
from animegamer_rt.start import first_turn, motion_ids, read_start

IDS = torch.tensor([[5, 9, 200, 17, 3, 1, *([0] * 24)]])


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def t5_config(width: int = 32, heads: int = 4) -> T5Config:
    return T5Config(
        d_model=width, d_kv=8, d_ff=48, num_layers=3, num_decoder_layers=1, num_heads=heads, vocab_size=300,
        feed_forward_proj="gated-gelu", dropout_rate=0.0,
    )  # fmt: skip


def write_t5(folder: Path, width: int = 32, heads: int = 4) -> T5EncoderModel:
    """A T5 folder as transformers writes it, with the tokenizer's file; the library's own model of it."""
    torch.manual_seed(3)
    model = T5EncoderModel(t5_config(width, heads)).eval()
    model.save_pretrained(folder)
    (folder / "spiece.model").write_bytes(fakes.tokenizer_model())
    return model


class OpenClipBlock(nn.Module):
    """A block with open_clip's names, its attention torch's own."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(width, 4 * width))
        self.mlp.add_module("gelu", nn.GELU())
        self.mlp.add_module("c_proj", nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.ln_1(x)
        x = x + self.attn(hidden, hidden, hidden, need_weights=False)[0]
        changed: Tensor = x + self.mlp(self.ln_2(x))
        return changed


class OpenClipVision(nn.Module):
    """open_clip's vision transformer, by its names, giving what comes out of the last block but one."""

    def __init__(self, width: int, heads: int, layers: int, patch: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, patch, stride=patch, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(width))
        self.positional_embedding = nn.Parameter(torch.randn(197, width))
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.ModuleList(OpenClipBlock(width, heads) for _ in range(layers))
        self.proj = nn.Parameter(torch.randn(width, 6))

    def forward(self, picture: Tensor) -> Tensor:
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
        tokens = self.conv1(((picture + 1) / 2 - mean) / std).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(1, 1, -1), tokens], 1) + self.positional_embedding
        x = self.ln_pre(x)
        for block in list(self.transformer.resblocks)[:-1]:
            x = block(x)
        return x[:, 1:]


def write_open_clip(folder: Path, width: int = 16, head_width: int = 8, patch: int = 4) -> OpenClipVision:
    """A folder as open_clip's on the hub: its config, and one file of both of CLIP's towers."""
    torch.manual_seed(4)
    vision = OpenClipVision(width, width // head_width, 3, patch).eval()
    tensors = {f"visual.{name}": value.detach().clone() for name, value in vision.state_dict().items()}
    tensors |= {"logit_scale": torch.tensor(2.0), "positional_embedding": torch.randn(7, 6)}
    tensors |= {"transformer.resblocks.0.ln_1.weight": torch.ones(6), "token_embedding.weight": torch.randn(9, 6)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "open_clip_model.safetensors")
    vision_cfg = {"image_size": 14 * patch, "layers": 3, "width": width, "head_width": head_width, "patch_size": patch}
    config = {"model_cfg": {"embed_dim": 6, "vision_cfg": vision_cfg, "text_cfg": {}}, "preprocess_cfg": {}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return vision


def whole(module: nn.Module, merged: Callable[[str, torch.dtype], Tensor]) -> nn.Module:
    module.load_state_dict({name: merged(name, torch.float32) for name in module.state_dict()})
    return module.eval()


def run(folder: Path, part: LargePart, inputs: dict[str, np.ndarray], precision: str = "fp32") -> np.ndarray:
    """The part's answer in onnxruntime, written as a full-size export writes it."""
    written = write_large(folder, part, precision)
    (name,) = written
    session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, inputs)
    return np.asarray(answer)


@torch.no_grad()
def test_text_tower_is_the_librarys_encoder(tmp_path: Path) -> None:
    expected = write_t5(tmp_path / "t5")(input_ids=IDS).last_hidden_state
    size, weights = open_text_tower(tmp_path / "t5")
    assert (size.hidden, size.layers, size.heads, size.head_width, size.mlp) == (32, 3, 4, 8, 48)
    found = whole(TextTower(size), weights.merged)(IDS)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    in_onnx = run(tmp_path / "onnx", text_tower_part(tmp_path / "t5"), {"ids": IDS.numpy()})
    np.testing.assert_allclose(in_onnx, expected.numpy(), atol=1e-5)
    halved = run(tmp_path / "half", text_tower_part(tmp_path / "t5"), {"ids": IDS.numpy()}, "fp16")
    error = np.linalg.norm(halved - expected.numpy()) / np.linalg.norm(expected.numpy())
    assert 0 < error < 2e-3


@torch.no_grad()
def test_whole_t5_as_a_bin_file_is_read_for_its_encoder(tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = T5ForConditionalGeneration(t5_config()).eval()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    size, weights = open_text_tower(tmp_path)
    found = whole(TextTower(size), weights.merged)(IDS)
    torch.testing.assert_close(found, model.encoder(input_ids=IDS).last_hidden_state, atol=1e-5, rtol=1e-5)
    assert weights.recipe.dead["encoder.embed_tokens.weight"] == "the same as shared.weight"
    assert any(key.startswith("decoder.") for key in weights.recipe.dead)


@torch.no_grad()
def test_image_tower_is_the_last_block_but_one(tmp_path: Path) -> None:
    vision = write_open_clip(tmp_path / "clip")
    picture = torch.rand(1, 3, 56, 56) * 2 - 1
    expected = vision(picture)
    size, weights = open_image_tower(tmp_path / "clip")
    assert (size.side, size.heads, size.layers, size.mlp) == (56, 2, 3, 64)
    torch.testing.assert_close(whole(ImageTower(size), weights.merged)(picture), expected, atol=1e-5, rtol=1e-5)
    in_onnx = run(tmp_path / "onnx", image_tower_part(tmp_path / "clip"), {"picture": picture.numpy()})
    np.testing.assert_allclose(in_onnx, expected.numpy(), atol=1e-5)


ENCODER = """<ir_version: 9, opset_import: ["": 20]>
encoder (float[1, 30, 64] text_features, float[1, 196, 16] image_features) => (float[1, 226, 8] shot)
<int64[1] start = {0}, int64[1] eight = {8}, int64[1] last = {2}>
{
    text_shot = Slice(text_features, start, eight, last)
    image_shot = Slice(image_features, start, eight, last)
    shot = Concat<axis = 1>(text_shot, image_shot)
}"""


def tiny_bundle(folder: Path) -> Bundle:
    """The tiny bundle with an encoder for towers of widths 64 and 16: the first eight features of each token."""
    bundle = fakes.write_bundle(folder)
    onnx.save(onnx.parser.parse_model(ENCODER), folder / "encoder.onnx")
    inputs = {
        "text_features": {"dtype": "float32", "shape": [1, 30, 64]},
        "image_features": {"dtype": "float32", "shape": [1, 196, 16]},
    }
    parts = dict(bundle.manifest.parts) | {"encoder": Part("encoder.onnx", "fp32", inputs=inputs)}
    return write_manifest(folder, replace(bundle.manifest, parts=parts))


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@torch.no_grad()
def test_game_starts_with_the_full_towers_of_a_bundle(tmp_path: Path, precision: str) -> None:
    model, vision = write_t5(tmp_path / "t5", 64, 8), write_open_clip(tmp_path / "clip")
    bundle = add_towers(tiny_bundle(tmp_path / "tiny").folder, tmp_path / "t5", tmp_path / "clip", precision)
    assert bundle.manifest.parts["text_tower"].precision == precision
    assert bundle.manifest.motion_tokenizer.end == 1 and "motion.model" in bundle.manifest.files
    assert not (bundle.folder / ".towers").exists()
    source = np.random.default_rng(3).integers(0, 256, (56, 84, 3), np.uint8)
    write_png(tmp_path / "start.png", source)
    towers, encoder = open_towers(bundle, threads=1), open_engines(bundle, threads=1).encoder
    assert encoder is not None and (towers.tokens, towers.height, towers.width) == (30, 56, 56)
    turn = first_turn(bundle, read_start(bundle, 2, tmp_path / "start.png", "gently wave"), towers, encoder)
    ids = motion_ids(bundle, "gently wave", 30)
    assert ids[0].tolist().index(1) > 0 and ids[0, -1] == 0
    expected = model(input_ids=torch.from_numpy(ids)).last_hidden_state[0, :, :8].numpy()
    error = np.linalg.norm(turn.shot[:30] - expected) / np.linalg.norm(expected)
    assert (1e-3 < error < 0.05) if precision == "int8" else error < 3e-3
    features = vision(torch.from_numpy(prepare(source, 56, 56, 1.5)))[0, :, :8].numpy()
    np.testing.assert_allclose(turn.shot[30:], features, rtol=0.02, atol=0.02)


def test_towers_of_another_width_are_refused_and_leave_the_bundle_as_it_was(tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "tiny")
    before = {path.name: path.read_bytes() for path in bundle.folder.iterdir()}
    write_t5(tmp_path / "t5", 8, 1)
    write_open_clip(tmp_path / "clip")
    with pytest.raises(CheckpointError, match=r"text_features \(found \[1, 30, 8\], expected \[1, 30, 64\]\)"):
        add_towers(bundle.folder, tmp_path / "t5", tmp_path / "clip")
    (tmp_path / "t5" / "spiece.model").unlink()
    with pytest.raises(CheckpointError, match=r"spiece\.model: no such file"):
        add_towers(bundle.folder, tmp_path / "t5", tmp_path / "clip")
    assert {path.name: path.read_bytes() for path in bundle.folder.iterdir()} == before


def test_bundle_without_an_encoder_is_refused(tmp_path: Path) -> None:
    write_t5(tmp_path / "t5", 8, 1)
    write_open_clip(tmp_path / "clip")
    plain = fakes.write_bundle(tmp_path / "plain")
    with pytest.raises(BundleError, match="no encoder for the towers"):
        add_towers(plain.folder, tmp_path / "t5", tmp_path / "clip")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "bert"}, r"config\.json: not a T5-v1\.1 model: model_type 'bert'"),
        ({"feed_forward_proj": "relu"}, "feed_forward_proj 'relu'"),
        ({"d_model": None}, "d_model is None"),
        ({"d_ff": 40}, r"misshapen .*\n.*wi_0\.weight \(found \[48, 32\], expected \[40, 32\]\)"),
        ({"num_layers": 4}, r"missing .*\n.*encoder\.block\.3\."),
        ({"num_layers": 2}, r"unexpected .*\n.*encoder\.block\.2\."),
    ],
)
def test_folder_of_another_model_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    write_t5(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=f"(?s){said}"):
        open_text_tower(tmp_path)


def test_open_clip_folder_without_weights_or_without_vision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither open_clip_model\.safetensors nor open_clip_pytorch_model\.bin"):
        open_image_tower(tmp_path)
    torch.save({"logit_scale": torch.tensor(1.0)}, tmp_path / "open_clip_pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"not an open_clip vision transformer(?s:.*)visual\.conv1\.weight"):
        open_image_tower(tmp_path)
