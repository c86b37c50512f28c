"""Opening checkpoint files: memory-mapped, and without running any code a pickle may carry.

It does not know what the tensors are for.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from animegamer_rt.errors import CheckpointError

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The tensors of one checkpoint: shapes at once, values when asked for."""

    where: Path
    shapes: Mapping[str, Shape]
    read: Callable[[str], Tensor]


def open_tensors(tensors: Mapping[str, Tensor], where: Path) -> TensorFile:
    """Tensors in memory (or mapped) as a TensorFile."""
    return TensorFile(where, {key: tuple(value.shape) for key, value in tensors.items()}, tensors.__getitem__)


def open_torch(path: Path, inside: str | None = None) -> TensorFile:
    """A torch.save file; `inside` names the dict entry that holds the tensors.

    Only tensors and plain containers are unpickled. Raises CheckpointError for a file that is missing, cut short, no
    PyTorch file, asks for code to be run, or lacks the entry.
    """
    _require(path)
    try:
        # Files older than PyTorch 1.6 are no zip archives and cannot be mapped.
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"not plain tensors ({_first_line(error)})",
            where=path,
            do="it is damaged or asks for code to be run, which is refused; take the published file",
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"cut short or not a PyTorch file ({_first_line(error)})", where=path, do="download it again"
        ) from error
    if inside is not None:
        if not isinstance(loaded, Mapping) or inside not in loaded:
            entries = ", ".join(map(str, list(loaded)[:8])) if isinstance(loaded, Mapping) else type(loaded).__name__
            raise CheckpointError(f"no entry {inside!r}; found {entries}", where=path, do="give the checkpoint itself")
        loaded = loaded[inside]
    if not isinstance(loaded, Mapping):
        raise CheckpointError(f"holds {type(loaded).__name__}, not named tensors", where=path)
    foreign = [str(key) for key, value in loaded.items() if not isinstance(value, Tensor)]
    if foreign:
        raise CheckpointError("entries that are not tensors", where=path, unexpected=foreign)
    return open_tensors(loaded, path)


def open_safetensors(path: Path) -> TensorFile:
    """A safetensors file, mapped. Raises CheckpointError for a file that is missing or cut short."""
    _require(path)
    try:
        # Left open: tensors are read from the mapping later.
        handle: Any = safe_open(path, framework="pt")
        shapes = {key: tuple(handle.get_slice(key).get_shape()) for key in handle.keys()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"cut short or not a safetensors file ({_first_line(error)})", where=path, do="download it again"
        ) from error
    return TensorFile(path, shapes, handle.get_tensor)


def open_hugging_face(folder: Path) -> TensorFile:
    """The weights of a Hugging Face model folder: safetensors or bin, one file or shards with their index."""
    for name, opener in (("model.safetensors", open_safetensors), ("pytorch_model.bin", open_torch)):
        if (folder / f"{name}.index.json").is_file():
            weight_map = read_json(folder / f"{name}.index.json").get("weight_map")
            if not isinstance(weight_map, dict):
                raise CheckpointError("the index has no weight_map", where=folder / f"{name}.index.json")
            return _shards(folder, weight_map, opener)
        if (folder / name).is_file():
            return opener(folder / name)
    raise CheckpointError(
        "no weights: neither model.safetensors nor pytorch_model.bin, whole or with an index.json",
        where=folder,
        do="give the folder of the language model with its config.json",
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises CheckpointError naming the file."""
    _require(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"not JSON ({_first_line(error)})", where=path) from error
    if not isinstance(data, dict):
        raise CheckpointError("not a JSON object", where=path)
    return data


def _shards(folder: Path, weight_map: dict[str, str], opener: Callable[[Path], TensorFile]) -> TensorFile:
    files = {name: opener(folder / name) for name in sorted(set(weight_map.values()))}
    absent = [key for key, name in weight_map.items() if key not in files[name].shapes]
    if absent:
        raise CheckpointError("the shards lack keys that their index names", where=folder, missing=absent)
    shapes = {key: files[name].shapes[key] for key, name in weight_map.items()}
    return TensorFile(folder, shapes, lambda key: files[weight_map[key]].read(key))


def _require(path: Path) -> None:
    if not path.is_file():
        raise CheckpointError("no such file", where=path)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
