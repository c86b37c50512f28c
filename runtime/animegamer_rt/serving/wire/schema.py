"""Describes a message and its fields (six kinds, with bounds)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
