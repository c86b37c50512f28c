"""Opens a folder of recorded fixtures: JSON descriptions with tensors, which are checked against them.

Tensors are read from safetensors; no code in the folder is run.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from animegamer_export.checkpoints.files import open_safetensors
from animegamer_export.checkpoints.folders import read_json
from animegamer_rt.errors import CheckpointError

_KINDS = {
    # kind: pattern of the file's stem, first match wins; the last word is the suffix that distinguishes sets.
    "vae_weights": r"vae_.+_weights",
    "dit_weights": r"dit_weights_.+",
    "mllm_weights": r"mllm_weights_.+",
    "dit_step": r"dit_step_.+",
    "dit_inter": r"dit_inter_.+",
    "uncond": r"uncond_.+",
    "encoder": r"encoder_.+",
    "sampler_discarded": r"sampler_.+_discarded_.+",
    "sampler": r"sampler_.+_.+",
    "vae_inter": r"vae_inter_.+",
    "vae_whole": r"vae_whole_.+",
    "vae": r"vae_.+_.+",
    "mllm": r"mllm_.+_.+",
}
# A described set whose name matches no pattern above.
UNKNOWN = "unknown"
# Kinds that only hold weights for other sets.
WEIGHTS = ("vae_weights", "dit_weights", "mllm_weights")


@dataclass(frozen=True)
class FixtureSet:
    """One NAME.json and its tensors."""

    name: str
    kind: str
    folder: Path
    description: Mapping[str, Any]
    dtype: torch.dtype = torch.float32

    @property
    def where(self) -> Path:
        """Path of the description."""
        return self.folder / f"{self.name}.json"

    @property
    def config(self) -> Mapping[str, Any]:
        """The sizes."""
        config: Mapping[str, Any] = self.description["config"]
        return config

    @property
    def files(self) -> list[str]:
        """Names of the files with its tensors."""
        files: list[str] = self.description.get("files", [f"{self.name}.safetensors"])
        return files

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the set, merged over its files and checked against the description; float32 as `dtype`."""
        merged: dict[str, Tensor] = {}
        for name in self.files:
            if not isinstance(name, str) or Path(name).name != name:
                raise CheckpointError(f"file name {name!r} is outside the folder", where=self.where)
            merged |= open_safetensors(self.folder / name).tensors
        listed = self.description["tensors"]
        wrong = {}
        for key in listed.keys() & merged.keys():
            found = [str(merged[key].dtype).removeprefix("torch."), list(merged[key].shape)]
            if found != listed[key]:
                wrong[key] = (found, listed[key])
        missing, unexpected = sorted(listed.keys() - merged.keys()), sorted(merged.keys() - listed.keys())
        if wrong or missing or unexpected:
            raise CheckpointError(
                "tensors differ from their description",
                where=self.where,
                missing=missing,
                unexpected=unexpected,
                misshapen=wrong,
            )
        return {key: value.to(self.dtype) if value.dtype == torch.float32 else value for key, value in merged.items()}


@dataclass(frozen=True)
class FixtureFolder:
    """All fixture sets of a folder by name."""

    path: Path
    sets: Mapping[str, FixtureSet]
    dtype: torch.dtype = torch.float32

    def named(self, name: str, wanted_by: FixtureSet) -> FixtureSet:
        """A set that another one depends on. Raises CheckpointError naming both."""
        if name not in self.sets:
            raise CheckpointError(f"needs {name}.json, which is missing", where=wanted_by.where)
        return self.sets[name]

    def parent(self, fixture: FixtureSet, kind: str) -> FixtureSet:
        """The set that holds this one's weights: named by `weights`, else by suffix."""
        default = f"{kind}_{fixture.name.rsplit('_', 1)[1]}"
        return self.named(fixture.description.get("weights", default), fixture)


def open_folder(path: Path, dtype: torch.dtype = torch.float32) -> FixtureFolder:
    """The fixture sets of a folder, run in `dtype`.

    Raises CheckpointError if there are none, for a description that is not JSON, and for tensors without one.
    """
    if not path.is_dir():
        raise CheckpointError("no such folder", where=path, do="pass the folder of the fixtures")
    sets: dict[str, FixtureSet] = {}
    for file in sorted(path.glob("*.json")):
        kind = next((kind for kind, pattern in _KINDS.items() if re.fullmatch(pattern, file.stem)), UNKNOWN)
        if kind != UNKNOWN or b'"tensors"' in file.read_bytes():
            sets[file.stem] = FixtureSet(file.stem, kind, path, read_json(file), dtype)
    described = {name for fixture in sets.values() for name in fixture.files}
    for file in sorted(path.glob("*.safetensors")):
        if file.name not in described:
            name = f"{file.name.partition('.')[0]}.json"
            raise CheckpointError(f"recorded tensors that no description names; expected {name}", where=file)
    if all(fixture.kind in WEIGHTS for fixture in sets.values()):
        raise CheckpointError(
            "no fixture set in the folder", where=path, do="pass a folder of NAME.json + NAME.safetensors"
        )
    return FixtureFolder(path, sets, dtype)


def vae_weights(folder: FixtureFolder, fixture: FixtureSet) -> dict[str, Tensor]:
    """Weights of a vae set: stored, or generated from its seed; their hashes must match the recorded ones."""
    stored = folder.sets.get(f"{fixture.name}_weights")
    if stored is not None:
        weights = dict(stored.tensors)
    else:
        seed, shapes = fixture.description["weight_seed"], fixture.description["weight_shapes"]
        weights = {key: torch.from_numpy(generated_weight(key, shape, seed)) for key, shape in shapes.items()}
    foreign = [
        key
        for key, digest in fixture.description.get("weight_sha256", {}).items()
        if key not in weights or not _sha256(weights[key]).startswith(digest)
    ]
    if foreign:
        raise CheckpointError("weights differ from the recorded ones (sha256)", where=fixture.where, unexpected=foreign)
    return weights


def generated_weight(key: str, shape: list[int], seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A generated fixture weight: uniform, with standard deviation 1/sqrt(fan in) or 0.1.

    NumPy's legacy RandomState stream is the same on every platform and version.
    """
    # The stream is part of the fixtures' definition.
    stream = np.random.RandomState((zlib.crc32(key.encode()) + seed) & 0xFFFFFFFF)
    values = (stream.random_sample(int(np.prod(shape))) * 2 - 1) * np.sqrt(3.0)
    if len(shape) > 1:
        values = values / np.sqrt(int(np.prod(shape[1:])))
    elif "norm" in key and key.endswith("weight"):
        values = 1 + 0.2 * values
    else:
        values = 0.1 * values
    weight: np.ndarray[Any, np.dtype[np.float32]] = values.reshape(shape).astype(np.float32)
    return weight


def _sha256(tensor: Tensor) -> str:
    return hashlib.sha256(np.ascontiguousarray(tensor.float().numpy()).tobytes()).hexdigest()
