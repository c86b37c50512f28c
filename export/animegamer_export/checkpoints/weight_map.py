"""Maps a checkpoint's keys to our parameters. One error lists all missing, unexpected and misshapen keys.

Matching uses names and shapes; values are read one parameter at a time.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from animegamer_rt.errors import CheckpointError

from .files import Shape, TensorFile
from .key_names import KeyNaming

# Nearest names are suggested for at most this many keys: the search is slow, and a foreign file has thousands.
MAX_SUGGESTIONS = 40


@dataclass(frozen=True, slots=True)
class Layout:
    """How a checkpoint stores a parameter whose shape differs from ours."""

    kind: str

    def shape(self, ours: Shape, shot_tokens: int) -> Shape:
        """The checkpoint's shape for our shape."""
        if self.kind == "with shot rows":
            return (1, shot_tokens + ours[0], *ours[1:])
        return ours[:2] + ours[3:] if self.kind == "per frame" else ours

    def tensor(self, theirs: Tensor, shot_tokens: int) -> Tensor:
        """The checkpoint's tensor in our shape."""
        if self.kind == "with shot rows":
            return theirs[0, shot_tokens:]
        return theirs[:, :, None] if self.kind == "per frame" else theirs


PLAIN = Layout("plain")


def layout_of(parameter: str) -> Layout:
    """The layout of one of our parameters in the published checkpoints."""
    if parameter.endswith("positions"):
        return Layout("with shot rows")
    # A convolution over single frames: theirs is 2-D, ours has a time axis of length 1.
    return Layout("per frame") if parameter.endswith("upsample.conv.weight") else PLAIN


@dataclass(frozen=True, slots=True)
class WeightSource:
    """The keys of one parameter: its weight, and LoRA pairs (down, up) to add, stacked along the rows."""

    weight: str
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class WeightMap:
    """Builds each of our parameters from a checkpoint. unused: keys that are never used, and why."""

    file: TensorFile
    sources: Mapping[str, WeightSource]
    unused: Mapping[str, str]
    alpha: float
    shot_tokens: int

    @property
    def ranks(self) -> list[int]:
        """The distinct LoRA ranks; empty without LoRA."""
        pairs = (pair for source in self.sources.values() for pair in source.pairs)
        return sorted({self.file.shapes[down][0] for down, _ in pairs})

    def weight(self, parameter: str) -> Tensor:
        """The parameter without LoRA, in our shape and the checkpoint's dtype."""
        key = self.sources[parameter].weight
        theirs, layout = self.file.read(key), layout_of(parameter)
        if layout.kind == "with shot rows" and theirs[0, : self.shot_tokens].any():
            raise CheckpointError(
                f"{key}: rows of the shot tokens are not zero", where=self.file.where, do="use the published file"
            )
        return layout.tensor(theirs, self.shot_tokens)

    def low_rank(self, parameter: str) -> list[tuple[Tensor, Tensor, float]]:
        """The parameter's (down [r, in], up [out, r], scale) LoRA pairs; scale is alpha / r, with the file's rank r."""
        pairs = [(self.file.read(down), self.file.read(up)) for down, up in self.sources[parameter].pairs]
        return [(down, up, self.alpha / down.shape[0]) for down, up in pairs]

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        """The parameter with LoRA merged in float32, then cast."""
        weight = self.weight(parameter)
        pairs = self.low_rank(parameter)
        if not pairs:
            return weight.to(dtype)
        added = torch.cat([scale * (up.float() @ down.float()) for down, up, scale in pairs])
        return (weight.float() + added).to(dtype)


def overlay(adapter: TensorFile, base: TensorFile, naming: KeyNaming, prefix: str) -> tuple[TensorFile, dict[str, str]]:
    """An adapter's file overlaid on its base model, whose keys lack `prefix`; and the base's replaced keys."""
    overridden = {naming.piece(key).weight for key in adapter.shapes if naming.piece(key).role in ("base", "copy")}
    shapes = dict(adapter.shapes)
    from_base: dict[str, str] = {}
    unused: dict[str, str] = {}
    non_float = {
        **adapter.non_float,
        **{prefix + key: kind for key, kind in base.non_float.items() if prefix + key not in overridden},
    }
    for key, shape in base.shapes.items():
        if prefix + key in overridden:
            unused[key] = f"replaced by {adapter.where}"
        else:
            from_base[prefix + key] = key
            shapes[prefix + key] = shape

    def read(key: str) -> Tensor:
        return base.read(from_base[key]) if key in from_base else adapter.read(key)

    return TensorFile(adapter.where, shapes, read, non_float), unused


def make_weight_map(
    file: TensorFile,
    wanted: Mapping[str, Shape],
    naming: KeyNaming,
    *,
    alpha: float = 1.0,
    shot_tokens: int = 226,
    what: str = "checkpoint",
) -> WeightMap:
    """Matches a checkpoint's keys to our parameters (name -> shape).

    Raises one CheckpointError that lists every missing, unexpected (with the nearest known name) and misshapen key.
    """
    known = {naming.checkpoint_name(name): name for name in wanted}
    keys = _sorted_keys(file, known, naming)
    missing: list[str] = []
    misshapen: dict[str, tuple[object, object]] = {}
    sources: dict[str, WeightSource] = {}
    for theirs, name in known.items():
        candidates = keys.plain[name]
        if name in keys.copies:
            keys.unused.update(dict.fromkeys(candidates, "replaced by its modules_to_save copy"))
            candidates = [keys.copies[name]]
        keys.unexpected.extend(candidates[1:])
        if not candidates:
            missing.append(theirs)
            continue
        expected = layout_of(name).shape(tuple(wanted[name]), shot_tokens)
        if file.shapes[candidates[0]] != expected:
            misshapen[candidates[0]] = (list(file.shapes[candidates[0]]), list(expected))
        pairs, lacking = _pairs(keys.down[name], keys.up[name], theirs)
        missing.extend(lacking or _untrained(theirs, name, keys, naming))
        misshapen.update(_misshapen_pairs(pairs, len(pairs) + len(lacking), file.shapes, tuple(wanted[name])))
        sources[name] = WeightSource(candidates[0], pairs)
        used = (candidates[0], *(key for pair in pairs for key in pair))
        misshapen.update({key: (file.non_float[key], "floating point") for key in used if key in file.non_float})
    if missing or keys.unexpected or misshapen:
        raise CheckpointError(
            f"the file does not match the {what}",
            where=file.where,
            missing=missing,
            unexpected=_with_nearest(keys.unexpected, [*known, *file.shapes.keys() - set(keys.unexpected)]),
            misshapen=misshapen,
            do="check that the file matches the given sizes",
        )
    return WeightMap(file, sources, keys.unused, alpha, shot_tokens)


@dataclass(slots=True)
class _Keys:
    """A file's keys by parameter, LoRA factors also by number, and unmatched keys."""

    plain: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    copies: dict[str, str] = field(default_factory=dict)
    down: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    up: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    unused: dict[str, str] = field(default_factory=dict)
    unexpected: list[str] = field(default_factory=list)


def _sorted_keys(file: TensorFile, known: Mapping[str, str], naming: KeyNaming) -> _Keys:
    """known: the checkpoint's name of each parameter -> ours."""
    keys = _Keys()
    for key in file.shapes:
        why, piece = naming.unused_reason(key), naming.piece(key)
        if why is not None:
            keys.unused[key] = why
        elif piece.weight not in known:
            keys.unexpected.append(key)
        elif piece.role == "base":
            keys.plain[known[piece.weight]].append(key)
        elif piece.role == "copy":
            keys.copies[known[piece.weight]] = key
        else:
            factors = keys.down if piece.role == "down" else keys.up
            factors[known[piece.weight]][piece.index] = key
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


def _untrained(theirs: str, name: str, keys: _Keys, naming: KeyNaming) -> list[str]:
    """The keys that training adds for a weight and the file lacks, by role and index: names may differ."""
    there = {("copy", 0)} if name in keys.copies else set()
    there |= {("down", index) for index in keys.down[name]} | {("up", index) for index in keys.up[name]}
    wanted = [(key, naming.piece(key)) for key in naming.trained_keys(theirs)]
    return [key for key, piece in wanted if (piece.role, piece.index) not in there]


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


def _with_nearest(keys: list[str], known: list[str]) -> list[str]:
    named = []
    for key in keys[:MAX_SUGGESTIONS]:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
        named.append(f"{key} (nearest: {near[0]})" if near else key)
    return named + keys[MAX_SUGGESTIONS:]
