"""Maps a checkpoint's keys to our parameters. One error lists all missing, unexpected and misshapen keys.

Matching uses names and shapes; values are read one parameter at a time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from animegamer_rt.errors import CheckpointError

from .files import FLOATS, Shape, TensorFile, dtype_name, joined
from .folders import DOWNLOAD_AGAIN
from .key_names import PEFT, KeyNaming, Role

KEEP_ONE = "keep the right one"


def stored_shape(parameter: str, ours: Shape, shot_tokens: int) -> Shape:
    """The shape that the published checkpoints have for a parameter of our shape."""
    if parameter.endswith("positions"):
        return (1, shot_tokens + ours[0], *ours[1:])
    # A convolution over single frames: theirs is 2-D, ours has a time axis of length 1.
    return ours[:2] + ours[3:] if parameter.endswith("upsample.conv.weight") else ours


def in_our_shape(parameter: str, theirs: Tensor, shot_tokens: int = 0) -> Tensor:
    """The checkpoint's tensor of a parameter in our shape."""
    if parameter.endswith("positions"):
        return theirs[0, shot_tokens:]
    return theirs[:, :, None] if parameter.endswith("upsample.conv.weight") else theirs


@dataclass(frozen=True, slots=True)
class WeightSource:
    """The keys of one parameter: its weight, and LoRA pairs (down, up) to add, stacked along the rows."""

    weight: str
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LowRankScale:
    """By what LoRA is multiplied: alpha / r, or with rank_stabilised alpha / sqrt(r).

    targets: PEFT's target_modules, a pattern of the whole name or a list of last components; None for the release's.
    copies: PEFT's modules_to_save; None for the release's. ranks: those for which the alpha is meant; None for any.
    excluded, layers: its exclude_modules, as targets; its layers_to_transform, where all are an empty tuple.
    """

    alpha: float
    rank_stabilised: bool = False
    targets: str | tuple[str, ...] | None = None
    copies: tuple[str, ...] | None = None
    ranks: frozenset[int] | None = None
    excluded: str | tuple[str, ...] = ()
    layers: tuple[int, ...] = ()

    def at(self, rank: int) -> float:
        """The scale of a pair of this rank."""
        return self.alpha / (math.sqrt(rank) if self.rank_stabilised else rank)

    def trains(self, weight: str, role: Role) -> bool:
        """Whether the weight of this name is to have a LoRA pair, or a trained copy."""
        module = weight.removeprefix(PEFT).removesuffix(".weight")
        if role == "copy":
            return self.copies is None or _names(self.copies, module)
        layer = re.search(r"\.(\d+)\.", module)
        if self.layers and layer is not None and int(layer[1]) not in self.layers:
            return False
        return (self.targets is None or _names(self.targets, module)) and not _names(self.excluded, module)


def _names(named: str | tuple[str, ...], module: str) -> bool:
    if isinstance(named, str):
        return re.fullmatch(named, module) is not None
    return any(f".{module}".endswith(f".{one}") for one in named)


@dataclass(frozen=True, slots=True)
class WeightMap:
    """Builds each of our parameters from a checkpoint. unused: keys that are never used, and why."""

    file: TensorFile
    sources: Mapping[str, WeightSource]
    unused: Mapping[str, str]
    low_rank_scale: LowRankScale
    shot_tokens: int

    @property
    def ranks(self) -> list[int]:
        """The distinct LoRA ranks; empty without LoRA."""
        pairs = (pair for source in self.sources.values() for pair in source.pairs)
        return sorted({self.file.shapes[down][0] for down, _ in pairs})

    def weight(self, parameter: str) -> Tensor:
        """The parameter without LoRA, in our shape and the checkpoint's dtype."""
        key = self.sources[parameter].weight
        theirs = self._trained(key)
        if parameter.endswith("positions") and theirs[0, : self.shot_tokens].any():
            raise CheckpointError(
                f"{key}: rows of the shot tokens are not zero", where=self.file.where, do="use the published file"
            )
        return in_our_shape(parameter, theirs, self.shot_tokens)

    def _trained(self, key: str) -> Tensor:
        """A tensor that training never leaves at zero; a hole that an unfinished download left in its file is."""
        theirs = self.file.tensors[key]
        if theirs.ndim > 1 and not theirs.any():
            what = f"{key} is all zeros, as where a download was not finished"
            raise CheckpointError(what, where=self.file.base.get(key, self.file.where), do=DOWNLOAD_AGAIN)
        return theirs

    def low_rank(self, parameter: str) -> list[tuple[Tensor, Tensor, float]]:
        """The parameter's (down [r, in], up [out, r], scale) LoRA pairs, with the scale of the file's rank r."""
        pairs = [(self._trained(down), self.file.tensors[up]) for down, up in self.sources[parameter].pairs]
        return [(down, up, self.low_rank_scale.at(down.shape[0])) for down, up in pairs]

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        """The parameter with LoRA merged in float32, then cast."""
        weight = self.weight(parameter)
        pairs = self.low_rank(parameter)
        if not pairs:
            return weight.to(dtype)
        added = torch.cat([scale * (up.float() @ down.float()) for down, up, scale in pairs])
        return (weight.float() + added).to(dtype)


def overlay(adapter: TensorFile, base: TensorFile, naming: KeyNaming) -> tuple[TensorFile, dict[str, str]]:
    """An adapter's file overlaid on its base model, both with published keys; and the base's replaced keys."""
    overridden = {naming.piece(key).weight for key in adapter.shapes if naming.piece(key).role in ("base", "copy")}
    kept = {key: value for key, value in base.tensors.items() if key not in overridden}
    whole = joined(adapter.where, [adapter, replace(base, tensors=kept)])
    unused = dict.fromkeys(base.tensors.keys() & overridden, f"replaced by {adapter.where}")
    return replace(whole, base=dict.fromkeys(kept, base.where)), unused


def make_weight_map(
    file: TensorFile,
    wanted: Mapping[str, Shape],
    naming: KeyNaming,
    *,
    low_rank: LowRankScale | None = None,
    shot_tokens: int = 226,
    what: str = "checkpoint",
) -> WeightMap:
    """Matches a checkpoint's keys to our parameters (name -> shape).

    Raises one CheckpointError that lists every missing, unexpected and misshapen key, or
    names the keys of which several give one weight.
    """
    known = {naming.checkpoint_name(name): name for name in wanted}
    low_rank = low_rank or LowRankScale(1.0)
    keys = _sorted_keys(file, known, naming)
    missing: list[str] = []
    misshapen: dict[str, tuple[object, object]] = {}
    sources: dict[str, WeightSource] = {}
    for theirs, name in known.items():
        weight = keys.slots.get((name, "copy", 0)) or keys.slots.get((name, "base", 0))
        if weight is None:
            missing.append(theirs)
            continue
        expected = stored_shape(name, tuple(wanted[name]), shot_tokens)
        if file.shapes[weight] != expected:
            misshapen[weight] = (list(file.shapes[weight]), list(expected))
        pairs, lacking = _pairs(keys.factors(name, "down"), keys.factors(name, "up"), theirs)
        missing.extend(lacking or _untrained(theirs, name, file, keys, naming, low_rank))
        misshapen.update(_misshapen_pairs(pairs, len(pairs) + len(lacking), file.shapes, tuple(wanted[name])))
        sources[name] = WeightSource(weight, pairs)
        used = (weight, *(key for pair in pairs for key in pair))
        dtypes = {key: dtype_name(file.tensors[key]) for key in used}
        misshapen.update({key: (name, "floating point") for key, name in dtypes.items() if name not in FLOATS})
    if missing or keys.unexpected or misshapen:
        from_base = {file.base.get(key) for key in (*keys.unexpected, *misshapen)}
        raise CheckpointError(
            f"the file does not match the {what}",
            where=file.where if missing or len(from_base) > 1 else from_base.pop() or file.where,
            missing=missing,
            unexpected=keys.unexpected,
            misshapen=misshapen,
            do="check that the file matches the given sizes",
        )
    return WeightMap(file, sources, keys.unused, low_rank, shot_tokens)


@dataclass(slots=True)
class _Keys:
    """A file's keys by parameter, role and LoRA pair; and those that belong to none."""

    slots: dict[tuple[str, Role, int], str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)
    unexpected: list[str] = field(default_factory=list)

    def factors(self, name: str, role: Role) -> dict[int, str]:
        """The keys of a parameter's LoRA factors by number."""
        return {index: key for (of, its_role, index), key in self.slots.items() if (of, its_role) == (name, role)}


def _sorted_keys(file: TensorFile, known: Mapping[str, str], naming: KeyNaming) -> _Keys:
    """known: the checkpoint's name of each parameter -> ours. Raises CheckpointError for two keys of one slot."""
    keys, adapters = _Keys(), dict[str, str]()
    for key in file.shapes:
        why, piece = naming.unused_reason(key), naming.piece(key)
        if why is not None:
            keys.unused[key] = why
            continue
        if piece.weight not in known:
            keys.unexpected.append(key)
            continue
        if piece.role != "base":
            adapters.setdefault(piece.adapter, key)
        name = known[piece.weight]
        twin = keys.slots.setdefault((name, piece.role, piece.index), key)
        if piece.role in ("base", "copy") and twin == key:
            twin = keys.slots.get((name, "copy" if piece.role == "base" else "base", 0), key)
        if twin != key:
            raise CheckpointError(f"two keys for one weight: {twin} and {key}", where=file.where, do=KEEP_ONE)
    if len(adapters) > 1:
        found = " and ".join(f"{name or 'one without a name'} ({key})" for name, key in adapters.items())
        raise CheckpointError(f"{len(adapters)} adapters in one file: {found}", where=file.where, do=KEEP_ONE)
    return keys


def wanted_shapes(models: Mapping[str, torch.nn.Module]) -> dict[str, Shape]:
    """Name (with its prefix) and shape of every parameter and buffer of the models."""
    return {
        prefix + name: tuple(value.shape)
        for prefix, model in models.items()
        for name, value in model.state_dict().items()
    }


def _pairs(
    down: Mapping[int, str], up: Mapping[int, str], theirs: str
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """The complete LoRA pairs, and a line for each unpaired factor."""
    whole = sorted(down.keys() & up.keys())
    halves = sorted(down.keys() ^ up.keys())
    lacking = [f"the other half of {down.get(i) or up.get(i)} (of {theirs})" for i in halves]
    return tuple((down[i], up[i]) for i in whole), lacking


def _untrained(
    theirs: str, name: str, file: TensorFile, keys: _Keys, naming: KeyNaming, low_rank: LowRankScale
) -> list[str]:
    """The keys that training adds for a weight and the file lacks, by role and index: names may differ.

    None for a weight that is trained without them: a copy under its own name, or one into which LoRA was merged.
    """
    there = {(role, index) for of, role, index in keys.slots if of == name}
    wanted = [(key, naming.piece(key)) for key in naming.trained_keys(theirs)]
    lacking = [
        key for key, piece in wanted if (piece.role, piece.index) not in there and low_rank.trains(theirs, piece.role)
    ]
    weight = keys.slots.get((name, "base", 0))
    if weight is None or weight in file.base or naming.piece(weight).wrapped:
        return lacking
    is_low_rank = any(piece.role == "down" for _, piece in wanted)
    return lacking if is_low_rank and any(role == "down" for _, role, _ in keys.slots) else []


def _misshapen_pairs(
    pairs: tuple[tuple[str, str], ...], blocks: int, shapes: Mapping[str, Shape], weight: Shape
) -> dict[str, tuple[object, object]]:
    """LoRA factors whose shapes do not match the weight [out, in], for this number of row blocks."""
    wrong: dict[str, tuple[object, object]] = {}
    for down, up in pairs:
        rows = weight[0] // blocks
        rank = shapes[down][0] if shapes[down] else 0
        for key, expected in ((down, (rank, weight[1])), (up, (rows, rank))):
            if shapes[key] != expected:
                wrong[key] = (list(shapes[key]), list(expected))
    return wrong
