"""Reads the towers' sizes, names and weights from the folders of transformers (T5) and open_clip.

Files are memory-mapped and read without running code, one weight at a time. Every key must be known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from animegamer_export.checkpoints.configs import require_floats, require_sizes
from animegamer_export.checkpoints.files import TensorFile, open_weights
from animegamer_export.checkpoints.folders import DOWNLOAD_AGAIN, published_weights, read_json
from animegamer_export.checkpoints.key_names import KeyNaming
from animegamer_export.checkpoints.weight_map import WeightMap, make_weight_map, wanted_shapes
from animegamer_export.towers.image import MEAN, NORMALISATION, STD, ImageTower, ImageTowerSize
from animegamer_export.towers.text import TextTower, TextTowerSize, relative_bias
from animegamer_rt.errors import CheckpointError

OPEN_CLIP = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
CLIP_HINT = "pass the folder of laion/CLIP-ViT-B-16-laion2B-s34B-b88K"
VISION_SETTINGS = frozenset({"width", "layers", "patch_size", "image_size", "mlp_ratio", "head_width", "quick_gelu"})
"""Read here, or shown by the weights' shapes. Any other that is set changes what the transformer computes."""
HEAD_WIDTH = 64
"""open_clip's default, if open_clip_config.json gives none."""

_TEXT_LAYER = r"encoder.block.\1.layer."
_TEXT_NAMES = (
    (r"embedding\.weight", r"shared.weight"),
    (r"relative_table", r"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    (r"norm\.weight", r"encoder.final_layer_norm.weight"),
    (r"blocks\.(\d+)\.attention_norm\.weight", _TEXT_LAYER + r"0.layer_norm.weight"),
    (r"blocks\.(\d+)\.(q|k|v)(?:uery|ey|alue)\.weight", _TEXT_LAYER + r"0.SelfAttention.\2.weight"),
    (r"blocks\.(\d+)\.output\.weight", _TEXT_LAYER + r"0.SelfAttention.o.weight"),
    (r"blocks\.(\d+)\.mlp_norm\.weight", _TEXT_LAYER + r"1.layer_norm.weight"),
    (r"blocks\.(\d+)\.gate\.weight", _TEXT_LAYER + r"1.DenseReluDense.wi_0.weight"),
    (r"blocks\.(\d+)\.up\.weight", _TEXT_LAYER + r"1.DenseReluDense.wi_1.weight"),
    (r"blocks\.(\d+)\.down\.weight", _TEXT_LAYER + r"1.DenseReluDense.wo.weight"),
)
_SIZED = ("visual.conv1.weight", "visual.positional_embedding", "visual.transformer.resblocks.0.mlp.c_fc.weight")
_IMAGE_BLOCK = r"visual.transformer.resblocks.\1."
_IMAGE_NAMES = (
    (r"patches\.weight", r"visual.conv1.weight"),
    (r"class_embedding", r"visual.class_embedding"),
    (r"place_embedding", r"visual.positional_embedding"),
    (r"norm\.(.*)", r"visual.ln_pre.\1"),
    (r"blocks\.(\d+)\.attention_norm\.(.*)", _IMAGE_BLOCK + r"ln_1.\2"),
    (r"blocks\.(\d+)\.qkv\.(.*)", _IMAGE_BLOCK + r"attn.in_proj_\2"),
    (r"blocks\.(\d+)\.output\.(.*)", _IMAGE_BLOCK + r"attn.out_proj.\2"),
    (r"blocks\.(\d+)\.mlp_norm\.(.*)", _IMAGE_BLOCK + r"ln_2.\2"),
    (r"blocks\.(\d+)\.mlp_in\.(.*)", _IMAGE_BLOCK + r"mlp.c_fc.\2"),
    (r"blocks\.(\d+)\.mlp_out\.(.*)", _IMAGE_BLOCK + r"mlp.c_proj.\2"),
)


@dataclass(frozen=True, slots=True)
class TowerWeights:
    """A tower's weights by our names: those of its file, and the computed ones in `made`."""

    weight_map: WeightMap
    made: Mapping[str, Callable[[], Tensor]]

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        """One weight, in the given dtype."""
        make = self.made.get(parameter)
        return self.weight_map.merged(parameter, dtype) if make is None else make().to(dtype)


def open_text_tower(folder: Path) -> tuple[TextTowerSize, TowerWeights]:
    """A T5-v1.1 folder: config.json and safetensors or bin weights, whole or sharded. Raises CheckpointError."""
    config, where = read_json(folder / "config.json"), folder / "config.json"
    require_floats(config, where)
    expected = {"model_type": "t5", "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new"}
    kinds = {name: config.get(name, value if name == "dense_act_fn" else None) for name, value in expected.items()}
    if kinds != expected:
        found = ", ".join(f"{name} {value!r}" for name, value in kinds.items())
        raise CheckpointError(f"not a T5-v1.1 model: {found}", where=where, do="pass the folder of google/t5-v1_1-xxl")
    file = open_weights(published_weights(folder))
    tied = "shared.weight" in file.shapes
    twin = "encoder.embed_tokens.weight"
    if tied and twin in file.shapes and not torch.equal(file.tensors["shared.weight"], file.tensors[twin]):
        raise CheckpointError(f"shared.weight and {twin} differ", where=file.where, do="remove the one not trained")
    vocabulary = file.shapes.get("shared.weight" if tied else "encoder.embed_tokens.weight", (0,))[0]
    distances = ("relative_attention_num_buckets", "relative_attention_max_distance")
    config = {distances[1]: 128, **config}
    require_sizes(config, ("d_model", "num_layers", "num_heads", "d_kv", "d_ff", *distances), where)
    size = TextTowerSize(
        hidden=config["d_model"],
        layers=config["num_layers"],
        heads=config["num_heads"],
        head_width=config["d_kv"],
        mlp=config["d_ff"],
        vocabulary=vocabulary,
        norm_epsilon=_positive(config.get("layer_norm_epsilon", 1e-6), "layer_norm_epsilon", where),
        buckets=config[distances[0]],
        max_distance=config[distances[1]],
    )
    with torch.device("meta"):
        wanted = wanted_shapes({"": TextTower(size)})
    del wanted["relative_bias"]
    wanted["relative_table"] = (size.buckets, size.heads)
    weight_map = make_weight_map(file, wanted, _text_naming(tied), what="T5 encoder")
    # The bias of all pairs of positions is computed from T5's table.
    bias = {"relative_bias": lambda: relative_bias(weight_map.merged("relative_table", torch.float32), size)}
    return size, TowerWeights(weight_map, bias)


def open_image_tower(folder: Path) -> tuple[ImageTowerSize, TowerWeights]:
    """An open_clip folder: its weights and, if present, open_clip_config.json. Raises CheckpointError."""
    found = next((name for name in OPEN_CLIP if (folder / name).is_file()), None)
    if found is None:
        raise CheckpointError(f"no weights: neither {' nor '.join(OPEN_CLIP)}", where=folder, do=CLIP_HINT)
    file = open_weights([folder / found])
    config = folder / "open_clip_config.json"
    size = _image_size(file, _vision_config(config), config)
    with torch.device("meta"):
        wanted = wanted_shapes({"": ImageTower(size)})
    weight_map = make_weight_map(file, wanted, _image_naming(size.layers), what="open_clip vision transformer")
    return size, TowerWeights(weight_map, NORMALISATION)


def _text_naming(tied: bool) -> KeyNaming:
    names = _TEXT_NAMES if tied else ((r"embedding\.weight", r"encoder.embed_tokens.weight"), *_TEXT_NAMES[1:])
    return KeyNaming(
        ours=names,
        unused=(
            (r"decoder\..*|lm_head\..*", "only the encoder is run"),
            *([(r"encoder\.embed_tokens\.weight", "the same as shared.weight")] if tied else []),
        ),
    )


def _image_naming(layers: int) -> KeyNaming:
    return KeyNaming(
        ours=_IMAGE_NAMES,
        unused=(
            (rf"visual\.transformer\.resblocks\.{layers - 1}\..*", "the last block is not run"),
            (r"visual\.(ln_post\..*|proj)", "the features are taken before it"),
            (r"(transformer|token_embedding|ln_final)\..*", "CLIP's own text tower is not run"),
            (r"positional_embedding|text_projection|logit_scale|logit_bias", "CLIP's own text tower is not run"),
        ),
    )


def _image_size(file: TensorFile, vision: Mapping[str, Any], config: Path) -> ImageTowerSize:
    conv, places, mlp = (file.shapes.get(name) for name in _SIZED)
    if conv is None or places is None or mlp is None:
        missing = [name for name in _SIZED if name not in file.shapes]
        raise CheckpointError("not an open_clip vision transformer", where=file.where, missing=missing, do=CLIP_HINT)
    axes = dict(zip(_SIZED, (4, 2, 2), strict=True))
    wrong = {key: (list(file.shapes[key]), f"{n} axes") for key, n in axes.items() if len(file.shapes[key]) != n}
    if wrong:
        raise CheckpointError("not an open_clip vision transformer", where=file.where, misshapen=wrong, do=CLIP_HINT)
    numbers = [re.match(r"visual\.transformer\.resblocks\.(\d+)\.", key) for key in file.shapes]
    require_sizes({"head_width": HEAD_WIDTH, **vision}, ("head_width",), config)
    head_width = vision.get("head_width", HEAD_WIDTH)
    if conv[0] % head_width:
        raise CheckpointError(f"head width {head_width} does not divide width {conv[0]}", where=config, do=CLIP_HINT)
    return ImageTowerSize(
        width=conv[0],
        layers=1 + max(int(number[1]) for number in numbers if number),
        heads=conv[0] // head_width,
        patch=conv[2],
        grid=round((places[0] - 1) ** 0.5),
        mlp=mlp[0],
        quick_gelu=bool(vision.get("quick_gelu", False)),
    )


def _vision_config(path: Path) -> Mapping[str, Any]:
    """The vision transformer's config in open_clip_config.json; empty, as for ViT-B-16, without the file."""
    if not path.is_file():
        return {}
    config = read_json(path)
    model, shown = config.get("model_cfg"), config.get("preprocess_cfg")
    vision = model.get("vision_cfg") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(vision, dict):
        raise CheckpointError("no vision_cfg in its model_cfg", where=path, do=CLIP_HINT)
    unknown: dict[str, tuple[object, object]]
    unknown = {name: (value, "not set") for name, value in vision.items() if name not in VISION_SETTINGS and value}
    for name, expected in (("mean", MEAN), ("std", STD)):
        found = shown.get(name) if isinstance(shown, dict) else None
        if found is not None and found != list(expected):
            unknown[name] = (found, list(expected))
    if unknown:
        raise CheckpointError("a vision transformer of another kind", where=path, misshapen=unknown, do=CLIP_HINT)
    return {**vision, "quick_gelu": model.get("quick_gelu", False)}


def _positive(value: object, name: str, where: Path) -> float:
    if not isinstance(value, (int, float)) or value <= 0:
        raise CheckpointError(f"{name} is {value!r}, not a number above 0", where=where, do=DOWNLOAD_AGAIN)
    return float(value)
