"""Describes the fields of a message (six kinds, with bounds), and checks received values against that.

Knows nothing of which messages there are, of msgpack or of frames.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from animegamer_rt.errors import ProtocolError

Kind = Literal["str", "int", "float", "bool", "map", "list"]
Sender = Literal["client", "server"]


@dataclass(frozen=True, slots=True)
class Field:
    """One named value of a message. An absent optional field means `default`, or what `doc` says.

    least, most: of the value (int, float), of its characters (str) or of its items (list), both included.
    choices: the values a str may have; `open`: a later minor version may send others, so they are not checked.
    of: the fields of a map, or the one field (without a name) that each item of a list is.
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
    """One type of message: who sends it on which sockets, its header keys, fields and buffers, and what answers it.

    optional_buffers: how many more than `buffers` there may be.
    sockets: "T" (turns), "C" (control) or both. header: the header keys that must be there, beside `type`.
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


def validate_fields(fields: Sequence[Field], values: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """The fields of `values` that the table has, checked. Others are left out, as the protocol says.

    Raises ProtocolError: missing_field, bad_field.
    """
    known: dict[str, Any] = {}
    for field in fields:
        if field.name in values:
            known[field.name] = _value(field, values[field.name], where)
        elif field.required:
            raise ProtocolError("a field is missing", code="missing_field", where=f"{where}.{field.name}")
    return known


def bad_field(where: str, found: object, expected: str) -> ProtocolError:
    """The error for a value of the wrong kind or out of bounds. A deep or long value is shown shortened."""
    return ProtocolError(
        "a field has a value that it may not have",
        code="bad_field",
        where=where,
        found=reprlib.repr(found),
        expected=expected,
    )


def is_int(value: object) -> bool:
    """Whether it is a msgpack integer. A boolean is not, although it is an int in Python."""
    return isinstance(value, int) and not isinstance(value, bool)


def _value(field: Field, value: Any, where: str) -> Any:
    size: int | float | None = None
    if field.kind == "str":
        good = isinstance(value, str) and (field.open or not field.choices or value in field.choices)
        size = len(value) if good else None
    elif field.kind == "int":
        good = is_int(value)
        size = value if good else None
    elif field.kind == "float":
        good = (is_int(value) or isinstance(value, float)) and math.isfinite(value)
        size = value if good else None
    elif field.kind == "bool":
        good = isinstance(value, bool)
    elif field.kind == "map":
        good = isinstance(value, dict)
    else:
        good = isinstance(value, list)
        size = len(value) if good else None
    if size is not None:
        good = (field.least is None or size >= field.least) and (field.most is None or size <= field.most)
    if not good:
        raise bad_field(_path(where, field), value, allowed(field))
    if field.kind == "map" and field.of:
        return validate_fields(field.of, value, _path(where, field))
    if field.kind == "list":
        path = _path(where, field)
        return [_value(field.of[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
    return value


def _path(where: str, field: Field) -> str:
    return f"{where}.{field.name}" if field.name else where


def allowed(field: Field) -> str:
    """What a field may hold, in words: `int, 1..100`."""
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
