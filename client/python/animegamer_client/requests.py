"""The requests of the protocol: one function each, which returns the call that waits for its answer."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from .calls import Call, CloseCall, ExportCall, PictureCall, TurnCall, session_message
from .codec import Message
from .events import Character
from .fields import flag, integer, nested, read, several, words
from .responses import Exported, LoggedTurn, SessionInfo


def open_new(
    seed: int | None, history_turns: int | None, picture: bytes | None = None, motion: str | None = None
) -> Call[SessionInfo]:
    """Start a game, optionally from a picture; the server chooses what is None."""
    fields = {"seed": seed, "history_turns": history_turns, "motion": motion}
    given = {name: value for name, value in fields.items() if value is not None}
    if picture is None:
        return Call(Message("open", given), "opened", SessionInfo.read)
    return PictureCall(Message("open", given, buffers=(picture,)), "opened", SessionInfo.read)


def resume(token: str) -> Call[SessionInfo]:
    """Continue the game of this token."""
    return Call(Message("open", {"token": token}), "opened", SessionInfo.read)


def new_turn(session: SessionInfo, instruction: str, turn_id: str | None, deadline_s: float | None) -> TurnCall:
    """Play the next turn. If the server knows `turn_id`, it sends that turn's events and adds no turn."""
    fields: dict[str, Any] = {"instruction": instruction, "turn_id": turn_id or str(uuid.uuid4())}
    if deadline_s is not None:
        fields["deadline_s"] = float(deadline_s)
    return TurnCall(session, session_message(session, "turn", fields))


def wish(session: SessionInfo, instructions: Iterable[str]) -> Call[tuple[str, ...]]:
    """What the next turn may be; the result is what the server will try to have ready."""
    request = session_message(session, "wish", {"instructions": list(instructions)})
    return Call(request, "wished", lambda message: words(message.fields, "instructions"), session)


def replay(session: SessionInfo, turn: int, after_seq: int) -> TurnCall:
    """The events of a finished or running turn, from after `after_seq`."""
    return TurnCall(session, session_message(session, "replay", {"after_seq": after_seq}, turn=turn), turn, after_seq)


def rewind(session: SessionInfo, turn: int) -> Call[None]:
    """Delete the turns after this one."""

    def on_rewound(message: Message) -> None:
        session.turns = integer(message.fields, "turns")
        session.character = read(Character, nested(message.fields, "character"))

    return Call(session_message(session, "rewind", {"turn": turn}), "rewound", on_rewound, session)


def branch(session: SessionInfo, turn: int, seed: int | None) -> Call[SessionInfo]:
    """A second game with the same turns up to this one."""
    fields = {"turn": turn} if seed is None else {"turn": turn, "seed": seed}
    return Call(session_message(session, "branch", fields), "opened", SessionInfo.read, session)


def page(session: SessionInfo, before: int | None) -> Call[tuple[list[LoggedTurn], bool]]:
    """A page of the log, and whether earlier turns exist."""

    def on_listed(message: Message) -> tuple[list[LoggedTurn], bool]:
        turns = [read(LoggedTurn, entry) for entry in several(message.fields, "turns")]
        return turns, flag(message.fields, "more")

    fields = {} if before is None else {"before": before}
    return Call(session_message(session, "list", fields), "listed", on_listed, session)


def export(session: SessionInfo) -> Call[Exported]:
    """Write the game to a folder on the server's machine."""
    return ExportCall(session)


def close(session: SessionInfo) -> Call[None]:
    """End the session for good."""
    return CloseCall(session)


def cancel(session: SessionInfo) -> Call[bool]:
    """Stop the running turn; the result is whether there was one."""
    return Call(session_message(session, "cancel"), "cancelling", lambda message: flag(message.fields, "running"))


def ping() -> Call[None]:
    """Ask for a `pong`."""
    return Call(Message("ping"), "pong", lambda _: None)


def status() -> Call[dict[str, Any]]:
    """The fields of the server's `status`."""
    return Call(Message("status"), "status", lambda message: dict(message.fields))
