"""Bundles named `hf:owner/name@revision`: downloaded once, checked by the manifest's hashes, then found on the disk."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from animegamer_rt.errors import BundleFileError, BundleFormatError, BundleNotFoundError, ConfigError
from animegamer_rt.untrusted import short

from .files import lock_folder, make_folder, require_space, user_data_folder
from .hub import NO_SPACE_HINT, Repository, download, read_repository
from .manifest import Manifest

PREFIX = "hf:"
_NAME = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)@([\w][\w./-]*)")
_COMMIT = re.compile(r"[0-9a-f]{40}")
MANIFEST = "manifest.json"
PARTS = ".parts"


def hub_bundle(name: str, read_manifest: Callable[[Path], Manifest], verify: Callable[[Path], object]) -> Path:
    """The folder of the bundle `hf:owner/name@revision` in the user's data folder, downloaded if it is missing.

    An existing full commit needs no network; a branch or tag is resolved each time. read_manifest: reads the manifest
    at a path; verify: raises for a folder whose files do not match the manifest. The folder appears once all of it is
    verified. Raises ConfigError for a malformed name, HubError, BundleError and OutputError.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        do, form = "add the commit, tag or branch, as in hf:owner/name@main", "hf:owner/name@revision"
        raise ConfigError("not the name of a bundle on the hub", found=short(name), expected=form, do=do)
    repository, revision = found.groups()
    root = user_data_folder() / "bundles"
    if _COMMIT.fullmatch(revision) and (place := _place(root, repository, revision)).is_dir():
        return place
    held = read_repository(repository, revision)
    place = _place(root, repository, held.commit)
    if not place.is_dir():
        _download(held, place, read_manifest, verify)
    return place


def _place(root: Path, repository: str, commit: str) -> Path:
    return root / f"{repository.replace('/', '--')}@{commit}"


def _download(
    held: Repository, place: Path, read_manifest: Callable[[Path], Manifest], verify: Callable[[Path], object]
) -> None:
    """Downloads into a hidden folder next to `place`, which the next attempt continues after an interruption."""
    if MANIFEST not in held.files:
        do = "check the name and the revision"
        raise BundleNotFoundError("the repository is not a bundle", where=held.name, expected=MANIFEST, do=do)
    stage = place.with_name(f".{place.name}")
    make_folder(stage)
    with lock_folder(stage):
        if place.is_dir():
            return
        parts = stage / PARTS
        download(held, held.files[MANIFEST], stage / MANIFEST, parts)
        try:
            names = _files_of(held, read_manifest(stage / MANIFEST))
            missing = [name for name in names if not _is_there(held, stage, name)]
            require_space(stage, sum(held.files[name].bytes for name in missing), NO_SPACE_HINT)
            for name in missing:
                download(held, held.files[name], stage / name, parts)
            shutil.rmtree(parts, ignore_errors=True)
            verify(stage)
        except (BundleFormatError, BundleFileError):
            shutil.rmtree(stage, ignore_errors=True)  # the repository is at fault: nothing to continue
            raise
        os.replace(stage, place)


def _files_of(held: Repository, manifest: Manifest) -> list[str]:
    """The manifest's files. Raises BundleFileError unless the repository has each, as described by the manifest."""
    for name, record in manifest.files.items():
        file = held.files.get(name)
        if file is None:
            raise BundleFileError("the repository lacks a file of its manifest", where=f"{held.name}/{name}", do=_TELL)
        if file.bytes != record.bytes or (len(file.digest) == 64 and file.digest != record.sha256):
            raise BundleFileError(
                "the repository's file does not match its manifest",
                where=f"{held.name}/{name}",
                found=f"{file.bytes} bytes, {file.digest[:16]}..",
                expected=f"{record.bytes} bytes, sha256 {record.sha256[:16]}..",
                do=_TELL,
            )
    return list(manifest.files)


_TELL = "use another revision, or report it to the repository's owner; the download was deleted"


def _is_there(held: Repository, stage: Path, name: str) -> bool:
    path = stage / name
    return path.is_file() and held.files[name].matches(path)
