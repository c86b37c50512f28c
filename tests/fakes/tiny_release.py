"""A tiny release in the published formats: the folders, the keys, the low-rank forms, the tokenizer. Random weights."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from animegamer_export.build.sizes import TINY
from animegamer_export.checkpoints.added_tokens import added_tokens
from animegamer_export.checkpoints.key_names import (
    DENOISER,
    PEFT,
    PREDICTOR,
    KeyNaming,
    diffusers_vae_naming,
    vae_naming,
)
from animegamer_pocket.tokenizer import train_tokenizer
from animegamer_pocket.world.sampling import sample_game
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.encoder import Encoder
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder, VaeSize

PICTURE = (32, 48)
PREDICTOR_RANK, DENOISER_RANK = 32, 64

# Those of the tiny random model, so that one tracing serves both; the tokenizer gives the vocabulary.
PREDICTOR_SIZE, DENOISER_SIZE, ENCODER_SIZE, VAE_SIZE = TINY.predictor, TINY.denoiser, TINY.encoder, TINY.vae


def write_release(folder: Path) -> Path:
    """Writes the whole tree for the character Qiqi; returns `folder`."""
    torch.manual_seed(5)
    mistral, release = folder / "Mistral-7B-Instruct-v0.1", folder / "AnimeGamer"
    pieces = _write_tokenizer(mistral)
    _write_predictor(mistral, release / "MLLM-Qiqi", pieces)
    _write_denoiser(release / "VDM_Decoder-Qiqi")
    (folder / "CogVideoX-2b-sat" / "vae").mkdir(parents=True)
    tensors = _renamed(VaeDecoder(VAE_SIZE), vae_naming(len(VAE_SIZE.multipliers)))
    tensors = {key: value[:, :, 0] if ".upsample.conv.weight" in key else value for key, value in tensors.items()}
    tensors["encoder.conv_in.conv.bias"] = torch.zeros(1)
    torch.save({"state_dict": tensors}, folder / "CogVideoX-2b-sat" / "vae" / "3d-vae.pt")
    return folder


def add_character(folder: Path, name: str) -> None:
    """Another character in the tree: the same language model and adapter, and a denoiser of its own."""
    torch.manual_seed(len(name))
    release = folder / "AnimeGamer"
    shutil.copytree(release / "MLLM-Qiqi", release / f"MLLM-{name}")
    _write_denoiser(release / f"VDM_Decoder-{name}")


def write_diffusers_vae(folder: Path) -> None:
    """A decoder of another size, in the layout of diffusers."""
    size = VaeSize(channels=32, multipliers=(1, 1, 2), res_blocks=1)
    tensors = _renamed(VaeDecoder(size), diffusers_vae_naming(len(size.multipliers)))
    folder.mkdir(parents=True)
    save_file(
        {
            key: value[:, :, 0].contiguous() if ".upsamplers." in key and value.ndim == 5 else value
            for key, value in tensors.items()
        },
        folder / "diffusion_pytorch_model.safetensors",
    )
    config = {
        "_class_name": "AutoencoderKLCogVideoX",
        "block_out_channels": list(size.widths),
        "layers_per_block": size.res_blocks,
        "latent_channels": size.latent_channels,
        "norm_num_groups": size.norm_groups,
        "scaling_factor": size.scale,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _write_tokenizer(mistral: Path) -> int:
    texts = [text for _ in range(20) for _, text in sample_game(random.Random(3), 5)]
    train_tokenizer(texts, 404, mistral)
    first: int = json.loads((mistral / "added_tokens.json").read_text(encoding="utf-8"))["<frame_00000>"]
    # The language model's own folder knows nothing of the release's tokens.
    (mistral / "added_tokens.json").unlink()
    return first


def _write_predictor(mistral: Path, folder: Path, pieces: int) -> None:
    size = replace(PREDICTOR_SIZE, vocabulary=pieces + len(added_tokens()))
    adapter: dict[str, Tensor] = {}
    base: dict[str, Tensor] = {}
    for key, value in _renamed(Predictor(size), PREDICTOR).items():
        weight = key.removesuffix(".weight")
        if "_proj." in key:
            adapter[f"{weight}.base_layer.weight"] = value
            adapter[f"{weight}.lora_A.default.weight"] = 0.1 * torch.randn(PREDICTOR_RANK, value.shape[1])
            adapter[f"{weight}.lora_B.default.weight"] = 0.1 * torch.randn(value.shape[0], PREDICTOR_RANK)
        elif "norm" in key:
            adapter[f"{weight}.modules_to_save.default.weight"] = value
            adapter[f"{weight}.original_module.weight"] = torch.zeros_like(value)
        else:
            adapter[key] = value
        if key.startswith(PEFT):
            short = value[:pieces] if "embed_tokens" in key or "lm_head" in key else value
            base[key.removeprefix(PEFT)] = short.contiguous()
    config = {
        "model_type": "mistral",
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "intermediate_size": size.mlp,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
    }
    (mistral / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(base, mistral / "model.safetensors")
    folder.mkdir(parents=True)
    torch.save(adapter, folder / "pytorch_model.bin")


def _write_denoiser(folder: Path) -> None:
    size = DENOISER_SIZE
    tensors = _renamed(Denoiser(size), DENOISER, "denoiser.")
    tensors |= _renamed(Encoder(ENCODER_SIZE), DENOISER, "encoder.")
    for key, value in list(tensors.items()):
        layer = key.removesuffix(".weight")
        if key.endswith("pos_embedding"):
            tensors[key] = torch.cat([torch.zeros(size.shot_tokens, value.shape[1]), value])[None]
        elif key.endswith(("query_key_value.weight", "attention.dense.weight")):
            tensors[f"{layer}.original.weight"] = tensors.pop(key)
            for pair in range(3 if "query_key_value" in key else 1):
                tensors[f"{layer}.matrix_A.{pair}"] = torch.randn(DENOISER_RANK, value.shape[1])
                tensors[f"{layer}.matrix_B.{pair}"] = 0.1 * torch.randn(size.hidden, DENOISER_RANK)
    where = folder / "1"
    where.mkdir(parents=True)
    (folder / "latest").write_text("1\n", encoding="utf-8")
    torch.save({"module": tensors}, where / "mp_rank_00_model_states.pt")


def _renamed(module: nn.Module, naming: KeyNaming, prefix: str = "") -> dict[str, Tensor]:
    """The module's weights, a little off their starting values, under the published names."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    for name, value in state.items():
        if not name.endswith("positions"):
            value.add_(0.05 * torch.randn_like(value))
    return {naming.checkpoint_name(prefix + name): value for name, value in state.items()}
