"""Reads plain mappings (JSON) into frozen dataclasses; the error for an unknown key suggests the nearest known one."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from animegamer_rt import untrusted
from animegamer_rt.errors import ConfigError

T = TypeVar("T")
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text in quotes"}


def read_record(kind: type[T], data: object, where: str) -> T:
    """`data` as an instance of the dataclass `kind`, including nested dataclasses, tuples and mappings of them.

    Raises ConfigError for an unknown key (with the nearest known one), a missing key, or a value of another type.
    """
    if not isinstance(data, Mapping):
        raise ConfigError("not a table of settings", where=where, found=type(data).__name__, expected="a JSON object")
    hints, required = _fields(typing.cast(typing.Any, kind))
    for key in data:
        if key not in hints:
            raise ConfigError(f"unknown key {key!r}", where=where, do=suggest(str(key), hints))
    values = {key: _read_value(hints[key], value, f"{where}: {key}") for key, value in data.items()}
    for name in required:
        if name not in values:
            raise ConfigError(f"the key {name!r} is missing", where=where)
    try:
        return kind(**values)
    except ConfigError as error:
        if error.where is not None:
            raise
        raise ConfigError(error.what, where=where, found=error.found, expected=error.expected, do=error.do) from error


@functools.cache
def _fields(kind: type[Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The types of a dataclass's fields by name, and the names of those without a default."""
    hints, fields = typing.get_type_hints(kind), dataclasses.fields(kind)
    missing = dataclasses.MISSING
    required = (field.name for field in fields if field.default is missing and field.default_factory is missing)
    return {field.name: hints[field.name] for field in fields}, tuple(required)


def write_record(record: object) -> Any:
    """The plain JSON-ready form of a dataclass: the inverse of `read_record`."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: write_record(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {str(key): write_record(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [write_record(value) for value in record]
    return record


def suggest(name: str, known: Iterable[str]) -> str:
    """Advice for an unknown `name`: the nearest known name, else all of them."""
    names = sorted(known)
    return suggest_only(name, names) or f"known: {', '.join(names) or 'none'}"


def suggest_only(name: str, known: Iterable[str]) -> str | None:
    """The nearest known name, as a question; None if none is near. For errors that list all names anyway."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else None


def check_choice(value: str, allowed: tuple[str, ...], where: str) -> str:
    """`value` if it is one of `allowed`. Raises ConfigError with the nearest otherwise."""
    if value not in allowed:
        raise ConfigError("not a known value", where=where, found=repr(value), do=suggest(value, allowed))
    return value


def check_range(value: float, low: float, high: float, where: str) -> None:
    """Raises ConfigError if a number is not within `low` to `high`; NaN is not."""
    if not low <= value <= high:
        raise ConfigError("out of range", where=where, found=value, expected=f"{low} to {high}")


def _read_value(hint: Any, value: object, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _read_value(next(kind for kind in arguments if kind is not type(None)), value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read_record(hint, value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise _mismatch(value, "a list", where)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_read_value(arguments[0], item, f"{where}[{n}]") for n, item in enumerate(value))
        if len(value) != len(arguments):
            raise _mismatch(value, f"a list of {len(arguments)}", where)
        return tuple(_read_value(kind, item, where) for kind, item in zip(arguments, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _mismatch(value, "a JSON object", where)
        name = int if arguments[0] is int else str
        return {name(key): _read_value(arguments[1], item, f"{where}: {key}") for key, item in value.items()}
    if hint is Path and isinstance(value, str):
        try:
            return untrusted.path(value)
        except ValueError as error:
            raise ConfigError("not a path", where=where, found=str(error)) from error
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ConfigError("out of range", where=where, found="a number of over 300 digits") from error
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise _mismatch(value, KINDS.get(hint, hint.__name__), where)
    return value


def _mismatch(value: object, expected: str, where: str) -> ConfigError:
    return ConfigError("wrong type of value", where=where, found=f"{value!r:.60}", expected=expected)
