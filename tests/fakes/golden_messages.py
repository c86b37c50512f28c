"""The golden messages of client/vectors, as frames, and the clips that each client must show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
VECTORS = json.loads((ROOT / "client" / "vectors" / "vectors.json").read_text(encoding="utf-8"))
DISPLAY: list[dict[str, Any]] = json.loads((ROOT / "client/vectors/display.json").read_text(encoding="utf-8"))
MESSAGES: list[dict[str, Any]] = VECTORS["messages"]
REFUSED: list[dict[str, Any]] = VECTORS["refused"]


def frames(vector: dict[str, Any]) -> list[bytes]:
    """The vector's bytes."""
    return [
        bytes.fromhex(frame) if isinstance(frame, str) else bytes.fromhex(frame["hex"]) * frame["times"]
        for frame in vector["frames"]
    ]


def header(message: Any) -> dict[str, Any]:
    """A decoded message's header, as the vectors write it."""
    keys = ("type", "id", "parent", "session", "turn", "seq")
    present = {key: getattr(message, key) for key in keys if getattr(message, key) is not None}
    return {**present, "fields": dict(message.fields)}
