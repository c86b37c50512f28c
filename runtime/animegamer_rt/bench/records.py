"""Reads and seals benchmark records: one JSON file for each run of `animegamer-rt bench`, or a pack that holds it."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from animegamer_rt.bundle import json_file
from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.errors import ConfigError
from animegamer_rt.untrusted import short

Record = dict[str, Any]
TURN_FORMAT = 2
"""Version of the records of turns."""
UPDATE = "read it with a newer animegamer-rt"
SEAL = "record_sha256"
PACK_SUFFIX = ".zip"
IN_PACK = ("record.json", "trace.json", "doctor.json", "LICENCE.txt")
RECORD_IN_PACK, TRACE_IN_PACK, DOCTOR_IN_PACK, LICENCE_IN_PACK = IN_PACK


def read_records(folder: Path, kind: str = "turn") -> list[Record]:
    """All records of one kind in a folder, oldest first. A record without `kind` is of turns.

    Other JSON files in the folder, such as a trace, have no date and are skipped. Raises ConfigError for a file that is
    not JSON.
    """
    found = map(read_json, sorted(folder.glob("*.json")))
    chosen = [
        record
        for record in found
        if isinstance(record, dict) and "date" in record and record.get("kind", "turn") == kind
    ]
    return sorted(chosen, key=lambda record: str(record["date"]))


def of_newer_version(record: object) -> bool:
    """Whether a later version wrote a record, whose fields may mean something else."""
    return isinstance(record, dict) and isinstance(record.get("format"), int) and record["format"] > TURN_FORMAT


def was_changed(record: object) -> bool:
    """Whether a record has a seal that is not of its fields. The first records had none."""
    return isinstance(record, dict) and SEAL in record and seal(record)[SEAL] != record[SEAL]


def read_json(path: Path) -> Any:
    """The content of a JSON file, or of the record in a pack. Raises ConfigError."""
    try:
        content = read_bounded(path, json_file.MAX_BYTES)
        is_pack = path.suffix == PACK_SUFFIX or content.startswith(b"PK")
        return json_file.parse_json(_unpacked(content) if is_pack else content)
    except (OSError, ValueError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        do = "give a file that `animegamer-rt bench` wrote"
        raise ConfigError("the record cannot be read", where=path, found=found, do=do) from error


def _unpacked(pack: bytes) -> bytes:
    """The record of a pack. Raises ValueError."""
    try:
        with zipfile.ZipFile(io.BytesIO(pack)) as archive:
            with archive.open(RECORD_IN_PACK) as record:
                content = record.read(json_file.MAX_BYTES + 1)
            names = archive.namelist()
    except (zipfile.BadZipFile, KeyError, RuntimeError, zlib.error, EOFError) as error:
        raise ValueError(f"no zip file with a {RECORD_IN_PACK}: {error}") from error
    if others := [name for name in names if name not in IN_PACK]:
        raise ValueError(f"it holds {short(others[0])}, which `bench pack` does not write")
    if len(names) > len(set(names)):
        raise ValueError("it holds a file twice")
    if len(content) > json_file.MAX_BYTES:
        raise ValueError(f"its {RECORD_IN_PACK} is larger than {json_file.MAX_BYTES} bytes")
    return content


def seal(record: Mapping[str, Any]) -> Record:
    """The record with the hash of its other fields, which shows a change by hand (not one that means to deceive)."""
    content = {name: value for name, value in record.items() if name != SEAL}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {**content, SEAL: hashlib.sha256(text.encode()).hexdigest()}
