"""Reads `manifest.json` of a bundle's folder, and refuses one that is of another format or impossible."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from animegamer_rt.errors import BundleFileError, BundleFormatError, BundleNotFoundError, ConfigError, PlanError

from .config import read_record
from .denoise_plan import DenoisePlan
from .files import LFS_POINTER
from .json_file import read_json
from .manifest import (
    EXACT,
    FORMAT_NAME,
    FORMAT_VERSION,
    PARTS_FORMAT_VERSION,
    READER_FORMAT_VERSION,
    Manifest,
)
from .roles import CACHE_PREFIX, CHOICES, graph_names

MANIFEST = "manifest.json"
FORMAT_VERSIONS = (FORMAT_VERSION, READER_FORMAT_VERSION, PARTS_FORMAT_VERSION)
MAX_SIZE = 2**40
"""Limit of a network's `sizes`; the largest one is the number of positions."""
FIX_MANIFEST = "build the bundle again, or correct the manifest"


def read_manifest(path: Path) -> Manifest:
    """The checked manifest at a path. Raises BundleNotFoundError, BundleFileError or BundleFormatError."""
    if not is_file(path):
        raise BundleNotFoundError("no bundle here", where=path.parent, expected=f"a folder with a {MANIFEST}")
    try:
        data = read_json(path)
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        refuse_pointer(path)
        raise BundleFormatError(
            "the manifest is not readable JSON",
            where=path,
            found=str(error),
            do="restore the file, or build the bundle again",
        ) from error
    if not isinstance(data, Mapping) or data.get("format") != FORMAT_NAME:
        raise BundleFormatError(
            "not a bundle's manifest",
            where=path,
            found=f"format {data.get('format')!r}" if isinstance(data, Mapping) else type(data).__name__,
            expected=f'"format": "{FORMAT_NAME}"',
            do="give a bundle's folder",
        )
    version = data.get("format_version")
    if version not in FORMAT_VERSIONS:
        newer = isinstance(version, int) and version > FORMAT_VERSIONS[-1]
        raise BundleFormatError(
            f"the bundle's format is {'newer' if newer else 'older'} than this program",
            where=path,
            found=f"format_version {version!r}",
            expected=f"one of {', '.join(map(str, FORMAT_VERSIONS))}",
            do="update animegamer-rt" if newer else "build the bundle again",
        )
    try:
        manifest = read_record(Manifest, data, str(path))
    except ConfigError as error:
        raise BundleFormatError(str(error), do=FIX_MANIFEST) from error
    check_manifest(manifest, path)
    return manifest


def unreadable(path: Path, error: OSError) -> BundleFileError:
    """The error for a file of a bundle that cannot be read."""
    return BundleFileError(
        "the bundle's file cannot be read",
        where=path,
        found=(error.strerror or str(error)).lower(),
        do="check its permissions, or restore the file",
    )


def refuse_pointer(path: Path) -> None:
    """Raises BundleFileError if Git LFS left its pointer in the file's place."""
    with path.open("rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            fetch = "run git lfs pull in its folder, or download the file"
            raise BundleFileError("a Git LFS pointer, not the file", where=path, do=fetch)


def check_manifest(manifest: Manifest, path: Path) -> None:
    """Raises BundleFormatError if the manifest names files outside the folder or without a hash, or an invalid plan."""

    def wrong(what: str, found: object, expected: str | None = None) -> BundleFormatError:
        return BundleFormatError(what, where=path, found=found, expected=expected, do=FIX_MANIFEST)

    for name in [*named_files(manifest), *manifest.files]:
        parts = PurePosixPath(name).parts
        if PurePosixPath(name).is_absolute() or ".." in parts or "\\" in name or ":" in name or not name.isprintable():
            raise wrong("a file name leads out of the bundle", repr(name))
        if name not in manifest.files:
            raise wrong("a file has no size and hash in `files`", repr(name))
    for network, sizes in manifest.sizes.items():
        if not isinstance(sizes, Mapping) or any(_impossible_size(size) for size in sizes.values()):
            raise wrong("not the sizes of a network", f"sizes: {network}")
    defaults = [name for name, entry in manifest.plans.items() if entry.default]
    if len(defaults) != 1:
        raise wrong("not exactly one plan is the default", defaults or "none")
    for name, entry in manifest.plans.items():
        try:
            DenoisePlan.from_dict(entry.plan)
        except PlanError as error:
            raise BundleFormatError(f"plan {name!r}: {error}", where=path, do=FIX_MANIFEST) from error
        if entry.parts and name == EXACT:
            raise wrong(f"the plan {EXACT!r} names parts", dict(entry.parts), "the default parts")
        for role, part in entry.parts.items():
            if role not in CHOICES:
                raise wrong(f"plan {name!r} names a part for another role", role, f"one of {', '.join(CHOICES)}")
            for graph, default in zip(graph_names(role, part), graph_names(role), strict=True):
                for one in {graph, default} - manifest.parts.keys():
                    raise wrong(f"plan {name!r} names a part without all its graphs", ", ".join(manifest.parts), one)
                for kind in ("inputs", "outputs"):
                    own, usual = (_tensors(getattr(manifest.parts[one], kind)) for one in (graph, default))
                    if own != usual:
                        what = f"plan {name!r}: the part {part!r} has other {kind} than {role!r}"
                        raise wrong(what, f"{graph}: {own}", str(usual))


def _tensors(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors shared by the runtime and a part; caches are the part's own."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(CACHE_PREFIX)}


def _impossible_size(size: object) -> bool:
    """Sizes are numbers from 0, or lists of them; a network's name or setting may be text."""
    if isinstance(size, (list, tuple)):
        return any(_impossible_size(one) for one in size)
    return not isinstance(size, str) and not (isinstance(size, (int, float)) and 0 <= size <= MAX_SIZE)


def named_files(manifest: Manifest) -> Iterable[str]:
    """The files of a manifest's parts, tokenizers and engines."""
    for part in manifest.parts.values():
        yield from part.files
    yield manifest.tokenizer.model
    yield manifest.tokenizer.added_tokens
    yield manifest.motion_tokenizer.model
    if manifest.reader is not None and manifest.reader.language:
        yield manifest.reader.language
    for engine in manifest.engines.values():
        yield engine.file


def is_file(path: Path) -> bool:
    """Whether there is a file; False for an impossible path."""
    # Path.is_file raises for a name that is too long, or in an inaccessible folder.
    return os.path.isfile(path)
