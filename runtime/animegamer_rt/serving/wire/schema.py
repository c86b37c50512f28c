"""The table of all messages, read from protocol.json: their fields (six kinds, with bounds), sockets and answers.

In the file, a field that is a string stands for the fields of that name in `shared`, and `like` for one of them with
changes. `strengths` and `values` are those of the game's state. A kind `whole` is an int from 0 to 2^63-1. `since`, the
version that introduced a message or field, also holds for the fields inside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from animegamer_rt.state import game

Kind = Literal["str", "int", "float", "bool", "map", "list"]
Sender = Literal["client", "server"]


@dataclass(frozen=True, slots=True)
class Field:
    """One named value of a message. If an optional field is absent, `default` applies, or what `doc` says.

    least, most: inclusive bounds on the value (int, float), its characters (str) or its items (list).
    choices: the values a str may have; `open`: a later minor version may send others, so they are not checked.
    of: the fields of a map, or the one unnamed field that describes a list's items.
    """

    name: str
    kind: Kind
    doc: str
    unit: str = ""
    required: bool = True
    default: str | int | bool | None = None
    least: int | float | None = None
    most: int | float | None = None
    choices: tuple[str, ...] = ()
    open: bool = False
    of: tuple[Field, ...] = ()
    since: str = "1.0"


@dataclass(frozen=True, slots=True)
class MessageType:
    """One type of message: its sender and sockets, its header keys, fields and buffers, and its answers.

    optional_buffers: how many more than `buffers` there may be. sockets: "T" (turns), "C" (control) or both. header:
    the header keys required besides `type`.
    """

    sender: Sender
    type: str
    doc: str
    sockets: str = "T"
    header: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    buffers: int = 0
    optional_buffers: int = 0
    answers: tuple[str, ...] = ()
    since: str = "1.0"

    def field(self, name: str) -> Field:
        """The field of this name."""
        return next(field for field in self.fields if field.name == name)


def allowed(field: Field) -> str:
    """A field's allowed values as text: `int, 1..100`."""
    words: str = field.kind
    if field.kind == "list":
        words = f"list of {field.of[0].kind}"
    if field.choices:
        words += ", " + ("for example " if field.open else "") + " | ".join(field.choices)
    unit = {"str": " characters", "list": " items"}.get(field.kind, "")
    if field.least is not None and field.most is not None:
        most = "2^63-1" if field.most == 2**63 - 1 else field.most
        words += f", {field.least}..{most}{unit}"
    elif field.least is not None:
        words += f", {field.least} or more{unit}"
    elif field.most is not None:
        words += f", at most {field.most}{unit}"
    return words


def _shared(table: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    motion = "Level of motion: 1 (slowest) to 5 (fastest); 0 and below ask for as much motion as 5."
    strengths, values = [], []
    for name in game.STRENGTHS:
        doc = f"Change of the {name} value: five points for each unit." if name in game.VALUES else motion
        strengths.append({"name": name, "kind": "int", "doc": doc, "unit": "strength", "least": -5, "most": 5})
    for name in game.VALUES:
        doc = f"The character's {name}."
        values.append({"name": name, "kind": "int", "doc": doc, "unit": "points", "least": 0, "most": 100})
    return {**table["shared"], "strengths": strengths, "values": values}


def _fields(rows: Sequence[Any], since: str) -> Iterator[Field]:
    for row in rows:
        if isinstance(row, str):
            yield from _fields(_SHARED[row], since)
            continue
        row = {**_SHARED[row["like"]][0], **row} if "like" in row else dict(row)
        row.pop("like", None)
        if row["kind"] == "whole":
            row = {"least": 0, "most": 2**63 - 1, **row, "kind": "int"}
        own = row.setdefault("since", since)
        of, choices = tuple(_fields(row.pop("of", ()), own)), tuple(row.pop("choices", ()))
        yield Field(**{"name": "", "doc": "", **row, "of": of, "choices": choices})


def _messages(sender: Sender) -> Mapping[str, MessageType]:
    read = {}
    for type, row in _TABLE[sender].items():
        lists = {name: tuple(row.get(name, ())) for name in ("header", "answers")}
        fields = tuple(_fields(row.get("fields", ()), row.get("since", "1.0")))
        read[type] = MessageType(sender, type, **{**row, **lists, "fields": fields})
    return MappingProxyType(read)


def _most(field: Field) -> int:
    assert isinstance(field.most, int)
    return field.most


_TABLE = json.loads(Path(__file__).with_name("protocol.json").read_text(encoding="utf-8"))
_SHARED = _shared(_TABLE)

VERSION: str = _TABLE["version"]
"""Version of the protocol, `major.minor`; the package has its own version."""
HEADER = tuple(_fields(_TABLE["header"], "1.0"))
"""The keys of frame 1."""
MESSAGES: Mapping[Sender, Mapping[str, MessageType]] = MappingProxyType(
    {"client": _messages("client"), "server": _messages("server")}
)
"""Sender -> type -> message. `status` is both a request and its answer."""
CODES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {code: (row["meaning"], row["do"]) for code, row in _TABLE["codes"].items()}
)
"""Code -> (meaning, what to do). A later minor version may add codes: show an unknown one's text and `do`."""

PIXEL_FORMATS = MESSAGES["client"]["hello"].field("pixel_format").choices
CODECS = MESSAGES["client"]["hello"].field("codec").choices
STAGES: Mapping[str, str] = {field.name: field.since for field in MESSAGES["server"]["done"].field("seconds").of}
"""Stage of a turn's seconds -> version that introduced it; `total` is the whole turn without the queue."""
MAX_NAME_CHARACTERS = _most(next(key for key in HEADER if key.name == "id"))
"""Longest message type, request id, session id or turn id."""
MAX_LISTED = _most(MESSAGES["server"]["listed"].field("turns"))
"""Turns in one `listed`. At four bytes per character they fill 240 KiB of the 256 KiB of a header."""
MAX_OFFERED = _most(MESSAGES["server"]["offer"].field("instructions"))
"""Turns of a session that may be offered as ready."""
MAX_FILES = _most(MESSAGES["server"]["exported"].field("files"))
"""File names in one `exported`."""
