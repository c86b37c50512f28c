"""Typed answers to requests about the server and a game."""

from __future__ import annotations

from dataclasses import dataclass

from .codec import Message
from .events import Character, Person
from .fields import Fields, nested, read, text


@dataclass(frozen=True, slots=True)
class Bundle:
    """The model that the server plays.

    name, plan: of the bundle and its denoise plan. fingerprint: hash of its files; a game belongs to one of them.
    width, height: of a frame, in pixels. frames: frames of a turn. fps: frames per second.
    random_weights: True for a model that only measures time; its pictures are noise.
    people, motions, places, hours, clothes, manners: its words, if it reads everyday words; otherwise empty.
    """

    name: str
    fingerprint: str
    plan: str
    height: int
    width: int
    frames: int
    fps: float
    random_weights: bool
    people: tuple[str, ...] = ()
    motions: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    hours: tuple[str, ...] = ()
    clothes: tuple[str, ...] = ()
    manners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's answer to `hello`.

    server: its name and version. protocol: `major.minor`. capabilities, limits: as in PROTOCOL.md.
    state: starting, ready, degraded or draining; a newer server may have others.
    """

    server: str
    protocol: str
    bundle: Bundle
    capabilities: tuple[str, ...]
    limits: Fields
    state: str


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that was running when the game was resumed; `game.replay(turn)` follows it."""

    turn: int
    turn_id: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What the server recognised in the start picture. text: all of it in one line; the rest as in `Understood`."""

    people: tuple[Person, ...]
    motion: str
    level: int
    place: str
    hour: str
    position: str
    caption: str
    text: str


@dataclass(slots=True)
class SessionInfo:
    """A session as the client knows it: what its requests need, and its state after the last finished turn."""

    id: str
    token: str
    seed: int
    history_turns: int
    turns: int
    character: Character
    running: RunningTurn | None = None
    seen: Seen | None = None

    @classmethod
    def read(cls, message: Message) -> SessionInfo:
        """Read an `opened`. Raises ProtocolError."""
        seen = read(Seen, nested(message.fields, "understood")) if "understood" in message.fields else None
        return read(cls, message.fields, id=text({"session": message.session}, "session"), seen=seen)


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """A finished turn in a game's log. instruction: as it was played; the four strengths are -5..5, as in `State`."""

    turn: int
    turn_id: str
    instruction: str
    motion_level: int
    social: int
    entertainment: int
    stamina: int


@dataclass(frozen=True, slots=True)
class Exported:
    """A game written to `folder` on the server's machine: `files` are one mp4 per turn, and game.json."""

    folder: str
    turns: int
    files: tuple[str, ...]
