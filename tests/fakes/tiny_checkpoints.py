"""Tiny checkpoints in the published formats, made of the recorded weights of tests/golden."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from animegamer_export.checkpoints import releases
from animegamer_export.checkpoints.weight_map import WeightMap
from animegamer_export.parts.streamed.parts import with_weights
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.encoder import Encoder

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
QKV = "model.diffusion_model.transformer.layers.0.attention.query_key_value"
PEFT = "llm.base_model.model."
MISTRAL_CONFIG = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
}


def golden(name: str) -> dict[str, Tensor]:
    about = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return {key: value for file in about["files"] for key, value in load_file(GOLDEN / file).items()}


def write_denoiser(path: Path, tensors: dict[str, Tensor]) -> Path:
    torch.save({"module": tensors}, path)
    return path


def read_tiny_denoiser(path: Path) -> tuple[Denoiser, Encoder, WeightMap]:
    size, encoder_size, recipe = releases.open_denoiser(path, 8, 12, alpha=1.0)
    with torch.device("meta"):
        denoiser, encoder = Denoiser(size), Encoder(encoder_size)
    return with_weights(denoiser, recipe, "denoiser."), with_weights(encoder, recipe, "encoder."), recipe


def tiny_predictor(folder: Path, base_in_adapter: bool) -> tuple[Path, Path]:
    """A Hugging Face folder and pytorch_model.bin made of the golden weights."""
    tensors = golden("mllm_weights_a")
    base, adapter = {}, {}
    for key, value in tensors.items():
        plain = key.removeprefix(PEFT)
        is_base = ".base_layer." in key or ".original_module." in key
        if is_base:
            base[plain.replace(".base_layer", "").replace(".original_module", "")] = value
        if base_in_adapter or not is_base:
            adapter[key] = value
    base["model.embed_tokens.weight"] = torch.zeros(300, 64)
    base["lm_head.weight"] = torch.zeros(300, 64)
    base["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)
    mistral = folder / "mistral"
    mistral.mkdir()
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = {**MISTRAL_CONFIG, **small, "intermediate_size": 160}
    (mistral / "config.json").write_text(json.dumps(config), encoding="utf-8")
    base = {key: value.contiguous() for key, value in base.items()}
    save_file(base, mistral / "model.safetensors")
    torch.save(adapter, folder / "pytorch_model.bin")
    return mistral, folder / "pytorch_model.bin"


class Executes:
    """A pickle of this would create a folder when loaded carelessly."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, (self.path,)
