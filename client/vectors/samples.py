"""The valid messages in vectors.json: at least one of every type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from animegamer_rt.serving.wire import Message, Sender

TOKEN = "N1vQ0hJ3tqkHk2bXgq3V0mZ9aYwXr5uE"
SESSION = "5f2c9a7be1d04c38"
WAVE = "Character: Mia; Motion: gently wave; Background: day town."  # in golden bytes: do not change
CHARACTER = {"stamina": 45, "social": 60, "entertainment": 50}
STRENGTHS = {"motion_level": 2, "social": 2, "entertainment": 0, "stamina": -1}
BUNDLE = {
    "name": "pocket",
    "fingerprint": "3f9c81aa",
    "plan": "balanced",
    "height": 96,
    "width": 144,
    "frames": 17,
    "fps": 8.5,
    "random_weights": False,
}
LIMITS = {"text_characters": 500, "header_bytes": 65536, "turns_a_minute": 60, "sessions": 1000, "queue": 32}


@dataclass(frozen=True, slots=True)
class Sample:
    """A valid message. `frame_1`: equivalent bytes that our encoder would not write."""

    name: str
    sender: Sender
    message: Message
    frame_1: bytes | None = None


def _ask(name: str, type: str, session: str | None = None, turn: int | None = None, **fields: Any) -> Sample:
    return Sample(name, "client", Message(type, fields, id="7", session=session, turn=turn))


def _answer(name: str, type: str, session: str | None = None, **fields: Any) -> Sample:
    return Sample(name, "server", Message(type, fields, parent="7", session=session))


def _event(name: str, type: str, seq: int, *buffers: bytes, **fields: Any) -> Sample:
    return Sample(name, "server", Message(type, fields, parent="7", session=SESSION, turn=3, seq=seq, buffers=buffers))


FRAME = {"index": 0, "count": 17, "dtype": "uint8", "width": 2, "height": 2}
_UNDERSTOOD: dict[str, Any] = {
    "people": [{"name": "Mia", "clothes": "raincoat"}, {"name": "Tobo", "clothes": "everyday"}],
    "motion": "run",
    "level": 5,
    "place": "town",
    "hour": "night",
    "position": "left",
    "caption": "Character: Mia in a raincoat and Tobo in everyday clothes on the left; Motion: wildly run; "
    "Background: night town.",
    "unknown": [],
    "text": "Mia in a raincoat and Tobo in everyday clothes run wildly, town, night",
}
_STATUS: dict[str, Any] = {
    "version": "0.2.0",
    "protocol": "1.0",
    "state": "ready",
    "bundle": "pocket",
    "plan": "balanced",
    "uptime_s": 3600.5,
    "turns_done": 120,
    "sessions": 4,
    "connections": 2,
    "queue": 1,
    "running": 1,
}

SAMPLES = (
    _ask("hello, least", "hello", versions=[1], client="example 1.0"),
    _ask(
        "hello, all",
        "hello",
        versions=[1, 2],
        client="example 1.0",
        pixel_format="bgra32",
        flip=True,
        codec="jpeg",
        jpeg_quality=85,
        clip=True,
    ),
    _ask("open, new", "open", seed=3, history_turns=4),
    _ask("open, largest seed", "open", seed=2**63 - 1),
    _ask("open, resume", "open", token=TOKEN),
    _ask("turn", "turn", SESSION, instruction=WAVE, turn_id="a-1", token=TOKEN),
    _ask(
        "turn, all", "turn", SESSION, instruction="Mia naïvely dances 踊る", turn_id="a-2", deadline_s=12.5, token=TOKEN
    ),
    _ask("replay", "replay", SESSION, 3, token=TOKEN, after_seq=4),
    Sample("rewind", "client", Message("rewind", {"token": TOKEN, "turn": 0}, id="7", session=SESSION)),
    Sample("branch", "client", Message("branch", {"token": TOKEN, "turn": 2, "seed": 4}, id="7", session=SESSION)),
    _ask("list", "list", SESSION, token=TOKEN, before=101),
    _ask("export", "export", SESSION, token=TOKEN),
    _ask("close", "close", SESSION, token=TOKEN),
    _ask("cancel", "cancel", SESSION, token=TOKEN),
    _ask("ping", "ping"),
    _ask("status, asked", "status"),
    _ask("hello, of 1.1", "hello", versions=[1], client="example 1.1", minor=1),
    _ask("open, with the motion of a picture", "open", seed=4, motion="gently wave"),
    Sample("ping without id", "client", Message("ping")),
    Sample(
        "ping with keys and fields of the future",
        "client",
        Message("ping", id="7"),
        msgpack.packb({"colour": "red", "fields": {"why": [1, None, {"a": b"b"}]}, "id": "7", "type": "ping"}),
    ),
    Sample("ping without fields", "client", Message("ping", id="7"), msgpack.packb({"type": "ping", "id": "7"})),
    _answer(
        "welcome",
        "welcome",
        version=1,
        server="animegamer-rt 0.2.0",
        protocol="1.0",
        bundle=BUNDLE,
        capabilities=["jpeg", "mp4"],
        limits=LIMITS,
        state="ready",
    ),
    _answer(
        "welcome, of a bundle that reads everyday words",
        "welcome",
        version=1,
        server="animegamer-rt 0.2.0",
        protocol="1.1",
        bundle={
            **BUNDLE,
            "people": ["Mia", "Tobo"],
            "motions": ["run", "wave"],
            "places": ["town"],
            "hours": ["day", "night"],
            "clothes": ["everyday", "raincoat"],
            "manners": ["barely", "gently", "smoothly", "quickly", "wildly"],
        },
        capabilities=["jpeg", "mp4"],
        limits=LIMITS,
        state="ready",
    ),
    _answer("opened", "opened", SESSION, token=TOKEN, seed=3, history_turns=4, turns=2, character=CHARACTER),
    _answer(
        "opened, a turn runs",
        "opened",
        SESSION,
        token=TOKEN,
        seed=3,
        history_turns=4,
        turns=2,
        character=CHARACTER,
        running={"turn": 3, "turn_id": "a-1"},
    ),
    _answer(
        "opened, from a picture",
        "opened",
        SESSION,
        token=TOKEN,
        seed=4,
        history_turns=4,
        turns=0,
        character={"stamina": 50, "social": 50, "entertainment": 50},
        understood={name: value for name, value in _UNDERSTOOD.items() if name != "unknown"},
    ),
    _answer("rewound", "rewound", SESSION, turns=0, character={"stamina": 50, "social": 50, "entertainment": 50}),
    _answer(
        "listed",
        "listed",
        SESSION,
        turns=[{"turn": 1, "turn_id": "a-0", "instruction": WAVE, **STRENGTHS}],
        more=False,
    ),
    _answer(
        "exported",
        "exported",
        SESSION,
        folder="state/exports/5f2c9a7be1d04c38-1",
        turns=1,
        files=["turn-001.mp4", "game.json"],
    ),
    _answer("closed", "closed", SESSION),
    _answer("cancelling", "cancelling", SESSION, running=True),
    _event("accepted", "accepted", 0, turn_id="a-1", place=0, estimate_s=1.25, instruction=WAVE, replayed=False),
    Sample(
        "understood",
        "server",
        Message("understood", _UNDERSTOOD, parent="7", session=SESSION, turn=3),
    ),
    Sample(
        "understood, with a notice",
        "server",
        Message(
            "understood",
            {
                **_UNDERSTOOD,
                "unknown": ["explodes"],
                "notice": 'not understood: "explodes"; pocket reads English and knows Mia; run; town',
            },
            parent="7",
            session=SESSION,
            turn=3,
        ),
    ),
    Sample("offer", "server", Message("offer", {"instructions": [WAVE]}, session=SESSION, turn=3)),
    _event(
        "state",
        "state",
        1,
        **STRENGTHS,
        character=CHARACTER,
        shown={**CHARACTER, "entertainment": 45},
        motion_scope=2.5,
    ),
    _event("progress", "progress", 2, step=1, steps=10, seconds_left=0.75),
    _answer("progress of an export", "progress", SESSION, step=1, steps=2, seconds_left=0.75),
    _event(
        "frame, raw",
        "frame",
        12,
        bytes(range(16)),
        **FRAME,
        stride=8,
        pixel_format="rgba32",
        codec="raw",
    ),
    _event(
        "frame, raw, padded rows",
        "frame",
        12,
        bytes(range(16)),
        **FRAME,
        stride=8,
        pixel_format="rgb24",
        codec="raw",
    ),
    _event("frame, jpeg", "frame", 12, b"\xff\xd8\xff\xd9", **FRAME, stride=0, pixel_format="rgb24", codec="jpeg"),
    _event("clip", "clip", 29, b"\x00\x00\x00\x08free", index=0, last=True, codec="mp4"),
    _event(
        "done",
        "done",
        30,
        seconds={"queue": 0.25, "predictor": 0.125, "denoiser": 0.75, "vae": 0.5, "total": 1.375},
        turns=3,
    ),
    Sample(
        "restarting",
        "server",
        Message("restarting", {"attempt": 1, "retry_in_s": 0.5}, parent="7", session=SESSION, turn=3),
    ),
    _answer("pong", "pong"),
    _answer(
        "status, answered",
        "status",
        **_STATUS,
        worker={"state": "busy", "pid": 4711, "restarts": 1, "last_error": "exit code -9", "resident_mib": 310.5},
        seconds={"queue": 0.25, "predictor": 0.125, "denoiser": 0.75, "vae": 0.5, "total": 1.375},
    ),
    _answer(
        "status, answered while starting",
        "status",
        **{**_STATUS, "state": "starting", "turns_done": 0},
        worker={"state": "starting", "restarts": 0},
        seconds={},
    ),
    _answer("error", "error", code="busy", text="32 turns wait already", do="try again after some seconds"),
    Sample("error without a request", "server", Message("error", {"code": "protocol", "text": "no message"})),
    Sample(
        "error that ends a turn",
        "server",
        Message("error", {"code": "cancelled", "text": "the turn was stopped"}, parent="7", session=SESSION, turn=3),
    ),
)


EXAMPLE_TURN = Message(
    "turn",
    {"instruction": "Tofi waves gently in the meadow.", "turn_id": "a-1", "token": TOKEN},
    id="7",
    session=SESSION,
)
"""The request that PROTOCOL.md shows, in words that the bundle pocket knows."""
