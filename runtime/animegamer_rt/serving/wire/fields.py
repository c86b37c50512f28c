"""Fields shared by several messages: header keys, tokens, seeds, strengths, values, the bundle."""

from __future__ import annotations

from dataclasses import replace

from animegamer_rt.state import game

from .schema import Field

MAX_NAME_CHARACTERS = 64
"""Characters of an id, a session id or a turn id."""

MAX_LISTED = 100
"""Turns in one `listed`. At four bytes per character they fill 240 KiB of the 256 KiB of a header."""

MAX_OFFERED = 16
"""Turns of a session that may be offered as ready."""
MAX_FILES = 1000
"""File names in one `exported`."""

HEADER = (
    Field("type", "str", "What the message is; says which fields it has.", least=1, most=MAX_NAME_CHARACTERS),
    Field(
        "id",
        "str",
        "A request's own id, chosen by the client; comes back as `parent` in everything that answers it.",
        required=False,
        least=1,
        most=MAX_NAME_CHARACTERS,
    ),
    Field("parent", "str", "The `id` of the request this answers.", required=False, least=1, most=MAX_NAME_CHARACTERS),
    Field("session", "str", "The session's id, from `opened`.", required=False, least=1, most=MAX_NAME_CHARACTERS),
    Field("turn", "int", "The turn's number in its session, from 1.", required=False, least=1, most=2**63 - 1),
    Field(
        "seq", "int", "Number of this event in its turn, from 0, without gaps.", required=False, least=0, most=2**63 - 1
    ),
    Field("fields", "map", "The message's own fields; absent means none.", required=False),
)
"""The keys of frame 1."""

TOKEN = Field("token", "str", "The session's secret, from `opened`.", least=1, most=128)
TURN_ID = Field(
    "turn_id",
    "str",
    "Chosen by the client, unique in the session; the same id twice is one turn.",
    least=1,
    most=MAX_NAME_CHARACTERS,
)
STRENGTHS = tuple(
    Field(
        name,
        "int",
        f"Change of the {name} value: five points for each unit."
        if name in game.VALUES
        else "Level of motion: 1 (slowest) to 5 (fastest); 0 and below ask for as much motion as 5.",
        unit="strength",
        least=-5,
        most=5,
    )
    for name in game.STRENGTHS
)
VALUES = tuple(Field(name, "int", f"The character's {name}.", unit="points", least=0, most=100) for name in game.VALUES)
CHARACTER = Field(
    "character", "map", "The character's values after the last finished turn; in `state`: after this turn.", of=VALUES
)
SEED = Field("seed", "int", "Seed of the game's noise.", least=0, most=2**63 - 1)
STATE = Field(
    "state",
    "str",
    "The server's state; it accepts turns in `ready` only.",
    choices=("starting", "ready", "degraded", "draining"),
    open=True,
)
PIXEL_FORMATS = ("rgb24", "rgba32", "bgra32")
CODECS = ("raw", "jpeg", "mp4")
_WORD = Field("", "str", "", since="1.1")
BUNDLE = Field(
    "bundle",
    "map",
    "The bundle that the server plays.",
    of=(
        Field("name", "str", "Its name."),
        Field("fingerprint", "str", "Hash of its files; sessions belong to one fingerprint."),
        Field("plan", "str", "The denoise plan in use."),
        Field("height", "int", "Rows of a frame.", unit="pixels", least=1),
        Field("width", "int", "Columns of a frame.", unit="pixels", least=1),
        Field("frames", "int", "Frames of a turn.", unit="frames", least=1),
        Field("fps", "float", "Frames a second when shown.", unit="1/s", least=0),
        Field(
            "random_weights",
            "bool",
            "True: for timing only; the pictures are noise (random weights, or simulated engines).",
        ),
        *(
            Field(name, "list", doc, required=False, of=(_WORD,), since="1.1")
            for name, doc in (
                (
                    "people",
                    "Who can be shown; this and the next five: of a bundle that reads everyday words.",
                ),
                ("motions", "What they can do."),
                ("places", "Where they can be."),
                ("hours", "When."),
                ("clothes", "What they can wear; the first is what everybody wears when a game starts."),
                ("manners", "How they can do it, for the levels 1 to 5."),
            )
        ),
    ),
)
STAGES = {"queue": "1.0", "reader": "1.2", "predictor": "1.0", "denoiser": "1.0", "vae": "1.0", "total": "1.0"}
"""Stage of a turn's seconds -> version that introduced it; `total` is the whole turn without the queue."""


def optional(field: Field, doc: str | None = None) -> Field:
    """The same field, but optional; doc: its meaning there."""
    return replace(field, required=False, doc=doc or field.doc)


def whole(name: str, doc: str, unit: str = "", least: int = 0) -> Field:
    """A required whole number of up to 63 bits."""
    return Field(name, "int", doc, unit, least=least, most=2**63 - 1)


def text(name: str, doc: str, required: bool = True) -> Field:
    """A text of any length that fits in a header."""
    return Field(name, "str", doc, required=required)


def seconds(name: str, doc: str, required: bool = True) -> Field:
    """A duration."""
    return Field(name, "float", doc, "s", required, least=0)


TURNS = whole("turns", "Finished turns of the session.", "turns")
