"""Typed answers to requests: what the server says of itself and of a game. Knows fields, not sockets."""

from __future__ import annotations

from dataclasses import dataclass

from .codec import Message
from .events import STRENGTHS, Character, Person
from .fields import Fields, flag, integer, nested, number, several, text, words

_WORDS = ("people", "motions", "places", "hours", "clothes", "manners")
"""The fields of a bundle that says what it knows, since 1.1."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The model that the server plays.

    name, plan: of the bundle and of its denoise plan. fingerprint: hash of its files; a game belongs to one of them.
    width, height: of a frame, in pixels. frames: frames of a turn. fps: frames a second when shown.
    random_weights: True for a model that only measures time; its pictures are noise.
    people, motions, places, hours, clothes, manners: the words that it knows, if it reads everyday words; else empty.
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

    @classmethod
    def read(cls, message: Message) -> Welcome:
        """Read a `welcome`. Raises ProtocolError."""
        fields, about = message.fields, nested(message.fields, "bundle")
        bundle = Bundle(
            name=text(about, "name"),
            fingerprint=text(about, "fingerprint"),
            plan=text(about, "plan"),
            height=integer(about, "height"),
            width=integer(about, "width"),
            frames=integer(about, "frames"),
            fps=number(about, "fps"),
            random_weights=flag(about, "random_weights"),
            **{name: words(about, name) for name in _WORDS if name in about},
        )
        return cls(
            server=text(fields, "server"),
            protocol=text(fields, "protocol"),
            bundle=bundle,
            capabilities=words(fields, "capabilities"),
            limits=nested(fields, "limits"),
            state=text(fields, "state"),
        )


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that was running when the game was resumed; `game.replay(turn)` follows it."""

    turn: int
    turn_id: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What the server saw in the picture that the game starts from. text: all of it in one line; the rest as in
    `Understood`."""

    people: tuple[Person, ...]
    motion: str
    level: int
    place: str
    hour: str
    position: str
    caption: str
    text: str

    @classmethod
    def read(cls, fields: Fields) -> Seen:
        """Read the `understood` of an `opened`. Raises ProtocolError."""
        people = tuple(Person(text(one, "name"), text(one, "clothes")) for one in several(fields, "people"))
        names = ("place", "hour", "position", "caption", "text")
        place, hour, position, caption, line = (text(fields, name) for name in names)
        return cls(people, text(fields, "motion"), integer(fields, "level"), place, hour, position, caption, line)


@dataclass(slots=True)
class SessionInfo:
    """A session as the client knows it: what its requests carry, and its state after the last finished turn."""

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
        fields = message.fields
        running = nested(fields, "running") if "running" in fields else None
        return cls(
            id=text({"session": message.session}, "session"),
            token=text(fields, "token"),
            seed=integer(fields, "seed"),
            history_turns=integer(fields, "history_turns"),
            turns=integer(fields, "turns"),
            character=Character.read(nested(fields, "character")),
            running=RunningTurn(integer(running, "turn"), text(running, "turn_id")) if running else None,
            seen=Seen.read(nested(fields, "understood")) if "understood" in fields else None,
        )


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

    @classmethod
    def read(cls, fields: Fields) -> LoggedTurn:
        """Read an entry of `listed`. Raises ProtocolError."""
        strengths = {name: integer(fields, name) for name in STRENGTHS}
        return cls(integer(fields, "turn"), text(fields, "turn_id"), text(fields, "instruction"), **strengths)


@dataclass(frozen=True, slots=True)
class Exported:
    """A game written to `folder` on the server's machine: `files` are an mp4 for each of the `turns`, and game.json."""

    folder: str
    turns: int
    files: tuple[str, ...]

    @classmethod
    def read(cls, message: Message) -> Exported:
        """Read an `exported`. Raises ProtocolError."""
        fields = message.fields
        return cls(text(fields, "folder"), integer(fields, "turns"), words(fields, "files"))
