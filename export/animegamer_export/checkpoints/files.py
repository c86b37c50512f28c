"""Opens checkpoint files memory-mapped, without running code that a pickle may contain."""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from animegamer_rt.errors import CheckpointError

Shape = tuple[int, ...]
FLOATS = ("float16", "bfloat16", "float32", "float64", "F16", "BF16", "F32", "F64")
"""Types of weights, by torch's and safetensors' names."""
DOWNLOAD_AGAIN = "download it again"


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The tensors of one checkpoint: shapes at once, values when asked for.

    non_float: key -> type, for tensors whose type is not one of FLOATS.
    """

    where: Path
    shapes: Mapping[str, Shape]
    read: Callable[[str], Tensor]
    non_float: Mapping[str, str] = field(default_factory=dict)


def open_tensors(tensors: Mapping[str, Tensor], where: Path) -> TensorFile:
    """Tensors in memory (or mapped) as a TensorFile."""
    types = {key: str(value.dtype).removeprefix("torch.") for key, value in tensors.items()}
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    return TensorFile(where, shapes, tensors.__getitem__, _non_float_types(types))


def open_torch(path: Path, inside: str | None = None) -> TensorFile:
    """A torch.save file; `inside` names the dict entry that holds the tensors.

    Only tensors and plain containers are unpickled. The whole file is read once for its checksums. Raises
    CheckpointError for a file that is missing, truncated, damaged, not a PyTorch file, without the entry, or that needs
    code to be run.
    """
    _require(path)
    try:
        # Files older than PyTorch 1.6 are no zip archives: they have no checksums and cannot be mapped.
        zipped = zipfile.is_zipfile(path)
        if zipped:
            _check_sums(path)
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        if code is None:
            raise CheckpointError(
                "damaged, or holds more than plain tensors, which is refused", where=path, do="take the published file"
            ) from error
        raise CheckpointError(
            f"it needs code to be run when it is read ({code[1]}), which is refused",
            where=path,
            do="take the published file, which holds tensors alone",
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"truncated or not a PyTorch file ({_first_line(error)})", where=path, do=DOWNLOAD_AGAIN
        ) from error
    if inside is not None:
        if not isinstance(loaded, Mapping) or inside not in loaded:
            entries = ", ".join(map(str, list(loaded)[:8])) if isinstance(loaded, Mapping) else type(loaded).__name__
            raise CheckpointError(f"no entry {inside!r}; found {entries}", where=path, do="give the checkpoint itself")
        loaded = loaded[inside]
    if not isinstance(loaded, Mapping):
        raise CheckpointError(
            f"holds {type(loaded).__name__}, not named tensors", where=path, do="give the checkpoint itself"
        )
    foreign = [repr(key) for key, value in loaded.items() if not isinstance(value, Tensor) or not isinstance(key, str)]
    if foreign:
        raise CheckpointError(
            "entries that are not tensors with a name", where=path, unexpected=foreign, do="take the published file"
        )
    return open_tensors(loaded, path)


def open_safetensors(path: Path) -> TensorFile:
    """A safetensors file, mapped; the format has no checksums. Raises CheckpointError if missing or truncated."""
    _require(path)
    try:
        # Left open: tensors are read from the mapping later.
        handle: Any = safe_open(path, framework="pt")
        slices = {key: handle.get_slice(key) for key in handle.keys()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"truncated or not a safetensors file ({_first_line(error)})", where=path, do=DOWNLOAD_AGAIN
        ) from error
    shapes = {key: tuple(one.get_shape()) for key, one in slices.items()}
    return TensorFile(
        path, shapes, handle.get_tensor, _non_float_types({key: one.get_dtype() for key, one in slices.items()})
    )


def open_hugging_face(folder: Path) -> TensorFile:
    """The weights of a Hugging Face model folder: safetensors or bin, one file or shards with an index."""
    for name, opener in (("model.safetensors", open_safetensors), ("pytorch_model.bin", open_torch)):
        if (folder / f"{name}.index.json").is_file():
            return _shards(folder, _weight_map(folder / f"{name}.index.json"), opener)
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
        raise CheckpointError(f"not JSON ({_first_line(error)})", where=path, do=DOWNLOAD_AGAIN) from error
    if not isinstance(data, dict):
        raise CheckpointError("not a JSON object", where=path, do=DOWNLOAD_AGAIN)
    return data


def count_pieces(path: Path, do: str) -> int:
    """The number of pieces of a sentencepiece model. Raises CheckpointError with the advice `do` for any other file."""
    _require(path)
    try:
        return int(sentencepiece.SentencePieceProcessor(model_file=str(path)).get_piece_size())
    except (OSError, RuntimeError) as error:
        raise CheckpointError("not a sentencepiece model", where=path, do=do) from error


def _check_sums(path: Path) -> None:
    """Reads the archive once, a megabyte at a time, and compares its checksums."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise CheckpointError(f"damaged: wrong checksum of {damaged}", where=path, do=DOWNLOAD_AGAIN)


def _non_float_types(types: Mapping[str, str]) -> dict[str, str]:
    return {key: name for key, name in types.items() if name not in FLOATS}


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError("the index has no weight_map", where=index, do=DOWNLOAD_AGAIN)
    foreign = sorted({repr(name) for name in weight_map.values() if not _is_plain(name)})
    if foreign:
        raise CheckpointError(
            "the index names files outside its folder", where=index, unexpected=foreign, do=DOWNLOAD_AGAIN
        )
    return weight_map


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and name != "" and Path(name).name == name


def _shards(folder: Path, weight_map: dict[str, str], opener: Callable[[Path], TensorFile]) -> TensorFile:
    files = {name: opener(folder / name) for name in sorted(set(weight_map.values()))}
    absent = [key for key, name in weight_map.items() if key not in files[name].shapes]
    if absent:
        raise CheckpointError(
            "the shards lack keys that their index names", where=folder, missing=absent, do="download them again"
        )
    shapes = {key: files[name].shapes[key] for key, name in weight_map.items()}
    non_float = {key: files[name].non_float[key] for key, name in weight_map.items() if key in files[name].non_float}
    return TensorFile(folder, shapes, lambda key: files[weight_map[key]].read(key), non_float)


def _require(path: Path) -> None:
    if not path.is_file():
        raise CheckpointError("no such file", where=path, do="download it, or see that the folder is the right one")


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
