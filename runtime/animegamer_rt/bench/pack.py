"""`animegamer-rt bench pack RECORD`: one file to share: the record, a trace, what doctor found, and the licence.

A pack is a zip file. Whatever reads a record reads a pack, too: `bench verify`, `bench compare` and `bench show`.
"""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from animegamer_rt.bundle import json_file
from animegamer_rt.bundle.files import read_bounded, write_file
from animegamer_rt.diagnose.doctor import findings
from animegamer_rt.errors import ConfigError
from animegamer_rt.profiling.host import describe_host

from .records import DOCTOR_IN_PACK, LICENCE_IN_PACK, PACK_SUFFIX, RECORD_IN_PACK, TRACE_IN_PACK, read_json
from .report import quote
from .verify import problems

LICENCE = """\
This record of a measurement is shared under the Creative Commons Attribution 4.0 licence
(CC-BY-4.0, https://creativecommons.org/licenses/by/4.0/): use it for anything and name where it comes from.

{}
"""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every file in a pack, so that the same content gives the same bytes."""


def pack(record_path: Path, trace: Path | None, folder: Path) -> Path:
    """Write RECORD's pack into `folder`; returns its path.

    What doctor finds is left out if the record is of another machine. Raises ConfigError for a record that is not
    sound or a trace that is no JSON, and OutputError.
    """
    record = read_json(record_path)
    if wrong := list(problems(record)):
        found, do = wrong[0], f"see: animegamer-rt bench verify {shlex.quote(str(record_path))}"
        raise ConfigError("the record is not sound, so it is not packed", where=record_path, found=found, do=do)
    content: dict[str, Any] = {RECORD_IN_PACK: record}
    if trace is not None:
        content[TRACE_IN_PACK] = _trace(trace)
    if str(record["machine"]).endswith(describe_host()):
        content[DOCTOR_IN_PACK] = findings(str(record["bundle"]))
    texts = {name: json.dumps(value, indent=1) + "\n" for name, value in content.items()}
    path = folder / f"{record_path.stem}{PACK_SUFFIX}"
    write_file(path, _zipped({**texts, LICENCE_IN_PACK: LICENCE.format(quote(record))}))
    return path


def _trace(path: Path) -> Any:
    try:
        return json_file.parse_json(read_bounded(path, json_file.MAX_BYTES))
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise ConfigError("not a trace", where=path, found=found, do="give what `--trace FILE` wrote") from error


def _zipped(texts: Mapping[str, str]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), text, zipfile.ZIP_DEFLATED)
    return written.getvalue()
