"""Tiny T5 and CLIP folders as transformers and open_clip write them, and their libraries' own networks."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import T5Config, T5EncoderModel

import fakes
from animegamer_export.towers.image import MEAN, STD


def t5_config(width: int = 32, heads: int = 4) -> T5Config:
    return T5Config(
        d_model=width, d_kv=8, d_ff=48, num_layers=3, num_decoder_layers=1, num_heads=heads, vocab_size=300,
        feed_forward_proj="gated-gelu", dropout_rate=0.0,
    )  # fmt: skip


def write_t5(folder: Path, width: int = 32, heads: int = 4, seed: int = 3) -> T5EncoderModel:
    """A T5 folder as transformers writes it, with the tokenizer's file; the library's own model of it."""
    torch.manual_seed(seed)
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


def write_open_clip(
    folder: Path, width: int = 16, head_width: int = 8, patch: int = 4, seed: int = 4
) -> OpenClipVision:
    """A folder as open_clip's on the hub: its config, and one file of both of CLIP's towers."""
    torch.manual_seed(seed)
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
