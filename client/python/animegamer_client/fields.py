"""Read a field of a message by name and type. Each function raises ProtocolError, which names the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import ProtocolError

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


def _field(fields: Fields, name: str) -> object:
    if name not in fields:
        raise ProtocolError(f"the server's message lacks the field {name!r}", code="missing_field")
    return fields[name]


def _bad(name: str, value: object, expected: str) -> Any:
    raise ProtocolError(f"the server sent {value!r:.80} as {name!r}; expected {expected}", code="bad_field")
