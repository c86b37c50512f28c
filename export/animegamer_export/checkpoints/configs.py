"""Reads what a checkpoint's JSON files say about its numbers: config.json and PEFT's adapter_config.json.

Every setting is used, known not to change a number, refused, or returned as not used. Source: MODEL.md section 2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from animegamer_rt.errors import CheckpointError

from .files import ALPHA, TensorFile
from .folders import DOWNLOAD_AGAIN, TAKE_FLOATS, folder_of, read_json
from .key_names import KeyNaming
from .weight_map import LowRankScale, WeightMap

TAKE_MISTRAL = "pass the folder of Mistral-7B-Instruct-v0.1"
MISTRAL = {"rope_theta": 10000.0, "sliding_window": 4096, "rms_norm_eps": 1e-5}
"""From Mistral-7B-Instruct-v0.1's config, which shapes do not show; v0.2 and v0.3 differ."""
MISTRAL_DEFAULTS: Mapping[str, tuple[object, ...]] = {
    "hidden_act": ("silu",),
    "rope_type": ("default",),
    "type": ("default",),
    "partial_rotary_factor": (1, 1.0),
    "rope_scaling": (None, {"rope_type": "default"}, {"type": "default"}, {"rope_type": "default", "type": "default"}),
    "attention_bias": (False,),
    "mlp_bias": (False,),
}
"""Settings that may be left out, and the values that we compute with."""
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
PUBLISHED_SIZES = dict(zip(SIZES, (4096, 32, 32, 8, 14336), strict=True))
MISTRAL_HARMLESS = frozenset(
    "architectures attention_dropout bos_token_id dtype eos_token_id id2label initializer_range label2id "
    "max_position_embeddings model_type pad_token_id rope_parameters tie_word_embeddings torch_dtype "
    "transformers_version use_cache vocab_size _name_or_path head_dim".split()
)
ADAPTER_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal"),
}
"""Settings of an adapter and the values that change no number. Others, such as pissa, need a changed base model."""
ADAPTER_HARMLESS = frozenset(
    "auto_mapping base_model_name_or_path exclude_modules inference_mode layers_pattern layers_to_transform "
    "lora_dropout megatron_core peft_version qalora_group_size revision runtime_config task_type "
    "modules_to_save r lora_alpha use_rslora rank_pattern target_modules".split()
)
MAX_LAYERS, MAX_WIDTH = 1024, 2**20
"""No model has more. A damaged config.json could ask for so many that their names take hours."""
LISTS = frozenset({"block_out_channels"})
"""Settings that are a list of sizes."""


def check_mistral(config: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """A language model's config.json, with the rope settings of newer ones beside the others.

    Raises CheckpointError unless its sizes are there and all that changes a number is as in the release.
    """
    kind = config.get("model_type")
    if kind != "mistral":
        raise CheckpointError(f"model_type is {kind!r}, not 'mistral'", where=where, do="pass the Mistral-7B folder")
    rope = config.get("rope_parameters")
    rope = rope if isinstance(rope, Mapping) else {}
    for name in rope.keys() & config.keys():
        _require(
            config, {name: (rope[name],)}, "rope_parameters differs from the setting beside it", where, TAKE_MISTRAL
        )
    settings = {**rope, **config}
    require_sizes(settings, SIZES, where)
    expected: dict[str, tuple[object, ...]] = {name: (value,) for name, value in MISTRAL.items()}
    expected |= {name: values for name, values in MISTRAL_DEFAULTS.items() if name in settings}
    expected |= {name: (None,) for name in rope if name not in expected}
    if settings.get("head_dim") is not None:
        expected["head_dim"] = (settings["hidden_size"] / settings["num_attention_heads"],)
    others = [name for name in SIZES if "heads" not in name]
    if all(settings[name] == PUBLISHED_SIZES[name] for name in others):  # its weights do not show the heads
        expected |= {name: (PUBLISHED_SIZES[name],) for name in SIZES}
    _require(settings, expected, "not the Mistral that the release was trained with", where, TAKE_MISTRAL)
    return settings


def unused_settings(config: Mapping[str, Any]) -> list[str]:
    """The settings of a language model's config.json that are set, and that nothing here knows."""
    known = {*MISTRAL, *MISTRAL_DEFAULTS, *SIZES, *MISTRAL_HARMLESS}
    return sorted(name for name, value in config.items() if name not in known and value is not None)


def require_floats(config: Mapping[str, Any], where: Path) -> None:
    """Raises CheckpointError for the config.json of quantised weights."""
    form = config.get("quantization_config") or config.get("compression_config")
    if form:
        form = form.get("quant_method", "unnamed") if isinstance(form, dict) else form
        raise CheckpointError(f"quantised weights: quantization_config names {form}", where=where, do=TAKE_FLOATS)


def require_sizes(config: Mapping[str, Any], names: Iterable[str], where: Path) -> None:
    """Raises CheckpointError, naming all, for settings that are no size: a whole number, or a list of them."""
    wrong: dict[str, tuple[object, object]] = {}
    for name in names:
        limit, value = MAX_LAYERS if "layers" in name else MAX_WIDTH, config.get(name)
        numbers = value if name in LISTS and isinstance(value, list) and value else [value]
        if not all(type(one) is int and 0 < one <= limit for one in numbers):
            wrong[name] = (f"{value!r:.40}", f"1 to {limit}")
    if wrong:
        raise CheckpointError("sizes missing or not positive", where=where, misshapen=wrong, do=DOWNLOAD_AGAIN)


def low_rank_scale(
    trained: Path, file: TensorFile, naming: KeyNaming, alpha: float | None, published: LowRankScale
) -> LowRankScale:
    """LoRA's scale by the adapter_config.json of a trainer's file or folder, by `alpha`, or the published one.

    The config is not read for weights without LoRA, such as those it was merged into.

    Raises CheckpointError if both give an alpha and they differ, if only the weights' own file mentions one, or for
    settings that change what LoRA computes.
    """
    path = folder_of(trained) / "adapter_config.json"
    has_pairs = any(naming.piece(key).role == "down" for key in file.shapes)
    if not path.is_file() or not has_pairs:
        stated = next((name for name in file.beside if _is_other_alpha(name, published.alpha)), None)
        if stated is not None and has_pairs and alpha is None:
            do = "if it is of this LoRA, pass it with --alpha; else remove it"
            raise CheckpointError(f"states an alpha beside the weights: {stated}", where=file.where, do=do)
        return published if alpha is None else LowRankScale(alpha)
    config = read_json(path)
    known = {*ADAPTER_NEUTRAL, *ADAPTER_HARMLESS}
    expected = {name: values for name, values in ADAPTER_NEUTRAL.items() if name in config}
    # A setting that is off, or empty, is a feature that the adapter does not use.
    expected |= {name: (False, None) for name, value in config.items() if name not in known and value}
    _require(
        config, expected, "an adapter that cannot be merged", path, "merge it with PEFT, and pass the merged model"
    )
    stated, rank, targets = config.get("lora_alpha"), config.get("r"), config.get("target_modules")
    copies, pattern = config.get("modules_to_save") or [], config.get("rank_pattern") or {}
    layers, excluded = config.get("layers_to_transform"), config.get("exclude_modules") or []
    layers = layers if isinstance(layers, list) else [] if layers is None else [layers]
    kinds = {
        "lora_alpha": isinstance(stated, (int, float)) and stated is not True and 0 < stated < math.inf,
        "r": _positive_whole(rank),
        "layers_to_transform": all(type(one) is int and one >= 0 for one in layers),
        "target_modules": targets is None or _names_modules(targets),
        "exclude_modules": _names_modules(excluded),
        "modules_to_save": isinstance(copies, list),
        "rank_pattern": isinstance(pattern, dict) and all(map(_positive_whole, pattern.values())),
    }
    faults = [name for name, right in kinds.items() if not right]
    if faults:
        raise CheckpointError(
            "settings missing or malformed", where=path, missing=faults, do="pass the adapter's own file"
        )
    if alpha is not None and alpha != stated:
        wrong: dict[str, tuple[object, object]] = {"lora_alpha": (stated, f"{alpha:g}, by --alpha")}
        raise CheckpointError("two values for alpha", where=path, misshapen=wrong, do="leave --alpha out")
    return LowRankScale(
        float(config["lora_alpha"]),
        bool(config.get("use_rslora")),
        None if targets in (None, "all-linear") else _modules(targets),
        tuple(map(str, copies)),
        frozenset({config["r"], *pattern.values()}),
        _modules(excluded),
        tuple(layers),
    )


def require_rank(weight_map: WeightMap, part: str) -> None:
    """Raises CheckpointError if LoRA has ranks for which its scale is not meant. part: its name for --alpha."""
    ranks = weight_map.low_rank_scale.ranks
    if ranks is None and not weight_map.ranks:
        do = f"leave --alpha {part} out"
        raise CheckpointError("no LoRA that an alpha would apply to", where=weight_map.file.where, do=do)
    if ranks is not None and set(weight_map.ranks) - ranks:
        raise CheckpointError(
            "LoRA of another rank, so its scale is unknown",
            where=weight_map.file.where,
            misshapen={"rank": (_words(weight_map.ranks), _words(sorted(ranks)))},
            do=f"pass the adapter_config.json of this file, or its alpha: --alpha {part}=NUMBER",
        )


def _is_other_alpha(entry: str, alpha: float) -> bool:
    """Whether an entry beside weights, such as `ss_network_alpha: 16`, is another alpha than this."""
    name, _, value = entry.partition(": ")
    return ALPHA.fullmatch(name) is not None and value not in (f"{alpha:g}", f"{alpha}")


def _names_modules(value: object) -> bool:
    """Whether a setting is a list of names, or a regular expression."""
    try:
        return isinstance(value, list) or (isinstance(value, str) and bool(re.compile(value)))
    except re.error:
        return False


def _modules(named: str | list[object]) -> str | tuple[str, ...]:
    return named if isinstance(named, str) else tuple(map(str, named))


def _words(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, numbers))


def _require(
    found: Mapping[str, Any], expected: Mapping[str, tuple[object, ...]], what: str, where: Path, do: str
) -> None:
    wrong = {
        name: (found.get(name), " or ".join(map(str, values)))
        for name, values in expected.items()
        if found.get(name) not in values
    }
    if wrong:
        raise CheckpointError(what, where=where, misshapen=wrong, do=do)


def _positive_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
