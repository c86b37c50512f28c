"""The file of `animegamer-rt serve --config`: TOML with the settings of `ServeOptions`, read and printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from animegamer_rt.bundle.config import read_record
from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.engine_config import ATTENTIONS, DEVICES, PRECISIONS, SIMULATED
from animegamer_rt.errors import ConfigError

from .options import FIELDS, ServeOptions, check_values

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_BYTES = 1 << 20
ENGINES = {
    "device": ", ".join((*DEVICES, SIMULATED)),
    "precision": f"for torch and torch-cpu: {', '.join(PRECISIONS)}",
    "attention": f"for torch and torch-cpu: {', '.join(ATTENTIONS)}",
    "threads": "CPU threads of cpu, cpu-fp32 and cuda; unset: one per core",
    "frame_size": "of a frame of simulated:SECONDS, WIDTHxHEIGHT in pixels; unset: the bundle's",
}
"""Key of the table `engines` -> its comment."""


def read_config(path: Path) -> ServeOptions:
    """The settings in a file; missing ones keep their defaults.

    Raises ConfigError naming file and key for an unknown key, a wrong type or a value out of range.
    """
    content = read_toml(path, "animegamer-rt serve --print-config prints a file to start from")
    options = read_record(ServeOptions, content, str(path))
    check_values(options, content, lambda name: f"{path}: {name}")
    return options


def read_toml(path: Path, do: str) -> dict[str, Any]:
    """The content of a TOML file. Raises ConfigError for one that cannot be read; do: what helps if it is missing."""
    try:
        return tomllib.loads(read_bounded(path, MAX_BYTES).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        found = (getattr(error, "strerror", None) or str(error)).lower()
        if not isinstance(error, OSError):
            do = "correct it there; texts need quotes"
        raise ConfigError("not a readable TOML file", where=path, found=found, do=do) from error


def print_config(options: ServeOptions) -> str:
    """A file with these settings, each with a comment."""
    lines = ["# Settings of animegamer-rt serve --config FILE. Command-line options override them.", ""]
    for name, field in FIELDS.items():
        if name != "engines":
            lines += _setting(name, getattr(options, name), field.metadata["meaning"])
    lines += ["", "[engines]"]
    for name, meaning in ENGINES.items():
        lines += _setting(name, getattr(options.engines, name), meaning)
    return "\n".join(lines) + "\n"


def _setting(name: str, value: Any, meaning: str) -> list[str]:
    return [f"# {meaning}", f"# {name} is not set" if value is None else f"{name} = {_toml(value)}"]


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
