"""The table of messages as a JSON Schema of frame 1, for clients that generate their types or check in tests."""

from __future__ import annotations

from typing import Any

from animegamer_rt.serving.wire import (
    CLIENT_LIMITS,
    CODES,
    HEADER,
    MESSAGES,
    SERVER_LIMITS,
    VERSION,
    Field,
    MessageType,
)

_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "map": "object", "list": "array"}
_BOUNDS = {
    "str": ("minLength", "maxLength"),
    "list": ("minItems", "maxItems"),
    "int": ("minimum", "maximum"),
    "float": ("minimum", "maximum"),
}


def schema() -> dict[str, Any]:
    """One definition a message, named sender.type."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:animegamer:protocol:{VERSION}",
        "title": "Frame 1 of every message; made by client/vectors/make.py",
        "x-limits": {
            limits.sender: {
                "header_bytes": limits.header_bytes,
                "buffer_bytes": limits.buffer_bytes,
                "buffers": limits.buffers,
                "items": limits.items,
            }
            for limits in (CLIENT_LIMITS, SERVER_LIMITS)
        },
        "x-codes": {code: {"meaning": meaning, "do": do} for code, (meaning, do) in CODES.items()},
        "$defs": {
            f"{sender}.{kind.type}": _message(kind) for sender, kinds in MESSAGES.items() for kind in kinds.values()
        },
    }


def _message(kind: MessageType) -> dict[str, Any]:
    properties = {key.name: _value(key) for key in HEADER}
    properties["type"] = {"const": kind.type}
    properties["fields"] = _fields(kind.fields)
    needs_fields = any(field.required for field in kind.fields)
    return {
        "description": kind.doc,
        "x-since": kind.since,
        "x-sockets": kind.sockets,
        "x-buffers": kind.buffers,
        **({"x-optional-buffers": kind.optional_buffers} if kind.optional_buffers else {}),
        "x-answers": list(kind.answers),
        "type": "object",
        "required": ["type", *kind.header, *(["fields"] if needs_fields else [])],
        "properties": properties,
    }


def _fields(fields: tuple[Field, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": [field.name for field in fields if field.required],
        "properties": {field.name: _value(field) for field in fields},
    }


def _value(field: Field) -> dict[str, Any]:
    value: dict[str, Any] = {"type": _TYPES[field.kind]}
    if field.kind == "map" and field.of:
        value = _fields(field.of)
    if field.kind == "list":
        value["items"] = _value(field.of[0])
    for name, bound in zip(_BOUNDS.get(field.kind, ()), (field.least, field.most), strict=False):
        if bound is not None:
            value[name] = bound
    if field.choices:
        value["examples" if field.open else "enum"] = list(field.choices)
    if field.default is not None:
        value["default"] = field.default
    if field.doc:
        value["description"] = field.doc
    if field.unit:
        value["x-unit"] = field.unit
    value["x-since"] = field.since
    return value
