"""What a client may ask of a server: a function a request, as the call that waits for its answer.

Knows the protocol's fields; how a call goes is `calls`'.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from .answers import Exported, LoggedTurn, Seat
from .calls import Call, CloseCall, ExportCall, TurnCall, seated
from .codec import Message
from .events import Character
from .fields import flag, integer, nested, several


def open_new(seed: int | None, history_turns: int | None) -> Call[Seat]:
    """A new game; None leaves the choice to the server."""
    wishes = {"seed": seed, "history_turns": history_turns}
    return Call(Message("open", {k: v for k, v in wishes.items() if v is not None}), "opened", Seat.read)


def open_again(token: str) -> Call[Seat]:
    """The game of this token."""
    return Call(Message("open", {"token": token}), "opened", Seat.read)


def new_turn(seat: Seat, instruction: str, turn_id: str | None, deadline_s: float | None) -> TurnCall:
    """The next turn. With a turn_id that is known the server answers as it did, and adds no turn."""
    fields: dict[str, Any] = {"instruction": instruction, "turn_id": turn_id or str(uuid.uuid4())}
    if deadline_s is not None:
        fields["deadline_s"] = float(deadline_s)
    return TurnCall(seat, seated(seat, "turn", fields))


def replay(seat: Seat, turn: int, after_seq: int) -> TurnCall:
    """A finished turn's events once more, or a running one's."""
    return TurnCall(seat, seated(seat, "replay", {"after_seq": after_seq}, turn=turn), turn, after_seq)


def rewind(seat: Seat, turn: int) -> Call[None]:
    """Forget the turns after this one."""

    def read(message: Message) -> None:
        seat.turns = integer(message.fields, "turns")
        seat.character = Character.read(nested(message.fields, "character"))

    return Call(seated(seat, "rewind", {"turn": turn}), "rewound", read, seat)


def branch(seat: Seat, turn: int, seed: int | None) -> Call[Seat]:
    """A second game with the same first turns."""
    fields = {"turn": turn} if seed is None else {"turn": turn, "seed": seed}
    return Call(seated(seat, "branch", fields), "opened", Seat.read, seat)


def page(seat: Seat, before: int | None) -> Call[tuple[list[LoggedTurn], bool]]:
    """A page of the log, and whether there are turns before it."""

    def read(message: Message) -> tuple[list[LoggedTurn], bool]:
        turns = [LoggedTurn.read(entry) for entry in several(message.fields, "turns")]
        return turns, flag(message.fields, "more")

    return Call(seated(seat, "list", {} if before is None else {"before": before}), "listed", read, seat)


def export(seat: Seat, on_progress: Callable[[int, int], None] | None) -> Call[Exported]:
    """Write the game out on the server's machine."""
    return ExportCall(seat, on_progress)


def close(seat: Seat) -> Call[None]:
    """End the session for good."""
    return CloseCall(seat)


def cancel(seat: Seat) -> Call[bool]:
    """Stop the running turn; whether there was one."""
    return Call(seated(seat, "cancel"), "cancelling", lambda message: flag(message.fields, "running"))


def ping() -> Call[None]:
    """Ask for a sign of life."""
    return Call(Message("ping"), "pong", lambda _: None)


def status() -> Call[dict[str, Any]]:
    """How the server is."""
    return Call(Message("status"), "status", lambda message: dict(message.fields))
