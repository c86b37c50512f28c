"""Finds the weight files of a folder, and reads JSON, without PyTorch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from animegamer_rt.bundle.files import LFS_POINTER
from animegamer_rt.bundle.json_file import once
from animegamer_rt.errors import CheckpointError
from animegamer_rt.untrusted import plain

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""In transformers' order: safetensors first, and a whole file before shards, whose index may be left from earlier."""
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
"""PEFT's names."""
DENOISER_FILE = "mp_rank_00_model_states.pt"
DOWNLOAD, DOWNLOAD_AGAIN = "download the file itself", "download it again"
MAX_TEXT = 4096
"""Bytes of what stands in a file instead."""
GGUF = "weights quantised for llama.cpp (GGUF), which cannot be exported"
TAKE_FLOATS = "pass the weights as trained: safetensors or PyTorch files of fp16, bf16 or fp32"
PACKED = "a packed file"
WEB_PAGES = (b"<!doctype html", b"<html", b"<?xml", b"<head")
OTHER_KINDS = (
    ((b"gguf",), GGUF, TAKE_FLOATS),
    ((LFS_POINTER,), "a Git LFS pointer, not the file", "run git lfs pull in its folder, or download the file"),
    ((b"# xet version",), "a Xet pointer, not the file", "download the file itself"),
    (
        WEB_PAGES,
        "a web page instead of the file",
        "download the file itself (on Hugging Face, use /resolve/ in the URL instead of /blob/)",
    ),
    (
        (b'{"error"',),
        "the hub's error instead of the file",
        "log in, and download it again",
    ),
    # Three bytes of gzip, as two may be the length of a safetensors header.
    (
        (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"rar!", b"bzh9", b"\xfd7zxz\0", b'\x04"m\x18'),
        PACKED,
        "unpack it",
    ),
    ((b"\x89hdf",), "a file of Keras (HDF5)", TAKE_FLOATS),
    ((bytes(64),), "begins with zeros: the download was not finished, or the disk failed", DOWNLOAD_AGAIN),
)
"""How files of another kind begin, in lower case; what they are; and what to do."""
UNFINISHED = "of a download that was not finished"
OTHER_NAME = "by another name, or in another folder; if it is this model's, link it to one of these"
IN_PLACE_OF_WEIGHTS = (
    ("*.gguf", GGUF),
    ("*.distcp", "a distributed checkpoint; join it with torch.distributed.checkpoint.format_utils"),
    ("*zero_pp_rank_*", "DeepSpeed's shards; join them with its zero_to_fp32.py"),
    ("*-of-?????.*", "a shard; put its index.json and the other shards here, too"),
    ("*.lnk", "a shortcut of Windows, which is no link"),
    *((f"*.{suffix}", UNFINISHED) for suffix in ("aria2*", "part*", "incomplete", "*download*")),
    *((f"*.{suffix}", f"{PACKED}; unpack it") for suffix in ("zip", "tar*", "t[gx]z", "7z", "rar", "gz", "zst")),
    ("consolidated.*", "Mistral's own form; pass that of transformers"),
    *(
        (f"*.{suffix}{more}", OTHER_NAME)
        for more in ("", ".*")
        for suffix in ("safetensors", "bin", "pt", "pth", "ckpt")
    ),
)
"""Patterns of files in a folder that lacks its weights, and what they are."""


def published_weights(folder: Path) -> list[Path]:
    """The file or index that transformers would take, in a list. Raises CheckpointError if there is none."""
    found = [folder / name for name in WEIGHTS if (folder / name).is_file()][:1]
    if not found:
        raise CheckpointError(
            "no weights: found neither model.safetensors nor pytorch_model.bin, nor their shards' index.json",
            where=folder,
            do="pass the model's folder, with its config.json",
        )
    return found


def trained_weights(folder: Path) -> list[Path]:
    """A trainer's files or indexes: one form of the whole weights, and PEFT's adapter; empty if there is none.

    Raises CheckpointError if the folder holds the whole weights, or the adapter, twice.
    """
    require_readable(folder)
    found = []
    for names in ((DENOISER_FILE,), WEIGHTS[:2], WEIGHTS[2:]):
        found += [name for name in names if (folder / name).is_file()][:1]
    adapters = [name for name in ADAPTERS if (folder / name).is_file()]
    for twice in (found, adapters):
        if len(twice) > 1:
            raise CheckpointError(
                f"the same weights in two files: {' and '.join(twice)}", where=folder, do="keep the right one"
            )
    return [folder / name for name in [*found, *adapters]]


def trained_files(path: Path) -> list[Path]:
    """A trainer's file itself, or the `trained_weights` of a folder. Raises CheckpointError if there are none."""
    found = trained_weights(path) if path.is_dir() else [path]
    if not found:
        raise CheckpointError("no weights", where=path, do="pass the folder or file that training wrote")
    return found


def folder_of(path: Path) -> Path:
    """The folder itself, or the one of a file."""
    return path if path.is_dir() else path.parent


def shards(index: Path) -> dict[str, Path]:
    """The file of each key that an index lists. Raises CheckpointError for files outside the index's folder."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError("the index has no weight_map", where=index, do=DOWNLOAD_AGAIN)
    names = {key: _plain(name) for key, name in weight_map.items()}
    foreign = sorted({repr(weight_map[key]) for key, name in names.items() if name is None})
    if foreign:
        raise CheckpointError(
            "the index names files outside its folder", where=index, unexpected=foreign, do=DOWNLOAD_AGAIN
        )
    return {key: index.parent / name for key, name in names.items() if name is not None}


def read_with_shards(paths: Iterable[Path]) -> list[Path]:
    """The files themselves, and those that an index among them names."""
    found: list[Path] = []
    for path in paths:
        found += [path, *sorted(set(shards(path).values()))] if path.name.endswith(".index.json") else [path]
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, in any encoding of Unicode. Raises CheckpointError, also for a duplicate key."""
    require_file(path)
    try:
        data = json.loads(path.read_bytes(), object_pairs_hook=once)
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"not JSON ({first_line(error)})", where=path, do=DOWNLOAD_AGAIN) from error
    if not isinstance(data, dict):
        raise CheckpointError("not a JSON object", where=path, do=DOWNLOAD_AGAIN)
    return data


def read_text(path: Path) -> str:
    """A small text file, in any encoding of Unicode. Raises CheckpointError."""
    require_file(path)
    content = path.read_bytes()
    return content.decode(json.detect_encoding(content), "replace")


def require_readable(folder: Path) -> None:
    """Raises CheckpointError for a folder that exists and that this user may not read."""
    if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK):
        raise CheckpointError("a folder that this user may not read", where=folder, do="check its permissions")


def require_file(path: Path) -> None:
    """Raises CheckpointError unless the file exists, its download was finished, and it is none of OTHER_KINDS."""
    try:
        if not path.is_file():
            raise CheckpointError("no such file", where=path, do="download it, or check the folder")
        if path.with_name(f"{path.name}.aria2").is_file():
            do = f"continue it with aria2c, or remove {path.name}.aria2 if the file is whole"
            raise CheckpointError("its download was not finished", where=path, do=do)
        with path.open("rb") as file:
            start = file.read(512)
    except OSError as error:
        raise CheckpointError(f"unreadable ({first_line(error)})", where=path, do="check its permissions") from error
    if start[257:262] == b"ustar":
        raise CheckpointError(f"{PACKED} (tar)", where=path, do="unpack it")
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for beginnings, what, do in OTHER_KINDS:
        if text.startswith(beginnings):
            raise CheckpointError(what, where=path, do=do)


def not_as_named(path: Path, what: str) -> CheckpointError:
    """The error of weights that cannot be read; a short text in their place, as of a server or a link, is quoted."""
    content = path.read_bytes() if path.stat().st_size <= MAX_TEXT else b"\0"
    if content.isascii() and b"\0" not in content:
        text = plain(content.decode().strip())
        return CheckpointError(
            f"a text instead of the file: {text:.100}" if text else "an empty file", where=path, do=DOWNLOAD
        )
    return CheckpointError(what, where=path, do=DOWNLOAD_AGAIN)


def in_place_of_weights(folder: Path) -> str:
    """Words about the files in a folder without its weights, or nothing."""
    for pattern, what in (*IN_PLACE_OF_WEIGHTS, ("*", "")):
        for path in sorted(folder.glob(f"**/{pattern}")):
            what = "a folder" if what and path.is_dir() else what if path.exists() else "a link that leads nowhere"
            if what:
                return f" (found {path.relative_to(folder)}: {what})"
    return ""


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its class."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _plain(name: object) -> str | None:
    """A name inside the index's folder, also written as `./name` or `.\\name`; None for any other."""
    parts = PurePosixPath(name.replace("\\", "/")).parts if isinstance(name, str) else ()
    return parts[0] if len(parts) == 1 and parts[0] not in ("/", "..") else None
