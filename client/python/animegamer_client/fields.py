"""Read the fields of a message by name and type. Each function raises ProtocolError, which names the field."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .errors import ProtocolError

T = TypeVar("T")
Fields = Mapping[str, Any]


def integer(fields: Fields, name: str) -> int:
    """A whole number."""
    value = _field(fields, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else _bad(name, value, "a whole number")


def number(fields: Fields, name: str) -> float:
    """A number; the protocol allows an integer where it says float."""
    value = _field(fields, name)
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else _bad(name, value, "a number")
    )


def text(fields: Fields, name: str) -> str:
    """Text."""
    value = _field(fields, name)
    return value if isinstance(value, str) else _bad(name, value, "text")


def flag(fields: Fields, name: str) -> bool:
    """True or false."""
    value = _field(fields, name)
    return value if isinstance(value, bool) else _bad(name, value, "true or false")


def nested(fields: Fields, name: str) -> Fields:
    """A map."""
    value = _field(fields, name)
    return value if isinstance(value, Mapping) else _bad(name, value, "a map")


def several(fields: Fields, name: str) -> list[Any]:
    """A list."""
    value = _field(fields, name)
    return list(value) if isinstance(value, list | tuple) else _bad(name, value, "a list")


def words(fields: Fields, name: str) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(str(word) for word in several(fields, name))


def read(kind: type[T], found: Fields, **given: Any) -> T:
    """An object of a dataclass: each field is read by its type, or is `given`. One with a default may be missing."""
    constructor: Any = kind  # typeshed takes no type variable's type for hashable
    values = {
        name: reader(found, name)
        for name, (reader, required) in _readers(constructor).items()
        if name not in given and (required or name in found)
    }
    return kind(**values, **given)


@functools.cache
def _readers(kind: Any) -> dict[str, tuple[Callable[[Fields, str], Any], bool]]:
    """Field of a dataclass -> its reader, and whether it is required."""
    hints, all_fields = get_type_hints(kind), dataclasses.fields(kind)
    return {each.name: (_reader(hints[each.name]), each.default is dataclasses.MISSING) for each in all_fields}


def _reader(kind: Any) -> Callable[[Fields, str], Any]:
    if get_origin(kind) is types.UnionType:  # X | None
        (kind,) = (each for each in get_args(kind) if each is not types.NoneType)
    if isinstance(kind, type) and is_dataclass(kind):
        return lambda found, name: read(kind, nested(found, name))
    if get_origin(kind) is tuple and is_dataclass(get_args(kind)[0]):
        return lambda found, name: tuple(read(get_args(kind)[0], each) for each in several(found, name))
    known: dict[Any, Callable[[Fields, str], Any]] = {int: integer, float: number, str: text, bool: flag}
    return known.get(kind) or (words if get_origin(kind) is tuple else nested)


def _field(fields: Fields, name: str) -> object:
    if name not in fields:
        raise ProtocolError(f"the server's message lacks the field {name!r}", code="missing_field")
    return fields[name]


def _bad(name: str, value: object, expected: str) -> Any:
    raise ProtocolError(f"the server sent {value!r:.80} as {name!r}; expected {expected}", code="bad_field")
