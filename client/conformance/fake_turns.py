"""The fake server's bundle, and the events of a turn, whose pictures depend on seed, turn and index."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from animegamer_client.codec import Message

HEIGHT, WIDTH, FRAMES = 4, 6, 3
CHANNELS = {"rgb24": 3, "rgba32": 4, "bgra32": 4}
PADDING = 2
PNG = b"\x89PNG\r\n\x1a\n"
_VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "vectors.json").read_text(encoding="utf-8"))
_GOLDEN: dict[str, Any] = {vector["name"]: vector["header"]["fields"] for vector in _VECTORS["messages"]}
STATUS = _GOLDEN["status, answered"]
UNDERSTOOD, UNDERSTOOD_OTHERWISE = _GOLDEN["understood"], _GOLDEN["understood, with a notice"]
"""The second of an instruction that has one of its `unknown` words."""
ANSWERS = [
    {"code": "came", "people": ["Mia", "Tobo"]},
    {"code": "substitute", "people": ["Mia"], "value": "run", "words": ["explodes", "bursts"]},
    {"code": "of_tomorrow", "weather": None},
]
"""Told the player in codes, by servers of 1.3: with `understood`, and why an instruction is not."""
SEEN = _GOLDEN["opened, from a picture"]["understood"]
"""The scene of a start picture."""
OWN = {"name": "fake", "height": HEIGHT, "width": WIDTH, "frames": FRAMES}
BUNDLE = {**_GOLDEN["welcome"]["bundle"], **OWN}
READING_BUNDLE = {**_GOLDEN["welcome, of a bundle that reads everyday words"]["bundle"], **OWN}
TEXT_CHARACTERS = 500
VALUES = {"stamina": 50, "social": 55, "entertainment": 50}
STRENGTHS = {"motion_level": 2, "social": 1, "entertainment": 0, "stamina": 0}


@dataclass
class FakeGame:
    """A session; `turns` are its finished ones, as in `listed`."""

    session: str
    token: str
    seed: int
    turns: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False


@dataclass
class Running:
    """A turn that is waiting or running. seq: of the event that is due; route: the client to send events to."""

    game: FakeGame
    number: int
    instruction: str
    turn_id: str
    parent: str | None
    seq: int
    replayed: bool
    route: bytes


def welcome(minor: int, client_minor: int) -> dict[str, Any]:
    """The fields of `welcome` of a server with this minor version, without its state."""
    limits = {
        "text_characters": TEXT_CHARACTERS,
        "header_bytes": 65536,
        "turns_a_minute": 60,
        "sessions": 8,
        "queue": 8,
    }
    bundle = {**(READING_BUNDLE if minor else BUNDLE), **({"weather": None} if minor > 1 else {})}
    capabilities = ["picture"] if min(minor, client_minor) > 1 else []
    about = {"version": 1, "server": "fake 1", "protocol": f"1.{minor}", "bundle": bundle}
    return {**about, "capabilities": capabilities, "limits": limits}


def turn_events(running: Running, hello: Message | None) -> list[Message]:
    """The events of a turn; the pictures depend on seed, turn and index, as a real server's do."""
    wishes = hello.fields if hello is not None else {}
    accepted = {
        "turn_id": running.turn_id,
        "place": 0,
        "estimate_s": 1.0,
        "instruction": running.instruction,
        "replayed": running.replayed,
    }
    state = {**STRENGTHS, "character": VALUES, "shown": {**VALUES, "entertainment": 45}, "motion_scope": 2.5}
    messages = [Message("accepted", accepted), Message("state", state)]
    messages += [Message("progress", {"step": k, "steps": 2, "seconds_left": 0.1 * (2 - k)}) for k in (1, 2)]
    if wishes.get("codec", "raw") != "mp4":
        pixel_format = wishes.get("pixel_format", "rgba32")
        for index in range(FRAMES):
            rows = frame_rows(running.game.seed, running.number, index, CHANNELS[pixel_format])
            layout = {"dtype": "uint8", "width": WIDTH, "height": HEIGHT, "stride": rows.shape[1]}
            layout |= {"pixel_format": pixel_format, "codec": "raw", "index": index, "count": FRAMES}
            data = rows.tobytes()
            if wishes.get("codec") == "jpeg":
                layout |= {"codec": "jpeg", "stride": 0}
                data = b"\xff\xd8 picture"
            messages.append(Message("frame", layout, buffers=(data,)))
    if wishes.get("clip") or wishes.get("codec") == "mp4":
        for index, data in enumerate((b"ftyp", b"moof")):
            fields = {"index": index, "last": index == 1, "codec": "mp4"}
            messages.append(Message("clip", fields, buffers=(data,)))
    seconds = {"queue": 0.0, "predictor": 0.1, "denoiser": 0.2, "vae": 0.3, "total": 0.6}
    messages.append(Message("done", {"seconds": seconds, "turns": 0}))
    session, turn = running.game.session, running.number
    return [replace(message, seq=seq, session=session, turn=turn) for seq, message in enumerate(messages)]


def frame_rows(seed: int, turn: int, index: int, channels: int) -> np.ndarray:
    """The rows of a picture as sent, with padding at the end of each, uint8 [height, stride]."""
    rows = np.full((HEIGHT, WIDTH * channels + PADDING), (10 * turn + index + seed) % 256, np.uint8)
    rows[:, -PADDING:] = 255
    return rows
