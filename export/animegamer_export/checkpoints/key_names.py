"""Maps our state-dict names to the keys of the published checkpoints, and lists unused keys.

Source: MODEL.md sections 1, 2, 4 and 6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

DIFFUSION = "model.diffusion_model."
IN_DENOISER_FILE = "first_stage_model."
"""The vae's prefix where the denoiser's file holds it too."""
PEFT = "llm.base_model.model."

# The role of a key: the plain weight, a trained copy that replaces it, or one factor of a LoRA pair.
Role = Literal["base", "copy", "down", "up"]


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """One key of a checkpoint: the weight (by the checkpoint's name) it belongs to, and its role.

    adapter: PEFT's name of the adapter. wrapped: a plain weight under a name that it has only beside its LoRA pair.
    """

    weight: str
    role: Role
    index: int = 0
    adapter: str = ""
    wrapped: bool = False


@dataclass(frozen=True, slots=True)
class KeyNaming:
    """The naming of one checkpoint format.

    `ours`: (pattern of our names, their name), first match wins. `pieces`: (pattern of their keys, weight, role); the
    group "index" numbers LoRA pairs, "adapter" names them. `unused`: (pattern, reason). `trained`: (pattern of their
    name of a fine-tuned weight, the keys that training adds for it). `roots`: (pattern of a key as others save it, the
    published key).
    """

    ours: tuple[tuple[str, str], ...]
    pieces: tuple[tuple[str, str, Role], ...] = ()
    unused: tuple[tuple[str, str], ...] = ()
    trained: tuple[tuple[str, tuple[str, ...]], ...] = ()
    roots: tuple[tuple[str, str], ...] = ()

    def published_key(self, key: str) -> str:
        """The published key for one that a trainer saved under another prefix."""
        for pattern, replacement in self.roots:
            match = re.fullmatch(pattern, key)
            if match:
                return match.expand(replacement)
        return key

    def checkpoint_name(self, name: str) -> str:
        """The checkpoint's name of our parameter. A KeyError is a bug in the table, not in a file."""
        for pattern, replacement in self.ours:
            match = re.fullmatch(pattern, name)
            if match:
                return match.expand(replacement)
        raise KeyError(name)

    def piece(self, key: str) -> CheckpointKey:
        """The weight and role of a checkpoint's key; a key that matches no pattern is the weight itself."""
        for pattern, weight, role in self.pieces:
            match = re.fullmatch(pattern, key)
            if match:
                groups = match.groupdict()
                index, adapter = int(groups.get("index") or 0), groups.get("adapter") or ""
                return CheckpointKey(match.expand(weight), role, index, adapter, wrapped=role == "base")
        return CheckpointKey(key, "base")

    def trained_keys(self, weight: str) -> tuple[str, ...]:
        """The extra keys that a complete checkpoint has for a fine-tuned weight."""
        for pattern, keys in self.trained:
            match = re.fullmatch(pattern, weight)
            if match:
                return tuple(match.expand(key) for key in keys)
        return ()

    def unused_reason(self, key: str) -> str | None:
        """Why the key is unused; None for other keys."""
        return next((why for pattern, why in self.unused if re.fullmatch(pattern, key)), None)


def _under(prefix: str, table: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((pattern, prefix + replacement) for pattern, replacement in table)


_BLOCK = r"denoiser\.blocks\.(\d+)\."
_LAYER = r"transformer.layers.\1."
# Both networks are in one file; our names have the prefixes "denoiser." and "encoder.".
DENOISER = KeyNaming(
    ours=_under(
        DIFFUSION,
        (
            (r"denoiser\.positions", r"mixins.pos_embed.pos_embedding"),
            (r"denoiser\.patches\.(.*)", r"mixins.patch_embed.proj.\1"),
            (r"denoiser\.time\.fc_in\.(.*)", r"time_embed.0.\1"),
            (r"denoiser\.time\.fc_out\.(.*)", r"time_embed.2.\1"),
            (r"denoiser\.motion\.fc_in\.(.*)", r"flow_embed.0.\1"),
            (r"denoiser\.motion\.fc_out\.(.*)", r"flow_embed.2.\1"),
            (_BLOCK + r"modulation\.(.*)", r"mixins.adaln_layer.adaLN_modulations.\1.1.\2"),
            (_BLOCK + r"attention\.query_norm\.(.*)", r"mixins.adaln_layer.query_layernorm_list.\1.\2"),
            (_BLOCK + r"attention\.key_norm\.(.*)", r"mixins.adaln_layer.key_layernorm_list.\1.\2"),
            (_BLOCK + r"attention_norm\.(.*)", _LAYER + r"input_layernorm.\2"),
            (_BLOCK + r"attention\.qkv\.(.*)", _LAYER + r"attention.query_key_value.\2"),
            (_BLOCK + r"attention\.output\.(.*)", _LAYER + r"attention.dense.\2"),
            (_BLOCK + r"mlp_norm\.(.*)", _LAYER + r"post_attention_layernorm.\2"),
            (_BLOCK + r"mlp_in\.(.*)", _LAYER + r"mlp.dense_h_to_4h.\2"),
            (_BLOCK + r"mlp_out\.(.*)", _LAYER + r"mlp.dense_4h_to_h.\2"),
            (r"denoiser\.final_norm\.(.*)", r"transformer.final_layernorm.\1"),
            (r"denoiser\.head\.norm\.(.*)", r"mixins.final_layer.norm_final.\1"),
            (r"denoiser\.head\.modulation\.(.*)", r"mixins.final_layer.adaLN_modulation.1.\1"),
            (r"denoiser\.head\.output\.(.*)", r"mixins.final_layer.linear.\1"),
            (r"encoder\.text_projection\.(.*)", r"mixins.patch_embed.text_proj.\1"),
            (r"encoder\.image_projection\.(.*)", r"mixins.patch_embed.ip_proj.\1"),
            (r"encoder\.text_norm\.(.*)", r"mixins.patch_embed.txt_mix_layer_norm.\1"),
            (r"encoder\.image_norm\.(.*)", r"mixins.patch_embed.ip_mix_layer_norm.\1"),
        ),
    ),
    pieces=(
        (r"(.*)\.original\.(weight|bias)", r"\1.\2", "base"),
        (r"(.*)\.matrix_A\.(?P<index>\d+)", r"\1.weight", "down"),
        (r"(.*)\.matrix_B\.(?P<index>\d+)", r"\1.weight", "up"),
    ),
    unused=(
        (r".*\.patch_embed\.output_mix_layer_norm\..*", "not in the forward when the image features are 768 wide"),
        (r"first_stage_model\..*", "the vae is read from its own checkpoint, and compared with this one"),
        (r"conditioner\..*", "the text tower is a separate part, not needed to play"),
        (r"clip_img_encoder\..*", "the image tower is a separate part, not needed to play"),
        (r"model_ema\..*", "an average of the weights, which the published code does not use either"),
    ),
    trained=(
        (
            r"(.*\.attention\.query_key_value)\.weight",
            tuple(rf"\1.matrix_{factor}.{index}" for index in range(3) for factor in "AB"),
        ),
        (r"(.*\.attention\.dense)\.weight", (r"\1.matrix_A.0", r"\1.matrix_B.0")),
    ),
    roots=(
        (r"(?:model\.)*(?:diffusion_model\.)?((?:mixins|transformer|time_embed|flow_embed)\..*)", DIFFUSION + r"\1"),
        (r"model\.((?:first_stage_model|conditioner|clip_img_encoder|model_ema)\..*)", r"\1"),
    ),
)


def vae_naming(levels: int) -> KeyNaming:
    """The naming of a 3D-VAE checkpoint. Its levels count from full resolution; our stages from the deepest level."""
    table = [
        *_vae_block(r"middle\.0\.", "decoder.mid.block_1.", 1),
        *_vae_block(r"middle\.1\.", "decoder.mid.block_2.", 1),
    ]
    for stage in range(levels):
        level = levels - 1 - stage
        table.append((rf"stages\.{stage}\.upsample\.conv\.(.*)", rf"decoder.up.{level}.upsample.conv.\1"))
        table.extend(_vae_block(rf"stages\.{stage}\.blocks\.(\d+)\.", rf"decoder.up.{level}.block.\1.", 2))
    table += [
        (r"(conv_in|conv_out)\.(.*)", r"decoder.\1.conv.\2"),
        (r"norm_out\.norm\.(.*)", r"decoder.norm_out.norm_layer.\1"),
        (r"norm_out\.scale\.(.*)", r"decoder.norm_out.conv_y.conv.\1"),
        (r"norm_out\.shift\.(.*)", r"decoder.norm_out.conv_b.conv.\1"),
    ]
    return KeyNaming(
        ours=tuple(table),
        unused=(
            (r"encoder\..*", "the vae's own encoder is not needed to play"),
            (r"loss\..*", "training only"),
            (r"(model|model_ema|conditioner|clip_img_encoder)\..*", "of other parts, or an average"),
        ),
        roots=((IN_DENOISER_FILE.replace(".", r"\.") + "(.*)", r"\1"),),
    )


def diffusers_vae_naming(levels: int) -> KeyNaming:
    """The naming of diffusers' AutoencoderKLCogVideoX: like `vae_naming`, but blocks count from the deepest level."""
    stages = {f"decoder.up.{levels - 1 - stage}.": f"decoder.up_blocks.{stage}." for stage in range(levels)}
    renamed = {
        **stages,
        "decoder.mid.block_1.": "decoder.mid_block.resnets.0.",
        "decoder.mid.block_2.": "decoder.mid_block.resnets.1.",
        ".block.": ".resnets.",
        ".upsample.": ".upsamplers.0.",
        "nin_shortcut": "conv_shortcut",
    }
    sat = vae_naming(levels)
    table = []
    for ours, theirs in sat.ours:
        for old, new in renamed.items():
            theirs = theirs.replace(old, new)
        table.append((ours, theirs))
    return KeyNaming(ours=tuple(table), unused=sat.unused)


def _vae_block(ours: str, theirs: str, group: int) -> list[tuple[str, str]]:
    """Names inside one residual block; `group` is the next free group of the patterns."""
    rest = rf"\{group}"
    return [
        (ours + r"conv_in\.(.*)", theirs + f"conv1.conv.{rest}"),
        (ours + r"conv_out\.(.*)", theirs + f"conv2.conv.{rest}"),
        (ours + r"shortcut\.(.*)", theirs + f"nin_shortcut.{rest}"),
        *(
            (ours + rf"{norm}\.{part}\.(.*)", theirs + f"{their_norm}.{their_part}.{rest}")
            for norm, their_norm in (("norm_in", "norm1"), ("norm_out", "norm2"))
            for part, their_part in (("norm", "norm_layer"), ("scale", "conv_y.conv"), ("shift", "conv_b.conv"))
        ),
    ]


_PREDICTOR_BLOCK = r"blocks\.(\d+)\."
_MISTRAL_LAYER = r"model.layers.\1."
_MISTRAL = (
    (r"embedding\.(.*)", r"model.embed_tokens.\1"),
    (r"head\.(.*)", r"lm_head.\1"),
    (r"norm\.(.*)", r"model.norm.\1"),
    (_PREDICTOR_BLOCK + r"attention_norm\.(.*)", _MISTRAL_LAYER + r"input_layernorm.\2"),
    (_PREDICTOR_BLOCK + r"mlp_norm\.(.*)", _MISTRAL_LAYER + r"post_attention_layernorm.\2"),
    (_PREDICTOR_BLOCK + r"attention\.query\.(.*)", _MISTRAL_LAYER + r"self_attn.q_proj.\2"),
    (_PREDICTOR_BLOCK + r"attention\.key\.(.*)", _MISTRAL_LAYER + r"self_attn.k_proj.\2"),
    (_PREDICTOR_BLOCK + r"attention\.value\.(.*)", _MISTRAL_LAYER + r"self_attn.v_proj.\2"),
    (_PREDICTOR_BLOCK + r"attention\.output\.(.*)", _MISTRAL_LAYER + r"self_attn.o_proj.\2"),
    (_PREDICTOR_BLOCK + r"(gate|up|down)\.(.*)", _MISTRAL_LAYER + r"mlp.\2_proj.\3"),
)
_COMPUTED = (r".*\.rotary_emb\.inv_freq", "computed from the positions")
# The adapter's file holds the language model under PEFT's names, and the two resamplers.
PREDICTOR = KeyNaming(
    ours=((r"(input|output)_resampler\.(.*)", r"\1_resampler.proj.\2"), *_under(PEFT, _MISTRAL)),
    pieces=(
        (r"(.*)\.base_layer\.(weight|bias)", r"\1.\2", "base"),
        (r"(.*)\.lora_A\.(?:(?P<adapter>[^.]+)\.)?weight", r"\1.weight", "down"),
        (r"(.*)\.lora_B\.(?:(?P<adapter>[^.]+)\.)?weight", r"\1.weight", "up"),
        (r"(.*)\.modules_to_save\.(?P<adapter>[^.]+)\.(weight|bias)", r"\1.\3", "copy"),
    ),
    unused=((r".*\.original_module\..*", "replaced by its modules_to_save copy"), _COMPUTED),
    trained=(
        (r"(llm\..*\.layers\..*_proj)\.weight", (r"\1.lora_A.default.weight", r"\1.lora_B.default.weight")),
        (r"(llm\..*(?:layernorm|\.norm))\.weight", (r"\1.modules_to_save.default.weight",)),
    ),
    # As Lightning's module, the language model itself, PEFT's adapter and a merged model name their keys.
    roots=(
        (r"model\.((?:input|output)_resampler\..*)", r"\1"),
        (r"(?:model\.)?(?:llm\.)?(?:base_model\.model\.)?((?:model|lm_head)\..*)", PEFT + r"\1"),
    ),
)
