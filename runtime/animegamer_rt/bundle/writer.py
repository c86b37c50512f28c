"""Writes a bundle's manifest: measures every file in it, and replaces `manifest.json` atomically."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from animegamer_rt.errors import BundleFileError

from .config import write_record
from .files import sha256, write_file
from .loader import Bundle
from .manifest import (
    FORMAT_NAME,
    FORMAT_VERSION,
    PARTS_FORMAT_VERSION,
    READER_FORMAT_VERSION,
    FileRecord,
    Manifest,
)
from .manifest_file import FIX_MANIFEST, MANIFEST, check_manifest, named_files


def write_manifest(folder: str | Path, manifest: Manifest, changed: Collection[str] | None = None) -> Bundle:
    """Hashes the files of the manifest's parts, tokenizer and engines, and writes `manifest.json`.

    Replaces whatever `manifest.files` had; with `changed`, only for those files, as reading all of a full-size bundle
    takes a minute. The manifest appears complete or not at all.
    """
    folder = Path(folder)
    manifest = with_files(folder, manifest, changed)
    fields = write_record(manifest)
    if manifest.reader is None:
        del fields["reader"]  # programs before READER_FORMAT_VERSION refuse the key
    if manifest.format_version < PARTS_FORMAT_VERSION:  # and these keys, those before PARTS_FORMAT_VERSION
        for key, records_with in (("parts", fields["plans"]), ("network", fields["parts"])):
            for record in records_with.values():
                del record[key]
    text = json.dumps(fields, indent=1, ensure_ascii=False)
    check_manifest(manifest, folder / MANIFEST)
    write_file(folder / MANIFEST, (text + "\n").encode())
    return Bundle(folder, manifest)


def with_files(folder: Path, manifest: Manifest, changed: Collection[str] | None = None) -> Manifest:
    """The manifest with its files' sizes and hashes, as `write_manifest` would write it."""
    records = {}
    for name in named_files(manifest):
        if not (folder / name).is_file():
            raise BundleFileError("a file of the manifest is missing", where=folder / name, do=FIX_MANIFEST)
        if changed is not None and name not in changed and name in manifest.files:
            records[name] = manifest.files[name]
            continue
        records[name] = FileRecord((folder / name).stat().st_size, sha256(folder / name))
    return replace(manifest, format=FORMAT_NAME, format_version=_format_version(manifest), files=records)


def _format_version(manifest: Manifest) -> int:
    """The oldest format that can express it, so that no program refuses a bundle that it could play."""
    if any(entry.parts for entry in manifest.plans.values()) or any(part.network for part in manifest.parts.values()):
        return PARTS_FORMAT_VERSION
    return FORMAT_VERSION if manifest.reader is None else READER_FORMAT_VERSION
