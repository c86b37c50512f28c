"""Opens checkpoint files memory-mapped, without running pickled code."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sentencepiece
from safetensors import SafetensorError, safe_open
from torch import Tensor

from animegamer_rt.errors import CheckpointError

from .torch_file import DamagedFileError, StandIn, StoredTensor, read_torch_file

Shape = tuple[int, ...]
FLOATS = ("float16", "bfloat16", "float32", "float64", "F16", "BF16", "F32", "F64")
"""Dtypes of weights, by torch's and safetensors' names."""
DOWNLOAD_AGAIN = "download it again"
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
WEB_PAGES = (b"<!doctype html", b"<html", b"<?xml", b"<head")


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The tensors of one checkpoint: shapes immediately, values on request.

    non_float: key -> dtype, for tensors whose dtype is not one of FLOATS.
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

    Runs no code from the file and builds nothing but the entry. Reads the whole file once to verify its checksums
    (files older than PyTorch 1.6 have none). Raises CheckpointError for a file that is missing, truncated, damaged, not
    a PyTorch file or without the entry, or whose tensors would need code to be run.
    """
    _require(path)
    try:
        if zipfile.is_zipfile(path):
            _check_sums(path)
        loaded: Any = read_torch_file(path)
    except (DamagedFileError, OSError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"truncated or not a PyTorch file ({_first_line(error)})", where=path, do=DOWNLOAD_AGAIN
        ) from error
    if inside is not None:
        if not isinstance(loaded, Mapping) or inside not in loaded:
            entries = ", ".join(map(_name, list(loaded)[:8])) if isinstance(loaded, Mapping) else _kind(loaded)
            raise CheckpointError(f"no entry {inside!r}; found {entries}", where=path, do="pass the checkpoint itself")
        loaded = loaded[inside]
    if isinstance(loaded, StandIn):
        raise CheckpointError(
            f"refused: reading it would run code ({loaded.named})",
            where=path,
            do="use the published file, which needs none",
        )
    if not isinstance(loaded, Mapping):
        raise CheckpointError(f"holds {_kind(loaded)}, not named tensors", where=path, do="pass the checkpoint itself")
    foreign = [
        f"{_name(key)} ({_kind(value)})"
        for key, value in loaded.items()
        if not isinstance(value, StoredTensor) or not isinstance(key, str)
    ]
    if foreign:
        raise CheckpointError(
            "entries that are not named tensors", where=path, unexpected=foreign, do="use the published file"
        )
    tensors: dict[str, StoredTensor] = dict(loaded)
    return TensorFile(
        path,
        {key: tensor.shape for key, tensor in tensors.items()},
        lambda key: tensors[key].read(path),
        _non_float_types({key: str(tensor.dtype).removeprefix("torch.") for key, tensor in tensors.items()}),
    )


def open_safetensors(path: Path) -> TensorFile:
    """A mapped safetensors file; the format has no checksums. Raises CheckpointError if missing or truncated."""
    _require(path)
    try:
        # Stays open: tensors are read from the mapping later.
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
        "no weights: found neither model.safetensors nor pytorch_model.bin, nor their shards' index.json",
        where=folder,
        do="pass the language model's folder, with its config.json",
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
    """The number of pieces of a sentencepiece model. Raises CheckpointError with the advice `do` for other files."""
    _require(path)
    try:
        return int(sentencepiece.SentencePieceProcessor(model_file=str(path)).get_piece_size())
    except (OSError, RuntimeError) as error:
        raise CheckpointError("not a sentencepiece model", where=path, do=do) from error


def _check_sums(path: Path) -> None:
    """Reads the archive once, a megabyte at a time, and verifies its checksums."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise CheckpointError(f"damaged: checksum mismatch in {damaged}", where=path, do=DOWNLOAD_AGAIN)


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
            "the shards lack keys listed in their index", where=folder, missing=absent, do="download them again"
        )
    shapes = {key: files[name].shapes[key] for key, name in weight_map.items()}
    non_float = {key: files[name].non_float[key] for key, name in weight_map.items() if key in files[name].non_float}
    return TensorFile(folder, shapes, lambda key: files[weight_map[key]].read(key), non_float)


def _require(path: Path) -> None:
    """Raises CheckpointError unless the file exists and is not a placeholder left by a failed download."""
    if not path.is_file():
        raise CheckpointError("no such file", where=path, do="download it, or check the folder")
    try:
        with path.open("rb") as file:
            start = file.read(200).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    except OSError as error:
        raise CheckpointError(f"unreadable ({_first_line(error)})", where=path, do="check its permissions") from error
    if start.startswith(LFS_POINTER):
        raise CheckpointError(
            "a Git LFS pointer, not the file", where=path, do="run git lfs pull in its folder, or download the file"
        )
    if start.startswith(WEB_PAGES):
        raise CheckpointError(
            "a web page instead of the file",
            where=path,
            do="download the file itself (on Hugging Face, use /resolve/ in the URL instead of /blob/)",
        )


def _kind(value: object) -> str:
    """Describes an entry by the class name in its file."""
    if isinstance(value, StandIn):
        return value.named
    return "a tensor" if isinstance(value, StoredTensor) else type(value).__name__


def _name(key: object) -> str:
    return key if isinstance(key, str) else f"a key of type {_kind(key)}"


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
