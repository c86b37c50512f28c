"""Networks of transformers and diffusers, with our weights or their own: Mistral, CogVideoX's transformer and its vae.

tests/export/test_oracles.py compares each with ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import diffusers
import torch
from torch import Tensor, nn
from transformers import MistralConfig, MistralForCausalLM

from animegamer_rt.models.denoiser import HEAD_NORM_EPSILON, Denoiser, DenoiserSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

MISTRAL = {
    r"^blocks\.": "model.layers.",
    r"attention_norm": "input_layernorm",
    r"mlp_norm": "post_attention_layernorm",
    r"attention\.([qkvo])[a-z]+": r"self_attn.\1_proj",
    r"\.(gate|up|down)\.": r".mlp.\1_proj.",
    r"^embedding": "model.embed_tokens",
    r"^norm": "model.norm",
    r"^head": "lm_head",
}
COGVIDEOX = {
    r"^time\.fc_in": "time_embedding.linear_1",
    r"^time\.fc_out": "time_embedding.linear_2",
    r"^patches": "patch_embed.proj",
    r"^positions": "patch_embed.pos_embedding",
    r"^blocks\.": "transformer_blocks.",
    r"\.attention_norm": ".norm1.norm",
    r"\.mlp_norm": ".norm2.norm",
    r"\.attention\.([qk])[a-z]+_norm": r".attn1.norm_\1",
    r"\.attention\.output": ".attn1.to_out.0",
    r"\.mlp_in": ".ff.net.0.proj",
    r"\.mlp_out": ".ff.net.2",
    r"^final_norm": "norm_final",
    r"^head\.norm": "norm_out.norm",
    r"^head\.modulation": "norm_out.linear",
    r"^head\.output": "proj_out",
}
OF_NORM = {"norm1": (0, 1, 2, 6, 7, 8), "norm2": (3, 4, 5, 9, 10, 11)}
"""The modulations of each norm of a block, in the library's order, by their positions in ours."""
COGVIDEOX_VAE = {
    r"^middle\.": "mid_block.resnets.",
    r"^stages\.(\d+)\.blocks": r"up_blocks.\1.resnets",
    r"^stages\.(\d+)\.upsample": r"up_blocks.\1.upsamplers.0",
    r"\.conv_in\.": ".conv1.conv.",
    r"\.conv_out\.": ".conv2.conv.",
    r"^(conv_in|conv_out)": r"\1.conv",
    r"\.norm_in\.": ".norm1.",
    r"\.norm_out\.": ".norm2.",
    r"shortcut": "conv_shortcut",
    r"norm\.(weight|bias)$": r"norm_layer.\1",
    r"scale\.(weight|bias)$": r"conv_y.conv.\1",
    r"shift\.(weight|bias)$": r"conv_b.conv.\1",
}


def empty_mistral(size: PredictorSize) -> Any:
    """transformers' MistralForCausalLM of a size, with the library's initial weights."""
    configure: Any = MistralConfig  # its stubs lack two of these
    config = configure(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.mlp,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        rms_norm_eps=size.rms_eps,
        rope_theta=size.rope_theta,
        sliding_window=size.sliding_window,
        attn_implementation="sdpa",
    )
    make: Any = MistralForCausalLM
    return make(config).eval()


def mistral(ours: Predictor) -> Any:
    """transformers' MistralForCausalLM with copies of our weights; it has no resamplers."""
    theirs = empty_mistral(ours.size)
    named = _library_names(ours, MISTRAL)
    theirs.load_state_dict({name: value for name, value in named.items() if "resampler" not in name})
    return theirs


def empty_transformer(size: DenoiserSize) -> Any:
    """diffusers' CogVideoXTransformer3DModel of a size, with the library's initial weights."""
    make: Any = diffusers.CogVideoXTransformer3DModel  # untyped
    theirs = make(
        num_attention_heads=size.heads,
        attention_head_dim=size.hidden // size.heads,
        in_channels=size.latent_channels,
        out_channels=size.latent_channels,
        num_layers=size.layers,
        time_embed_dim=size.time_width,
        text_embed_dim=size.hidden,
        sample_width=size.latent_width,
        sample_height=size.latent_height,
        sample_frames=4 * (size.latent_frames - 1) + 1,
        max_text_seq_length=size.shot_tokens,
    ).eval()
    theirs.norm_out.norm.eps = HEAD_NORM_EPSILON  # the published network's; the library's is 1e-5
    theirs.patch_embed.text_proj = nn.Identity()  # our shots have the network's width
    return theirs


def transformer(ours: Denoiser) -> Any:
    """diffusers' CogVideoXTransformer3DModel with copies of our weights; it has no motion scope."""
    theirs = empty_transformer(ours.size)
    given = _transformer_weights(ours)
    theirs.patch_embed.pos_embedding[:, ours.size.shot_tokens :] = given.pop("patch_embed.pos_embedding")
    theirs.load_state_dict(given)
    return theirs


def empty_vae(size: VaeSize) -> Any:
    """diffusers' AutoencoderKLCogVideoX of a size, with the library's initial weights."""
    levels = len(size.multipliers)
    make: Any = diffusers.AutoencoderKLCogVideoX
    return make(
        block_out_channels=size.widths,
        down_block_types=("CogVideoXDownBlock3D",) * levels,
        up_block_types=("CogVideoXUpBlock3D",) * levels,
        layers_per_block=size.res_blocks,
        norm_num_groups=size.norm_groups,
        latent_channels=size.latent_channels,
    ).eval()


def vae(ours: VaeDecoder) -> Any:
    """diffusers' AutoencoderKLCogVideoX whose decoder has copies of our weights; its encoder's are random."""
    theirs = empty_vae(ours.size)
    given = _library_names(ours, COGVIDEOX_VAE)
    theirs.decoder.load_state_dict(
        {name: value.squeeze(2) if "upsamplers.0.conv.weight" in name else value for name, value in given.items()}
    )
    return theirs


def _transformer_weights(ours: Denoiser) -> dict[str, Tensor]:
    found = {}
    for name, value in _library_names(ours, COGVIDEOX).items():
        block, _, kind = name.rpartition(".")
        if name.endswith((".qkv.weight", ".qkv.bias")):
            for which, part in zip("qkv", value.chunk(3), strict=True):
                found[f"{block.removesuffix('.attention.qkv')}.attn1.to_{which}.{kind}"] = part
        elif name.startswith("transformer_blocks.") and ".modulation." in name:
            chunks = value.chunk(12)
            for norm, order in OF_NORM.items():
                linear = f"{block.removesuffix('.modulation')}.{norm}.linear.{kind}"
                found[linear] = torch.cat([chunks[place] for place in order])
        elif not name.startswith("motion."):
            found[name] = value
    return found


def _library_names(module: nn.Module, table: Mapping[str, str]) -> dict[str, Tensor]:
    """The module's weights under the names that the table's patterns produce, applied in order."""
    found = {}
    for name, value in module.state_dict().items():
        for pattern, replacement in table.items():
            name = re.sub(pattern, replacement, name)
        found[name] = value.clone()
    return found
