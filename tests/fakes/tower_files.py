"""Tiny T5 and CLIP folders as transformers and open_clip write them, and transformers' own networks of them.

Functions import transformers, which takes seconds: every process of the tests reads all test files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from counted_weights import scattered
from safetensors.torch import save_file
from torch import Tensor

import fakes
from animegamer_export.towers.image import MEAN, STD

if TYPE_CHECKING:
    from transformers import CLIPVisionModel, T5Config, T5EncoderModel


def t5_config(width: int = 32, heads: int = 4) -> T5Config:
    from transformers import T5Config

    return T5Config(
        d_model=width, d_kv=8, d_ff=48, num_layers=3, num_decoder_layers=1, num_heads=heads, vocab_size=300,
        feed_forward_proj="gated-gelu", dropout_rate=0.0,
    )  # fmt: skip


def write_t5(folder: Path, width: int = 32, heads: int = 4, seed: int = 3) -> T5EncoderModel:
    """A T5 folder as transformers writes it, with the tokenizer's file; the library's own model of it."""
    from transformers import T5EncoderModel

    torch.manual_seed(seed)
    model = T5EncoderModel(t5_config(width, heads)).eval()
    model.save_pretrained(folder)
    (folder / "spiece.model").write_bytes(fakes.tokenizer_model())
    return model


OPEN_CLIP = {
    r"^(\w+\.)?embeddings\.class_embedding": "class_embedding",
    r"^(\w+\.)?embeddings\.position_embedding\.weight": "positional_embedding",
    r"^(\w+\.)?embeddings\.patch_embedding": "conv1",
    r"^(\w+\.)?pre_layrnorm": "ln_pre",
    r"^(\w+\.)?post_layernorm": "ln_post",
    r"^(\w+\.)?encoder\.layers\.": "transformer.resblocks.",
    r"layer_norm": "ln_",
    r"self_attn\.out_proj": "attn.out_proj",
    r"mlp\.fc1": "mlp.c_fc",
    r"mlp\.fc2": "mlp.c_proj",
}
"""Names of transformers' CLIPVisionModel -> open_clip's; queries, keys and values are one matrix there."""


def _as_open_clip(model: CLIPVisionModel) -> dict[str, Tensor]:
    found = {}
    for name, value in model.state_dict().items():
        for pattern, replacement in OPEN_CLIP.items():
            name = re.sub(pattern, replacement, name)
        found[name] = value.detach().clone()
    for name in [name for name in found if ".self_attn.q_proj." in name]:
        parts = [found.pop(name.replace(".q_proj.", f".{which}_proj.")) for which in "qkv"]
        found[name.replace("self_attn.q_proj.", "attn.in_proj_")] = torch.cat(parts)
    return found


def write_open_clip(
    folder: Path, width: int = 16, head_width: int = 8, patch: int = 4, seed: int = 4
) -> CLIPVisionModel:
    """A folder as open_clip's on the hub: its config, one file of both of CLIP's towers. Returns the vision model."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    torch.manual_seed(seed)
    config = CLIPVisionConfig(
        hidden_size=width, intermediate_size=4 * width, num_hidden_layers=3, num_attention_heads=width // head_width,
        image_size=14 * patch, patch_size=patch, hidden_act="gelu",
    )  # fmt: skip
    model = scattered(CLIPVisionModel(config))
    tensors = {f"visual.{name}": value for name, value in _as_open_clip(model).items()}
    tensors |= {"visual.proj": torch.randn(width, 6)}
    tensors |= {"logit_scale": torch.tensor(2.0), "positional_embedding": torch.randn(7, 6)}
    tensors |= {"transformer.resblocks.0.ln_1.weight": torch.ones(6), "token_embedding.weight": torch.randn(9, 6)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "open_clip_model.safetensors")
    vision_cfg = {"image_size": 14 * patch, "layers": 3, "width": width, "head_width": head_width, "patch_size": patch}
    written = {"model_cfg": {"embed_dim": 6, "vision_cfg": vision_cfg, "text_cfg": {}}, "preprocess_cfg": {}}
    (folder / "open_clip_config.json").write_text(json.dumps(written))
    return model


def clip_features(model: CLIPVisionModel, picture: torch.Tensor) -> torch.Tensor:
    """What the encoder gets of a picture, float [B, 3, S, S] in -1..1: the last block but one, without the class."""
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    shown = model(((picture + 1) / 2 - mean) / deviation, output_hidden_states=True)
    return torch.as_tensor(shown.hidden_states[-2][:, 1:])
