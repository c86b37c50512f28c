"""Opens the predictor's checkpoints: the language model's folder and what training adds. Reads no weights yet.

Source: MODEL.md section 2. All functions raise CheckpointError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.predictor import Predictor, PredictorSize

from .configs import SIZES, check_mistral, low_rank_scale, require_floats, require_rank, unused_settings
from .files import TensorFile, open_weights, renamed
from .folders import folder_of, published_weights, read_json, trained_files
from .key_names import PEFT, PREDICTOR
from .shapes import Shapes
from .weight_map import LowRankScale, WeightMap, make_weight_map, overlay, wanted_shapes

PREDICTOR_LORA = LowRankScale(alpha=32.0, ranks=frozenset({32}))
"""The release's."""
EMBEDDING, HEAD = PEFT + "model.embed_tokens.weight", PEFT + "lm_head.weight"
MAX_PADDING = 256
"""Trainers pad vocabularies to a multiple of at most this many rows."""


def open_predictor(
    mistral: Path, adapter: Path, vocabulary: int | None = None, alpha: float | None = None
) -> tuple[PredictorSize, WeightMap]:
    """Size and weight map of a Mistral folder overlaid with the adapter: a file, or a trainer's folder.

    Base weights in the adapter's files take precedence over the folder's. vocabulary: rows of the embedding that have a
    token; rows that only pad it are left out. alpha: of LoRA, if not the release's.
    """
    own = renamed(open_weights(trained_files(adapter)), PREDICTOR.published_key)
    where = mistral / "config.json"
    config = read_json(where)
    require_floats(config, where)  # A trainer's may still name the quantisation of the model it began with.
    unused = dict.fromkeys(unused_settings(config), f"a setting of {where} that nothing here knows")
    beside = folder_of(adapter) / "config.json"
    trained = read_json(beside) if beside.is_file() else {}
    unused |= dict.fromkeys(unused_settings(trained), f"a setting of {beside} that nothing here knows")
    trained = check_mistral(trained, beside) if "model_type" in trained else {}
    wrong = {name: (trained[name], config.get(name)) for name in SIZES if trained and trained[name] != config.get(name)}
    if wrong:
        raise CheckpointError(f"of another model than {where}", where=beside, misshapen=wrong, do="pass its own model")
    if {**config, **trained}.get("tie_word_embeddings"):
        own = _tied(own)
    if vocabulary is not None:
        own = _without_padding(own, vocabulary)
    size = predictor_size({**config, **trained}, own, where)
    base = renamed(open_weights(published_weights(mistral)), PREDICTOR.published_key)
    short = base.shapes.keys() & {EMBEDDING, HEAD}
    unused |= dict.fromkeys(short, "has no rows for the release's tokens")
    base = replace(base, tensors={key: value for key, value in base.tensors.items() if key not in short})
    file, replaced = overlay(own, base, PREDICTOR)
    with torch.device("meta"):
        predictor = Predictor(size)
    scale = low_rank_scale(adapter, own, PREDICTOR, alpha, PREDICTOR_LORA)
    weight_map = predictor_weight_map(file, predictor, scale)
    require_rank(weight_map, "predictor")
    _require_unmerged(weight_map, base)
    return size, replace(weight_map, unused={**weight_map.unused, **replaced, **unused})


def predictor_weight_map(file: TensorFile, predictor: Predictor, low_rank: LowRankScale | None = None) -> WeightMap:
    """The weight map of the predictor; low_rank: the scale of LoRA, if not the release's."""
    wanted, low_rank = wanted_shapes({"": predictor}), low_rank or PREDICTOR_LORA
    return make_weight_map(file, wanted, PREDICTOR, low_rank=low_rank, what="predictor checkpoint")


def predictor_size(config: Mapping[str, Any], adapter: TensorFile, where: Path) -> PredictorSize:
    """Sizes of the predictor: the language model's from its config.json, the rest from the adapter's shapes."""
    numbers = check_mistral(config, where)
    shape = Shapes(adapter, "predictor checkpoint", PREDICTOR)
    hidden, layers, heads, kv_heads, mlp = (numbers[name] for name in SIZES)
    return PredictorSize(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        mlp=mlp,
        vocabulary=shape(EMBEDDING, 2)[0],
        shot_width=shape("output_resampler.proj.2.weight", 2)[0],
        rms_eps=float(numbers["rms_norm_eps"]),
        rope_theta=float(numbers["rope_theta"]),
        sliding_window=numbers["sliding_window"],
    )


def _require_unmerged(weight_map: WeightMap, base: TensorFile) -> None:
    """Raises CheckpointError for LoRA on weights that it seems to be merged into.

    Such weights differ from the base model's. Those that a trainer keeps beside their LoRA may, but not by the LoRA.
    """
    for name, source in weight_map.sources.items():
        key, published = source.weight, PREDICTOR.piece(source.weight)
        if not source.pairs or key in weight_map.file.base or published.weight not in base.shapes:
            continue
        added = weight_map.file.tensors[key].float() - base.tensors[published.weight].float()
        ours = sum(scale * (up.float() @ down.float()) for down, up, scale in weight_map.low_rank(name))
        if (added - ours).norm() < added.norm() / 2 if published.wrapped else added.any():
            what = f"LoRA on weights that already differ from Mistral's, as after a merge: {key}"
            do = "remove the adapter's files if they are merged; else merge them with PEFT, and pass the merged model"
            raise CheckpointError(what, where=weight_map.file.where, do=do)
        return


def _tied(file: TensorFile) -> TensorFile:
    """The file with the embedding as its head, for a config that ties them."""
    key = next((key for key in file.shapes if PREDICTOR.piece(key).weight == EMBEDDING), None)
    heads = [key for key in file.shapes if PREDICTOR.piece(key).weight == HEAD]
    if key is None:
        return file
    if any(not torch.equal(file.tensors[head], file.tensors[key]) for head in heads):
        raise CheckpointError(
            f"config.json ties the embedding to the head, and {heads[0]} differs from {key}",
            where=file.where,
            do="correct tie_word_embeddings",
        )
    if heads:
        return file
    return replace(file, tensors={**file.tensors, HEAD: file.tensors[key]})


def _without_padding(file: TensorFile, vocabulary: int) -> TensorFile:
    """The embedding and the head without the rows that pad them to a multiple of 8 to MAX_PADDING."""
    padded = {
        key
        for key, shape in file.shapes.items()
        if PREDICTOR.piece(key).weight in (EMBEDDING, HEAD)
        and PREDICTOR.piece(key).role in ("base", "copy")
        and shape[:1] > (vocabulary,)
        and shape[0] in {-(-vocabulary // step) * step for step in (8, 16, 32, 64, 128, MAX_PADDING)}
    }
    return replace(file, tensors={k: t[:vocabulary] if k in padded else t for k, t in file.tensors.items()})
