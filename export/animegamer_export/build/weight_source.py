"""Sizes, weights and tokenizer of an export: from the release's checkpoints, or random from a seed.

Weights are made one at a time, on request.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from animegamer_export.checkpoints import releases
from animegamer_export.checkpoints.added_tokens import added_tokens
from animegamer_export.checkpoints.files import Shape, count_pieces, same_tokens
from animegamer_export.checkpoints.folders import read_json
from animegamer_export.checkpoints.predictor import open_predictor
from animegamer_export.checkpoints.weight_map import WeightMap
from animegamer_export.parts.streamed.parts import (
    StreamedPart,
    Weights,
    denoiser_part,
    encoder_part,
    predictor_part,
    vae_part,
)
from animegamer_export.towers.image import NORMALISATION
from animegamer_export.towers.parts import IMAGE, TEXT, Towers, open_towers, tower_shapes
from animegamer_rt.bundle import search
from animegamer_rt.bundle.roles import DENOISER, ENCODER, PREDICTOR, VAE
from animegamer_rt.errors import CheckpointError, ConfigError
from animegamer_rt.models.denoiser import position_table

from .checkpoint_folders import TOWERS, Release, find_release, missing_towers
from .sizes import PARTS, RANDOM_SIZES, ModelSizes, tower_sizes

TOWER_PARTS = (TEXT, IMAGE)
"""Exported with the encoder if their checkpoints exist."""
TAKE_TOKENIZER = "use tokenizer.model of Mistral-7B-Instruct-v0.1"
PUBLISHED_TOKENIZER = "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055"
"""sha256 of that file."""
SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".json", ".yaml")
"""Of weights, and of settings."""
TOKEN_FILES = ("added_tokens.json", "tokenizer.json", "tokenizer_config.json")
"""Files of a trainer that state the ids of added tokens; newer transformers write no added_tokens.json."""
Stamp = tuple[int, int]
NO_ALPHA: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class ExportSource:
    """A model to export.

    made_of: identifies the model, for the manifest. towers_missing: why there are no towers, as text. unpublished:
    sizes that differ from the published model's, as text. not_used: what no part uses of the checkpoints, and why, as
    lines. files: what is read, and each file's stamp before.
    """

    sizes: ModelSizes
    weights: Mapping[str, Weights]
    tokenizer_model: bytes
    added_tokens: Mapping[str, int]
    origin: str
    description: str
    made_of: Mapping[str, Any]
    towers: Towers | None = None
    towers_missing: str = ""
    unpublished: str = ""
    not_used: tuple[str, ...] = ()
    files: Mapping[Path, Stamp] = field(default_factory=dict)

    def require_unchanged(self) -> None:
        """Raises CheckpointError if a file was written while it was read: its weights may be of two trainings."""
        for path, stamp in self.files.items():
            if not path.is_file() or _file_stamp(path) != stamp:
                do = "export again when nothing writes to it"
                raise CheckpointError("changed while it was read", where=path, do=do)

    def shapes(self, name: str) -> dict[str, Shape]:
        """Name and shape of every weight of a part."""
        return self.towers.shapes(name) if self.towers and name in TOWER_PARTS else self.sizes.shapes(name)

    def part(self, name: str) -> StreamedPart:
        """The part's graphs, and its weights on request."""
        if self.towers and name in TOWER_PARTS:
            return self.towers.part(name)
        sizes, weights = self.sizes, self.weights[name]
        if name == PREDICTOR:
            return predictor_part(sizes.predictor, weights)
        if name == DENOISER:
            return denoiser_part(sizes.denoiser, sizes.encoder, weights)
        if name == VAE:
            return vae_part(sizes.vae, weights, sizes.denoiser.latent_height, sizes.denoiser.latent_width)
        return encoder_part(sizes.encoder, weights)


def from_checkpoints(
    folder: Path, release: str, height: int, width: int, alpha: Mapping[str, float] = NO_ALPHA
) -> ExportSource:
    """The checkpoints for frames of height x width; LoRA is merged in float32, weight by weight.

    alpha: of the LoRA of predictor and denoiser, where it is not the release's and no adapter_config.json states it.
    Opens every file and matches all keys. Raises CheckpointError, and ConfigError for a size the vae cannot decode.
    """
    found = find_release(folder, release)
    stamps = {path: _file_stamp(path) for paths in found.files().values() for path in paths if path.is_file()}
    tokens, model = _published_tokens(found.tokenizer), found.tokenizer.read_bytes()
    predictor, predictor_weights = open_predictor(
        found.mistral, found.adapter, max(tokens.values()) + 1, alpha.get(PREDICTOR)
    )
    _check_vocabulary(found.tokenizer, found.adapter, tokens, predictor.vocabulary)
    _check_tokenizer(found.tokenizer, found.adapter, tokens)
    vae, vae_weights = releases.open_vae(found.vae)
    if height % vae.upscale or width % vae.upscale:
        raise ConfigError(
            "frame size not supported by the vae",
            where="--picture",
            found=f"{height}x{width}",
            expected=f"multiples of {vae.upscale}",
        )
    denoiser, encoder, both = releases.open_denoiser(
        found.denoiser, height // vae.upscale, width // vae.upscale, vae.upscale, alpha.get(DENOISER)
    )
    releases.require_same_vae(both, vae_weights, vae, found.vae)
    if predictor.shot_width != denoiser.hidden:
        raise CheckpointError(
            "predictor and denoiser are from different releases: their shot widths differ",
            where=found.adapter,
            misshapen={"shot": (predictor.shot_width, denoiser.hidden)},
            do="use both from the same release",
        )
    absent = missing_towers(folder)
    towers = None if absent else open_towers(folder / TOWERS[0], folder / TOWERS[1], encoder)
    read = {
        name: [(str(path.relative_to(folder)), *stamps[path]) for path in paths]
        for name, paths in found.files().items()
    }
    sizes = ModelSizes(predictor, denoiser, encoder, vae)
    unpublished = sizes.unlike_published()
    return ExportSource(
        sizes,
        {PREDICTOR: predictor_weights, DENOISER: both, ENCODER: both, VAE: vae_weights},
        model,
        tokens,
        "checkpoints",
        f"AnimeGamer, {release}: from "
        + ("checkpoints of other sizes" if unpublished else "the published checkpoints"),
        {
            "checkpoints": read,
            "release": release,
            "picture": [height, width],
            "unlike_published": unpublished,
            "alpha": dict(alpha),
        },
        towers,
        f"{folder} has no {' and no '.join(absent)}",
        unpublished,
        (
            *(f"not used: {place} ({other} is read)" for place, other in found.passed_over.items()),
            *_not_used(PREDICTOR, predictor_weights, (found.mistral, found.adapter), found),
            *_not_used(DENOISER, both, (found.denoiser,), found),
            *_not_used(VAE, vae_weights, (), found),
        ),
        stamps,
    )


def from_seed(seed: int, size: str) -> ExportSource:
    """Random weights of a named size, towers included, with pocket's tokenizer: for timing and memory."""
    pocket = search.find("pocket")
    tokens: dict[str, int] = json.loads((pocket / "added_tokens.json").read_text(encoding="utf-8"))
    sizes = RANDOM_SIZES[size]
    if sizes.predictor.vocabulary == 0:
        sizes = replace(
            sizes, predictor=replace(sizes.predictor, vocabulary=math.ceil((max(tokens.values()) + 1) / 8) * 8)
        )
    weights: dict[str, Weights] = {name: RandomWeights(seed, sizes.shapes(name)) for name in PARTS}
    # The denoiser's file contains the encoder, which makes the constant shot.
    both = sizes.shapes(DENOISER) | sizes.shapes(ENCODER)
    weights[DENOISER] = RandomWeights(seed, both, {"denoiser.positions": partial(position_table, sizes.denoiser)})
    return ExportSource(
        sizes,
        weights,
        (pocket / "tokenizer.model").read_bytes(),
        tokens,
        "random weights",
        f"random weights (seed {seed}) of {size} size: for time and memory only",
        {"seed": seed, "size": size},
        towers=_random_towers(seed, sizes, pocket / "tokenizer.model"),
    )


def _random_towers(seed: int, sizes: ModelSizes, tokenizer: Path) -> Towers:
    """Both towers in the form of T5 and CLIP, with pocket's tokenizer instead of T5's."""
    text, image = tower_sizes(sizes.encoder)
    return Towers(
        (text, RandomWeights(seed, tower_shapes(text), NORMALISATION, f"{TEXT}.")),
        (image, RandomWeights(seed, tower_shapes(image), NORMALISATION, f"{IMAGE}.")),
        tokenizer,
    )


@dataclass(frozen=True, slots=True)
class RandomWeights:
    """Random weights that depend only on the seed and on `prefix` + name, not on the order of requests.

    made: functions for weights that are computed instead, by name.
    """

    seed: int
    shapes: Mapping[str, Shape]
    made: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict)
    prefix: str = ""

    def merged(self, parameter: str, dtype: torch.dtype) -> Tensor:
        """Matrices are scaled by 1 / sqrt(fan in); norms are about 1 and biases about 0."""
        if parameter in self.made:
            return self.made[parameter]().to(dtype)
        return random_weight(self.seed, self.prefix + parameter, self.shapes[parameter]).to(dtype)


def random_weight(seed: int, name: str, shape: Shape) -> Tensor:
    """A float32 weight, the same for the same seed, name and shape."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(int.from_bytes(digest[:7], "big")))
    if len(shape) >= 2:
        return drawn.mul_(math.prod(shape[1:]) ** -0.5)
    return drawn.mul_(0.05).add_(1.0 if name.endswith("weight") else 0.0)


def _file_stamp(path: Path) -> Stamp:
    """Size and modification time; hashing the file would take minutes."""
    return path.stat().st_size, path.stat().st_mtime_ns


def _not_used(part: str, weights: WeightMap, folders: Sequence[Path], found: Release) -> list[str]:
    """A line per reason for the keys, and for the files of `folders`, that a part does not use."""
    unused, read = {**weights.unused, **weights.file.beside}, found.files()[part]
    if not weights.ranks:
        unused |= {str(path): "the weights hold no LoRA" for path in read if path.name == "adapter_config.json"}
    for folder in folders:
        others = (path for path in sorted([*folder.iterdir(), *folder.glob("*/*")]) if path not in read)
        unused |= {
            str(path): "beside the weights that are read"
            for path in others
            if path.suffix in SUFFIXES and path.is_file() and not path.name.startswith(".")
        }
    reasons: dict[str, list[str]] = {}
    for key, why in unused.items():
        reasons.setdefault(why, []).append(key)
    return [
        f"{part}: not used: {keys[0]}" + (f" and {len(keys) - 1} more" if keys[1:] else "") + f" ({why})"
        for why, keys in reasons.items()
    ]


def _published_tokens(model: Path) -> dict[str, int]:
    """Ids of the release's added tokens, which follow the language model's pieces (MODEL.md section 2)."""
    pieces = count_pieces(model, PUBLISHED_TOKENIZER, TAKE_TOKENIZER)
    return {name: pieces + number for number, name in enumerate(added_tokens())}


def _stated_ids(path: Path) -> Mapping[str, object]:
    """The id of each added token in one of TOKEN_FILES."""
    data = read_json(path)
    try:
        if path.name == "tokenizer.json":
            return {str(one["content"]): one["id"] for one in data["added_tokens"]}
        if path.name == "tokenizer_config.json":
            listed = data.get("added_tokens_decoder") or {}
            return {str(one["content"]): int(at) for at, one in listed.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError("its added tokens are malformed", where=path, do="pass its own file") from error
    return data


def _check_tokenizer(model: Path, adapter: Path, tokens: Mapping[str, int]) -> None:
    """Raises CheckpointError if the trainer's folder has a tokenizer that would give a prompt other tokens."""
    own, ours = adapter / model.name, tokens.values()
    for path in filter(Path.is_file, map(adapter.joinpath, TOKEN_FILES)):
        wrong: dict[str, tuple[object, object]] = {
            name: (at, tokens.get(name, "an id that the release does not use"))
            for name, at in _stated_ids(path).items()
            if at != tokens.get(name, at) or (name not in tokens and at in ours)
        }
        if wrong:
            do = "pass a model trained with the release's tokens, or remove this file if it is another's"
            raise CheckpointError("other ids than the release's", where=path, misshapen=wrong, do=do)
    if own.is_file() and not same_tokens(own, model):
        do = "pass the model that it belongs to, or remove it"
        raise CheckpointError(f"another tokenizer than {model}", where=own, do=do)


def _check_vocabulary(model: Path, adapter: Path, tokens: Mapping[str, int], vocabulary: int) -> None:
    if max(tokens.values()) + 1 != vocabulary:
        pieces, added = min(tokens.values()), len(tokens)
        raise CheckpointError(
            "tokenizer and embedding do not belong together",
            where=adapter,
            misshapen={"rows": (vocabulary, f"{pieces + added}: {pieces} pieces of {model} and {added} added tokens")},
            do=TAKE_TOKENIZER + ", or the adapter of the release",
        )
