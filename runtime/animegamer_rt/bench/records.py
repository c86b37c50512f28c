"""Reads benchmark records: one JSON file for each run of `animegamer-rt bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from animegamer_rt.bundle import json_file
from animegamer_rt.errors import ConfigError

Record = dict[str, Any]


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


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises ConfigError."""
    try:
        return json_file.read_json(path)
    except (OSError, ValueError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        do = "give a file that `animegamer-rt bench` wrote"
        raise ConfigError("the record cannot be read", where=path, found=found, do=do) from error
