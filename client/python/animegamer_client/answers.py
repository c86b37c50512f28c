"""What the server says of itself and of a game: the typed answers to requests.

Knows fields, nothing of how they came.
"""

from __future__ import annotations

from dataclasses import dataclass

from .codec import Message
from .events import Character
from .fields import Fields, flag, integer, nested, number, several, text


@dataclass(frozen=True, slots=True)
class Bundle:
    """What the server plays: its pictures are `height` x `width`, `frames` a turn, meant for `fps`."""

    name: str
    fingerprint: str
    plan: str
    height: int
    width: int
    frames: int
    fps: float
    random_weights: bool


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's answer to hello. `state`: starting, ready, degraded or draining; `limits` as in PROTOCOL.md."""

    server: str
    protocol: str
    bundle: Bundle
    capabilities: tuple[str, ...]
    limits: Fields
    state: str

    @classmethod
    def read(cls, message: Message) -> Welcome:
        """From `welcome`. Raises ProtocolError."""
        get, about = message.fields, nested(message.fields, "bundle")
        height, width, frames = (integer(about, name) for name in ("height", "width", "frames"))
        bundle = Bundle(
            text(about, "name"),
            text(about, "fingerprint"),
            text(about, "plan"),
            height,
            width,
            frames,
            number(about, "fps"),
            flag(about, "random_weights"),
        )
        capabilities = tuple(str(name) for name in several(get, "capabilities"))
        server, protocol, state = (text(get, name) for name in ("server", "protocol", "state"))
        return cls(server, protocol, bundle, capabilities, nested(get, "limits"), state)


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that was running when the game was resumed; `game.replay(turn)` follows it."""

    turn: int
    turn_id: str


@dataclass(slots=True)
class Seat:
    """A player's place in a session: what its requests carry, and how the game stands."""

    session: str
    token: str
    seed: int
    history_turns: int
    turns: int
    character: Character
    running: RunningTurn | None = None

    @classmethod
    def read(cls, message: Message) -> Seat:
        """From `opened`. Raises ProtocolError."""
        get = message.fields
        running = nested(get, "running") if "running" in get else None
        return cls(
            text({"session": message.session}, "session"),
            text(get, "token"),
            integer(get, "seed"),
            integer(get, "history_turns"),
            integer(get, "turns"),
            Character.read(nested(get, "character")),
            RunningTurn(integer(running, "turn"), text(running, "turn_id")) if running else None,
        )


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """One finished turn of a game's log: what was said and what came of it, strengths -5..5."""

    turn: int
    turn_id: str
    instruction: str
    motion_level: int
    social: int
    entertainment: int
    stamina: int

    @classmethod
    def read(cls, fields: Fields) -> LoggedTurn:
        """From an entry of `listed`. Raises ProtocolError."""
        strengths = (integer(fields, name) for name in ("motion_level", "social", "entertainment", "stamina"))
        return cls(integer(fields, "turn"), text(fields, "turn_id"), text(fields, "instruction"), *strengths)


@dataclass(frozen=True, slots=True)
class Exported:
    """A game written to `folder` on the server's machine: an mp4 a turn and game.json."""

    folder: str
    turns: int
    files: tuple[str, ...]
