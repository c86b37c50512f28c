"""The requests that a client may send: their fields and answers."""

from __future__ import annotations

from .fields import CODECS, PIXEL_FORMATS, SEED, TOKEN, TURN_ID, optional, whole
from .schema import Field, MessageType


def _request(
    type: str,
    doc: str,
    *fields: Field,
    sockets: str = "T",
    header: tuple[str, ...] = (),
    answers: tuple[str, ...],
    optional_buffers: int = 0,
) -> MessageType:
    answers = (*answers, "error")
    return MessageType("client", type, doc, sockets, header, fields, 0, optional_buffers, answers)


_TURN_EVENTS = ("accepted", "understood", "state", "progress", "frame", "clip", "done", "restarting")

REQUESTS = (
    _request(
        "hello",
        "Choose the version and the form of the frames. First on every turn connection, and again to change the form; "
        "optional on control.",
        Field(
            "versions",
            "list",
            "Major versions of the protocol that the client speaks.",
            least=1,
            most=16,
            of=(Field("", "int", "A major version.", least=1, most=255),),
        ),
        Field("client", "str", "Name and version of the client; nothing depends on them.", most=128),
        Field(
            "pixel_format",
            "str",
            "Order of a raw frame's bytes.",
            required=False,
            default="rgba32",
            choices=PIXEL_FORMATS,
        ),
        Field("flip", "bool", "True: rows run bottom-up.", required=False, default=False),
        Field(
            "codec",
            "str",
            "raw and jpeg: 17 `frame` messages a turn; mp4: `clip` messages only.",
            required=False,
            default="raw",
            choices=CODECS,
        ),
        Field("jpeg_quality", "int", "For codec jpeg.", required=False, default=90, least=1, most=100),
        Field("clip", "bool", "True: also the mp4, after the frames.", required=False, default=False),
        Field(
            "minor",
            "int",
            "Minor version that the client speaks; the server sends it no messages of later ones.",
            required=False,
            default=0,
            least=0,
            most=255,
            since="1.1",
        ),
        sockets="TC",
        answers=("welcome",),
    ),
    _request(
        "open",
        "Start a session; with `token`, go on with one: the session moves to this connection. With a buffer, a PNG, "
        "JPEG or WebP file (since 1.2), the session starts from that picture.",
        optional(TOKEN),
        optional(SEED, "Seed of the game's noise; absent: the server draws one. Not read when resuming."),
        Field(
            "history_turns",
            "int",
            "Past turns that the model sees; absent: the bundle's own window. Not read when resuming.",
            unit="turns",
            required=False,
            least=0,
            most=16,
        ),
        Field(
            "motion",
            "str",
            "What happens in the picture: words (`gently wave`) or a caption. Required with a picture, else not read.",
            unit="characters",
            required=False,
            since="1.2",
        ),
        answers=("opened",),
        optional_buffers=1,
    ),
    _request(
        "turn",
        "Play one turn.",
        Field("instruction", "str", "The instruction of this turn; see Text.", unit="characters"),
        TURN_ID,
        Field(
            "deadline_s",
            "float",
            "The turn ends with `deadline` if it takes longer, queue included; the server has one of its own, too.",
            unit="s",
            required=False,
            least=0.001,
        ),
        TOKEN,
        header=("session",),
        answers=_TURN_EVENTS,
    ),
    _request(
        "replay",
        "Send the events of a finished or running turn again, from a sequence number on.",
        TOKEN,
        Field(
            "after_seq",
            "int",
            "Last `seq` seen; `done` comes whatever it is.",
            required=False,
            default=-1,
            least=-1,
            most=2**63 - 1,
        ),
        header=("session", "turn"),
        answers=_TURN_EVENTS,
    ),
    _request(
        "rewind",
        "Go back to just after a turn; later turns are deleted.",
        TOKEN,
        whole("turn", "Last turn to keep; 0 is the start."),
        header=("session",),
        answers=("rewound",),
    ),
    _request(
        "branch",
        "A new session that shares this one's turns up to a turn; this one stays as it is.",
        TOKEN,
        whole("turn", "Last turn to share; 0 is the start."),
        optional(SEED, "Seed of the new session; absent: this one's."),
        header=("session",),
        answers=("opened",),
    ),
    _request(
        "list",
        "The session's turns, at most 100 a message.",
        TOKEN,
        optional(whole("before", "Only turns before this number; absent: the newest.", least=1)),
        header=("session",),
        answers=("listed",),
    ),
    _request(
        "export",
        "Write the session's clips and game.json to a folder on the server; waits in the queue like a turn.",
        TOKEN,
        header=("session",),
        answers=("progress", "restarting", "exported"),
    ),
    _request("close", "End the session for good.", TOKEN, header=("session",), answers=("closed",)),
    _request(
        "cancel",
        "Stop the session's waiting or running turn or export.",
        TOKEN,
        sockets="C",
        header=("session",),
        answers=("cancelling",),
    ),
    _request("ping", "Check that the server answers.", sockets="TC", answers=("pong",)),
    _request("status", "Ask for the server's state, load and times.", sockets="C", answers=("status",)),
)
