"""Opens the checkpoints of denoiser and vae: network sizes, and a weight map for each. Reads no weights yet.

Source: MODEL.md sections 1, 2, 4 and 6. All functions raise CheckpointError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize, position_table
from animegamer_rt.models.encoder import Encoder, EncoderSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

from .configs import low_rank_scale, require_rank, require_sizes
from .files import TensorFile, open_safetensors, open_weights, renamed
from .folders import read_json, trained_files
from .key_names import DENOISER, DIFFUSION, IN_DENOISER_FILE, KeyNaming, diffusers_vae_naming, vae_naming
from .shapes import Shapes
from .weight_map import LowRankScale, WeightMap, in_our_shape, make_weight_map, wanted_shapes

DENOISER_LORA = LowRankScale(alpha=1.0, ranks=frozenset({64}))
"""The release's."""
DIFFUSERS_VAE = "AutoencoderKLCogVideoX"
VAE_SETTINGS: Mapping[str, Any] = {
    "scaling_factor": VaeSize().scale,
    "temporal_compression_ratio": 4,
    "norm_eps": 1e-6,
    "act_fn": "silu",
    "use_post_quant_conv": False,
    "invert_scale_latents": False,
    "shift_factor": None,
    "latents_mean": None,
    "latents_std": None,
    "use_quant_conv": False,
}
"""CogVideoX-2b's vae, by diffusers' names; they are also the defaults for keys that a config omits."""
VAE_BLOCKS = {"down_block_types": "CogVideoXDownBlock3D", "up_block_types": "CogVideoXUpBlock3D"}
VAE_HARMLESS = frozenset(
    "_class_name _diffusers_version _name_or_path block_out_channels layers_per_block latent_channels norm_num_groups "
    "in_channels out_channels sample_height sample_width force_upcast".split()
)
POSITION_ROUNDING = 2.0**-8
"""Twice the bf16 rounding error of a sine; tables of other frame sizes differ by about 1."""
POSITIONS = DIFFUSION + "mixins.pos_embed.pos_embedding"
VAE_ROUNDING = 2.0**-7
"""Relative: copies of one vae in fp16, bf16 and fp32 are the same."""
WIDTH_WITHOUT_MIX_NORM = 768
"""MODEL.md section 1: with image features of this width, `output_mix_layer_norm` is in the file but unused."""


def open_denoiser(
    path: Path, latent_height: int, latent_width: int, upscale: int = 8, alpha: float | None = None
) -> tuple[DenoiserSize, EncoderSize, WeightMap]:
    """Sizes of a SAT checkpoint (a file, or a trainer's folder) and the weight map of "denoiser.*" and "encoder.*".

    upscale: pixels of the vae's frames per latent cell, to name a frame size. alpha: of LoRA, if not the release's.
    """
    file = renamed(open_weights(trained_files(path)), DENOISER.published_key)
    size, encoder_size = denoiser_sizes(file, latent_height, latent_width)
    _check_positions(file, size, upscale)
    with torch.device("meta"):
        denoiser, encoder = Denoiser(size), Encoder(encoder_size)
    scale = low_rank_scale(path, file, DENOISER, alpha, DENOISER_LORA)
    weight_map = denoiser_weight_map(file, denoiser, encoder, scale)
    require_rank(weight_map, "denoiser")
    return size, encoder_size, weight_map


def open_vae(path: Path) -> tuple[VaeSize, WeightMap]:
    """The decoder's size and weight map: from SAT's `3d-vae.pt`, or diffusers' safetensors and its config.json."""
    if path.suffix == ".safetensors":
        file = open_safetensors(path)
        size = diffusers_vae_size(read_json(path.parent / "config.json"), path.parent / "config.json")
        naming = diffusers_vae_naming(len(size.multipliers))
    else:
        file = renamed(open_weights([path]), vae_naming(0).published_key)
        size = vae_size(file)
        naming = vae_naming(len(size.multipliers))
    with torch.device("meta"):
        decoder = VaeDecoder(size)
    return size, make_weight_map(file, wanted_shapes({"": decoder}), naming, what="vae checkpoint")


def require_same_vae(denoiser: WeightMap, vae: WeightMap, size: VaeSize, path: Path) -> None:
    """Raises CheckpointError if the denoiser's file holds another vae than `path`: the published code would use it."""
    naming, file = vae_naming(len(size.multipliers)), denoiser.file
    for name in vae.sources:
        key = IN_DENOISER_FILE + naming.checkpoint_name(name)
        if key in file.shapes:
            inside, given = in_our_shape(name, file.tensors[key]).float(), vae.weight(name).float()
            same = inside.shape == given.shape and (inside - given).abs().max() <= VAE_ROUNDING * given.abs().max()
            if not same:
                raise CheckpointError(
                    f"holds another vae than {path}: {key} differs, and the published code would use it",
                    where=file.where,
                    do="link this file as CogVideoX-2b-sat/vae/3d-vae.pt to use its vae, or remove these keys",
                )


def denoiser_weight_map(
    file: TensorFile, denoiser: Denoiser, encoder: Encoder, low_rank: LowRankScale | None = None
) -> WeightMap:
    """The weight map of both networks; low_rank: the scale of LoRA, if not the release's."""
    wanted = wanted_shapes({"denoiser.": denoiser, "encoder.": encoder})
    shot_tokens, low_rank = denoiser.size.shot_tokens, low_rank or DENOISER_LORA
    return make_weight_map(
        file, wanted, DENOISER, low_rank=low_rank, shot_tokens=shot_tokens, what="denoiser checkpoint"
    )


def vae_weight_map(file: TensorFile, decoder: VaeDecoder) -> WeightMap:
    """The weight map of the decoder."""
    naming = vae_naming(len(decoder.size.multipliers))
    return make_weight_map(file, wanted_shapes({"": decoder}), naming, what="vae checkpoint")


def denoiser_sizes(file: TensorFile, latent_height: int, latent_width: int) -> tuple[DenoiserSize, EncoderSize]:
    """Sizes of the denoiser and the encoder from the shapes of a SAT checkpoint."""
    shape = Shapes(file, "denoiser checkpoint", DENOISER)
    hidden, channels, patch, _ = shape(DIFFUSION + "mixins.patch_embed.proj.weight", 4)
    (head_width,) = shape(DIFFUSION + "mixins.adaln_layer.query_layernorm_list.0.weight", 1)
    size = DenoiserSize(
        hidden=hidden,
        layers=shape.count(DIFFUSION + "mixins.adaln_layer.query_layernorm_list.{}.weight"),
        heads=hidden // head_width,
        time_width=shape(DIFFUSION + "time_embed.2.weight", 2)[0],
        latent_height=latent_height,
        latent_width=latent_width,
        latent_channels=channels,
        patch=patch,
    )
    text_width = shape(DIFFUSION + "mixins.patch_embed.text_proj.0.weight", 2)[1]
    image_width = shape(DIFFUSION + "mixins.patch_embed.ip_proj.0.weight", 2)[1]
    mixed = [key for key in file.shapes if ".patch_embed.output_mix_layer_norm." in key]
    if mixed and image_width != WIDTH_WITHOUT_MIX_NORM:
        raise CheckpointError(
            f"unsupported encoder: output_mix_layer_norm with image features of width {image_width} "
            f"(known to be unused only at width {WIDTH_WITHOUT_MIX_NORM})",
            where=file.where,
            unexpected=mixed,
            do="use the published checkpoint",
        )
    return size, EncoderSize(text_width=text_width, image_width=image_width, hidden=hidden)


def _check_positions(file: TensorFile, size: DenoiserSize, upscale: int) -> None:
    """Compares the position table with the computed one: it alone shows the frame size."""
    shape = Shapes(file, "denoiser checkpoint", DENOISER)(POSITIONS, 3)
    rows = size.shot_tokens + math.prod(size.patch_grid)
    if shape[2] != size.hidden:
        return  # Reported with all other misshapen keys.
    if shape[1] == rows and _is_table(file.tensors[POSITIONS][0, size.shot_tokens :], size):
        return
    found = [
        one for one in _frame_sizes(size, shape[1] - size.shot_tokens) if _first_rows_fit(file.tensors[POSITIONS], one)
    ]
    given = f"{size.latent_height * upscale}x{size.latent_width * upscale}"
    if not found:
        raise CheckpointError(
            "the position table matches no frame size: damaged file, or another model",
            where=file.where,
            misshapen={POSITIONS: (f"{shape[1]} rows, not those of {given}", f"{rows} rows")},
            do="use the published file, and pass its frame size (--picture; the release's is 480x720)",
        )
    theirs = f"{found[0].latent_height * upscale}x{found[0].latent_width * upscale}"
    raise CheckpointError(
        "the denoiser was trained for another frame size",
        where=file.where,
        misshapen={POSITIONS: (f"{shape[1]} rows of {theirs}", f"{rows} rows of {given}")},
        do=f"pass --picture {theirs}",
    )


def _frame_sizes(size: DenoiserSize, patches: int) -> list[DenoiserSize]:
    """This denoiser with every frame size that has this number of patches."""
    of_a_frame = patches // size.latent_frames
    return [
        replace(size, latent_height=rows * size.patch, latent_width=of_a_frame // rows * size.patch)
        for rows in range(1, of_a_frame + 1)
        if patches == of_a_frame * size.latent_frames and of_a_frame % rows == 0
    ]


def _first_rows_fit(stored: Tensor, size: DenoiserSize) -> bool:
    """Whether the first frame of a stored table [1, shot tokens + patches, hidden] matches this size."""
    one = replace(size, latent_frames=1)
    return _is_table(stored[0, size.shot_tokens :][: math.prod(one.patch_grid)], one)


def _is_table(stored: Tensor, size: DenoiserSize) -> bool:
    """Whether positions [patches, hidden] equal the computed ones up to half-precision rounding."""
    return bool((stored.float() - position_table(size)).abs().max() <= POSITION_ROUNDING)


def vae_size(file: TensorFile) -> VaeSize:
    """Sizes of the decoder from the shapes of a 3D-VAE checkpoint; no shape shows the number of norm groups."""
    shape = Shapes(file, "vae checkpoint", KeyNaming(()))
    levels = shape.count("decoder.up.{}.block.0.conv1.conv.weight")
    widths = [shape(f"decoder.up.{level}.block.0.conv1.conv.weight", 5)[0] for level in range(levels)]
    return VaeSize(
        **_vae_widths(widths),
        res_blocks=shape.count("decoder.up.0.block.{}.conv1.conv.weight") - 1,
        latent_channels=shape("decoder.conv_in.conv.weight", 5)[1],
    )


def diffusers_vae_size(config: Mapping[str, Any], where: Path) -> VaeSize:
    """Sizes of the decoder from the config.json of diffusers' AutoencoderKLCogVideoX.

    Raises CheckpointError for another class, for unsupported settings, and for another CogVideoX: the 5B's vae has the
    same shapes and another scale.
    """
    take = "use the vae folder of CogVideoX-2b"
    if config.get("_class_name") != DIFFUSERS_VAE:
        wrong: dict[str, tuple[object, object]] = {"_class_name": (config.get("_class_name"), DIFFUSERS_VAE)}
        raise CheckpointError("not a config of CogVideoX's vae", where=where, misshapen=wrong, do=take)
    require_sizes(config, ("block_out_channels", "layers_per_block", "latent_channels", "norm_num_groups"), where)
    widths = config["block_out_channels"]
    settings = {name: value for name, value in config.items() if name not in VAE_HARMLESS}
    blocks = {name: [kind] * len(widths) for name, kind in VAE_BLOCKS.items()}
    same = {name: (settings.get(name, expected), expected) for name, expected in {**VAE_SETTINGS, **blocks}.items()}
    same |= {name: (value, None) for name, value in settings.items() if name not in same and value is not None}
    wrong = {name: pair for name, pair in same.items() if pair[0] != pair[1]}
    if wrong:
        raise CheckpointError("not the vae that the release was trained with", where=where, misshapen=wrong, do=take)
    return VaeSize(
        **_vae_widths(widths),
        res_blocks=config["layers_per_block"],
        latent_channels=config["latent_channels"],
        norm_groups=config["norm_num_groups"],
        scale=VAE_SETTINGS["scaling_factor"],
    )


def _vae_widths(widths: Sequence[int]) -> dict[str, Any]:
    """Channels and multipliers of stages of these widths; the full-resolution stage may be the wider one."""
    channels = math.gcd(*widths)
    return {"channels": channels, "multipliers": tuple(width // channels for width in widths)}
