"""Opens the published checkpoints: network sizes, and a weight map for each. Reads no weights yet.

Source: MODEL.md sections 1, 2, 4 and 6. All functions raise CheckpointError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from animegamer_export.checkpoints.files import (
    DOWNLOAD_AGAIN,
    Shape,
    TensorFile,
    open_hugging_face,
    open_safetensors,
    open_torch,
    read_json,
)
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize, position_table
from animegamer_rt.models.encoder import Encoder, EncoderSize
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.models.vae import VaeDecoder, VaeSize

from .key_names import DENOISER, DIFFUSION, PEFT, PREDICTOR, KeyNaming, diffusers_vae_naming, vae_naming
from .weight_map import WeightMap, make_weight_map, overlay, wanted_shapes

DENOISER_ALPHA = 1.0
PREDICTOR_ALPHA = 32.0
DENOISER_RANK, PREDICTOR_RANK = 64, 32
"""Of the release's LoRA (MODEL.md sections 2 and 4)."""
MISTRAL = {"rope_theta": 10000.0, "sliding_window": 4096, "rms_norm_eps": 1e-5}
"""From Mistral-7B-Instruct-v0.1's config (MODEL.md section 2), which shapes do not show; v0.2 and v0.3 differ."""
DIFFUSERS_VAE = "AutoencoderKLCogVideoX"
VAE_SETTINGS: Mapping[str, Any] = {
    "scaling_factor": VaeSize().scale,
    "temporal_compression_ratio": 4,
    "norm_eps": 1e-6,
    "act_fn": "silu",
    "use_post_quant_conv": False,
    "invert_scale_latents": False,
}
"""CogVideoX-2b's vae, by diffusers' names; they are also the defaults for keys that a config omits."""
POSITION_ROUNDING = 2.0**-8
"""Twice the bf16 rounding error of a sine; tables of other frame sizes differ by about 1."""
POSITIONS = DIFFUSION + "mixins.pos_embed.pos_embedding"
WIDTH_WITHOUT_MIX_NORM = 768
"""MODEL.md section 1: with image features of this width, `output_mix_layer_norm` is in the file but unused."""


def open_denoiser(
    path: Path, latent_height: int, latent_width: int, upscale: int = 8
) -> tuple[DenoiserSize, EncoderSize, WeightMap]:
    """Sizes of a SAT checkpoint and the weight map of "denoiser.*" and "encoder.*".

    upscale: pixels of the vae's frames per latent cell, to name a frame size.
    """
    file = open_torch(path, "module")
    size, encoder_size = denoiser_sizes(file, latent_height, latent_width)
    _check_positions(file, size, upscale)
    with torch.device("meta"):
        denoiser, encoder = Denoiser(size), Encoder(encoder_size)
    return size, encoder_size, denoiser_weight_map(file, denoiser, encoder)


def open_vae(path: Path) -> tuple[VaeSize, WeightMap]:
    """The decoder's size and weight map: from SAT's `3d-vae.pt`, or diffusers' safetensors and its config.json."""
    if path.suffix == ".safetensors":
        file = open_safetensors(path)
        size = diffusers_vae_size(read_json(path.parent / "config.json"), path.parent / "config.json")
        naming = diffusers_vae_naming(len(size.multipliers))
    else:
        file = open_torch(path, "state_dict")
        size = vae_size(file)
        naming = vae_naming(len(size.multipliers))
    with torch.device("meta"):
        decoder = VaeDecoder(size)
    return size, make_weight_map(file, wanted_shapes({"": decoder}), naming, what="vae checkpoint")


def open_predictor(mistral: Path, adapter: Path) -> tuple[PredictorSize, WeightMap]:
    """Size and weight map of a Mistral folder overlaid with the adapter's file.

    Base weights in the adapter's file take precedence over the folder's.
    """
    adapter_file = open_torch(adapter)
    size = predictor_size(read_json(mistral / "config.json"), adapter_file, mistral / "config.json")
    file, replaced = overlay(adapter_file, open_hugging_face(mistral), PREDICTOR, PEFT)
    with torch.device("meta"):
        predictor = Predictor(size)
    weight_map = predictor_weight_map(file, predictor)
    return size, replace(weight_map, unused={**weight_map.unused, **replaced})


def require_rank(weight_map: WeightMap, rank: int) -> None:
    """Raises CheckpointError unless all LoRA pairs have this rank: their scale is alpha / rank."""
    if weight_map.ranks != [rank]:
        found = " and ".join(map(str, weight_map.ranks)) if weight_map.ranks else "no LoRA"
        raise CheckpointError(
            "not the release's fine-tuned weights",
            where=weight_map.file.where,
            misshapen={"rank": (found, rank)},
            do="use the published file",
        )


def denoiser_weight_map(
    file: TensorFile, denoiser: Denoiser, encoder: Encoder, alpha: float = DENOISER_ALPHA
) -> WeightMap:
    """The weight map of both networks; LoRA's scale is `alpha` / the file's rank."""
    wanted = wanted_shapes({"denoiser.": denoiser, "encoder.": encoder})
    shot_tokens = denoiser.size.shot_tokens
    return make_weight_map(file, wanted, DENOISER, alpha=alpha, shot_tokens=shot_tokens, what="denoiser checkpoint")


def vae_weight_map(file: TensorFile, decoder: VaeDecoder) -> WeightMap:
    """The weight map of the decoder."""
    naming = vae_naming(len(decoder.size.multipliers))
    return make_weight_map(file, wanted_shapes({"": decoder}), naming, what="vae checkpoint")


def predictor_weight_map(file: TensorFile, predictor: Predictor, alpha: float = PREDICTOR_ALPHA) -> WeightMap:
    """The weight map of the predictor; LoRA's scale is `alpha` / the file's rank."""
    return make_weight_map(file, wanted_shapes({"": predictor}), PREDICTOR, alpha=alpha, what="predictor checkpoint")


def denoiser_sizes(file: TensorFile, latent_height: int, latent_width: int) -> tuple[DenoiserSize, EncoderSize]:
    """Sizes of the denoiser and the encoder from the shapes of a SAT checkpoint."""
    shape = _Shapes(file, "denoiser checkpoint", DENOISER)
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
    shape = _Shapes(file, "denoiser checkpoint", DENOISER)(POSITIONS, 3)
    rows = size.shot_tokens + math.prod(size.patch_grid)
    if shape[2] != size.hidden:
        return  # Reported with all other misshapen keys.
    if shape[1] == rows and _is_table(file.read(POSITIONS)[0, size.shot_tokens :], size):
        return
    found = [
        one for one in _frame_sizes(size, shape[1] - size.shot_tokens) if _first_rows_fit(file.read(POSITIONS), one)
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
    shape = _Shapes(file, "vae checkpoint", KeyNaming(()))
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
    widths = config.get("block_out_channels")
    numbers = [config.get(name) for name in ("layers_per_block", "latent_channels", "norm_num_groups")]
    if not isinstance(widths, list) or not widths or not all(_positive_whole(one) for one in [*widths, *numbers]):
        names = ["block_out_channels", "layers_per_block", "latent_channels", "norm_num_groups"]
        raise CheckpointError("sizes missing or not positive", where=where, missing=names, do=DOWNLOAD_AGAIN)
    same = {name: (config.get(name, expected), expected) for name, expected in VAE_SETTINGS.items()}
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


def predictor_size(config: Mapping[str, Any], adapter: TensorFile, where: Path) -> PredictorSize:
    """Sizes of the predictor: the language model's from its config.json, the rest from the adapter's shapes."""
    kind = config.get("model_type")
    if kind != "mistral":
        raise CheckpointError(f"model_type is {kind!r}, not 'mistral'", where=where, do="pass the Mistral-7B folder")
    rope = config.get("rope_parameters")
    numbers = {**(rope if isinstance(rope, Mapping) else {}), **config}
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    faults = [name for name in names if not isinstance(numbers.get(name), int) or numbers[name] <= 0]
    if faults:
        raise CheckpointError("sizes missing or not positive", where=where, missing=faults, do=DOWNLOAD_AGAIN)
    wrong = {name: (numbers.get(name), expected) for name, expected in MISTRAL.items() if numbers.get(name) != expected}
    if wrong:
        raise CheckpointError(
            "not the Mistral that the release was trained with",
            where=where,
            misshapen=wrong,
            do="pass the folder of Mistral-7B-Instruct-v0.1",
        )
    shape = _Shapes(adapter, "predictor checkpoint", PREDICTOR)
    hidden, layers, heads, kv_heads, mlp = (numbers[name] for name in names)
    return PredictorSize(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        mlp=mlp,
        vocabulary=shape(PEFT + "model.embed_tokens.weight", 2)[0],
        shot_width=shape("output_resampler.proj.2.weight", 2)[0],
        rms_eps=float(numbers["rms_norm_eps"]),
        rope_theta=float(numbers["rope_theta"]),
        sliding_window=numbers["sliding_window"],
    )


def _vae_widths(widths: Sequence[int]) -> dict[str, Any]:
    """Channels and multipliers of stages of these widths; the full-resolution stage may be the wider one."""
    channels = math.gcd(*widths)
    return {"channels": channels, "multipliers": tuple(width // channels for width in widths)}


def _positive_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Looks up the shapes that determine sizes, under any key that the naming knows."""

    file: TensorFile
    what: str
    naming: KeyNaming

    def shapes_by_weight(self) -> dict[str, Shape]:
        pieces = ((self.naming.piece(key), shape) for key, shape in self.file.shapes.items())
        return {piece.weight: shape for piece, shape in pieces if piece.role in ("base", "copy")}

    def __call__(self, weight: str, axes: int) -> Shape:
        shape = self.shapes_by_weight().get(weight)
        if shape is None:
            raise self.refusal(missing=[weight])
        if len(shape) != axes or 0 in shape:
            raise self.refusal(misshapen={weight: (list(shape), f"{axes} axes, none empty")})
        return shape

    def count(self, pattern: str) -> int:
        number, known = 0, self.shapes_by_weight()
        while pattern.format(number) in known:
            number += 1
        if number == 0:
            raise self.refusal(missing=[pattern.format(0)])
        return number

    def refusal(self, **found: Any) -> CheckpointError:
        what = f"not a {self.what}: its sizes cannot be read"
        return CheckpointError(what, where=self.file.where, do="use the published file", **found)
