"""The parts of PROTOCOL.md that are made from the table of messages, as Markdown: tables, and messages as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from animegamer_rt.language.answers import ANSWERS
from animegamer_rt.serving.wire.codec import CLIENT_LIMITS, SERVER_LIMITS, Message, encode
from animegamer_rt.serving.wire.schema import CODES, HEADER, MESSAGES, Field, MessageType, Sender, allowed

_SOCKETS = {"T": "turns", "C": "control", "TC": "turns, control"}


EXAMPLE_TURN = Message(
    "turn",
    {
        "instruction": "Tofi waves gently in the meadow.",
        "turn_id": "a-1",
        "token": "N1vQ0hJ3tqkHk2bXgq3V0mZ9aYwXr5uE",
    },
    id="7",
    session="5f2c9a7be1d04c38",
)
"""The request that PROTOCOL.md shows, in words that the bundle pocket knows."""


def parts(golden: list[dict[str, Any]]) -> dict[str, str]:
    """Name of a part in PROTOCOL.md -> its Markdown. golden: the valid messages of vectors.json."""
    picture = next(vector["frames"] for vector in golden if vector["name"] == "frame, raw")
    return {
        "bytes of turn": _bytes_of([bytes(frame) for frame in encode(EXAMPLE_TURN)]),
        "bytes of frame": _bytes_of([bytes.fromhex(frame) for frame in picture]),
        "header": _field_table(HEADER),
        "limits": _limits(),
        "requests": _messages("client"),
        "answers": _messages("server"),
        "codes": _codes(),
        "what is answered": _answers(),
    }


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _field_table(fields: tuple[Field, ...]) -> str:
    head = ("Name", "Kind", "Unit", "Required", "Since", "Meaning")
    return _table(head, list(_rows(fields, "")))


def _rows(fields: tuple[Field, ...], prefix: str) -> Iterator[tuple[str, ...]]:
    for field in fields:
        name = f"{prefix}{field.name}"
        default = "" if field.default is None else f", else {_shown(field.default)}"
        required = "yes" if field.required else f"no{default}"
        yield f"`{name}`", allowed(field), field.unit, required, field.since, field.doc
        inner = field.of[0].of if field.kind == "list" else field.of
        yield from _rows(inner, f"{name}[]." if field.kind == "list" else f"{name}.")


def _shown(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _messages(sender: Sender) -> str:
    return "\n\n".join(_message(kind) for kind in MESSAGES[sender].values())


def _message(kind: MessageType) -> str:
    about = [f"Socket: {_SOCKETS[kind.sockets]}", f"since {kind.since}"]
    if kind.header:
        about.append("header: " + ", ".join(f"`{key}`" for key in kind.header))
    if kind.buffers:
        about.append(f"buffers: {kind.buffers}")
    if kind.optional_buffers:
        about.append(f"buffers: at most {kind.optional_buffers}")
    if kind.answers:
        about.append("answers: " + ", ".join(f"`{answer}`" for answer in kind.answers))
    fields = _field_table(kind.fields) if kind.fields else "No fields."
    return f"### {kind.type}\n\n{kind.doc}\n{'; '.join(about)}.\n\n{fields}"


def _codes() -> str:
    rows: list[tuple[str, ...]] = [(f"`{code}`", meaning, do) for code, (meaning, do) in CODES.items()]
    return _table(("Code", "Meaning", "What to do"), rows)


def _answers() -> str:
    rows: list[tuple[str, ...]] = [
        (f"`{code}`", row.kind, ", ".join(f"`{name}`" for name in row.fields), row.doc) for code, row in ANSWERS.items()
    ]
    return _table(("Code", "Kind", "Fields", "Meaning"), rows)


def _limits() -> str:
    rows = [
        (f"from the {limits.sender}", *(f"{number:,}" for number in numbers))
        for limits in (CLIENT_LIMITS, SERVER_LIMITS)
        for numbers in [(limits.header_bytes, limits.buffers, limits.buffer_bytes, limits.items)]
    ]
    return _table(("Message", "Header, bytes", "Buffers", "One buffer, bytes", "Items of a list or map"), rows)


def _bytes_of(frames: list[bytes]) -> str:
    lines = []
    for number, frame in enumerate(frames):
        lines.append(f"frame {number}, {len(frame)} bytes")
        for start in range(0, len(frame), 16):
            row = frame[start : start + 16]
            text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            lines.append(f"  {start:04x}  {row.hex(' '):<47}  {text}".rstrip())
    return "```\n" + "\n".join(lines) + "\n```"
