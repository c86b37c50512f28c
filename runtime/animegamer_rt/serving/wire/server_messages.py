"""The messages that a server may send: answers, events of a turn, errors, and their fields."""

from __future__ import annotations

from dataclasses import replace

from .fields import (
    BUNDLE,
    CHARACTER,
    MAX_FILES,
    MAX_LISTED,
    MAX_NAME_CHARACTERS,
    MAX_OFFERED,
    PIXEL_FORMATS,
    SEED,
    STAGES,
    STATE,
    STRENGTHS,
    TOKEN,
    TURN_ID,
    TURNS,
    VALUES,
    optional,
    seconds,
    text,
    whole,
)
from .schema import Field, MessageType

_EVENT = ("session", "turn", "seq")


def _answer(
    type: str,
    doc: str,
    *fields: Field,
    sockets: str = "T",
    header: tuple[str, ...] = (),
    buffers: int = 0,
    since: str | None = None,
) -> MessageType:
    """since: also applies to all fields; None: 1.0, and the fields have their own."""
    fields = fields if since is None else _of_version(fields, since)
    return MessageType("server", type, doc, sockets, header, fields, buffers, since=since or "1.0")


def _of_version(fields: tuple[Field, ...], since: str) -> tuple[Field, ...]:
    return tuple(replace(field, since=since, of=_of_version(field.of, since)) for field in fields)


_SCENE = (
    Field(
        "people",
        "list",
        "Who is shown, the first named first.",
        least=1,
        of=(Field("", "map", "", of=(text("name", "Name."), text("clothes", "What they wear."))),),
    ),
    text("motion", "What they do."),
    Field("level", "int", "Level of motion that was asked for.", least=1, most=5),
    text("place", "Where."),
    Field("hour", "str", "When.", choices=("day", "night"), open=True),
    text("position", "Where in the picture."),
    text("caption", "The same as a caption: what the model is given in place of the instruction."),
)
"""What is shown, in the bundle's words."""


_SESSION_ANSWERS = (
    _answer(
        "welcome",
        "Answers `hello`: the version, the bundle and the server's limits.",
        Field("version", "int", "The major version that both will speak.", least=1, most=255),
        text("server", "Name and version of the server."),
        text("protocol", "Version of the protocol that the server speaks, `major.minor`."),
        BUNDLE,
        Field("capabilities", "list", "What this server can do beyond the protocol's version.", of=(text("", ""),)),
        Field(
            "limits",
            "map",
            "What the server allows.",
            of=(
                whole("text_characters", "Longest instruction, after it was normalised.", "characters"),
                whole("header_bytes", "Longest frame 1 of a request.", "bytes"),
                whole("turns_a_minute", "Turns and exports of one session in any minute; 0: no limit.", "turns"),
                whole("sessions", "Sessions used within an hour; 0: no limit.", "sessions"),
                whole("queue", "Turns and exports that may wait.", "jobs"),
            ),
        ),
        STATE,
        sockets="TC",
    ),
    _answer(
        "opened",
        "Answers `open` and `branch`: the session now belongs to this connection.",
        TOKEN,
        SEED,
        Field("history_turns", "int", "Past turns that the model sees.", "turns", least=0, most=16),
        TURNS,
        CHARACTER,
        Field(
            "running",
            "map",
            "The turn that waits or runs, if there is one; `replay` brings its events.",
            required=False,
            of=(whole("turn", "Its number.", least=1), TURN_ID),
        ),
        Field(
            "understood",
            "map",
            "What is seen in the picture that `open` brought; absent without a picture, or where nobody is recognised.",
            required=False,
            of=_of_version((*_SCENE, text("text", "The same in one line for a person.")), "1.2"),
            since="1.2",
        ),
        header=("session",),
    ),
    _answer("rewound", "Answers `rewind`: the later turns are deleted.", TURNS, CHARACTER, header=("session",)),
    _answer(
        "listed",
        "Answers `list`: turns, the newest last.",
        Field(
            "turns",
            "list",
            "The turns before `before`, the nearest to it.",
            most=MAX_LISTED,
            of=(
                Field(
                    "",
                    "map",
                    "",
                    of=(
                        whole("turn", "Its number.", least=1),
                        TURN_ID,
                        text("instruction", "As it was played (normalised)."),
                        *STRENGTHS,
                    ),
                ),
            ),
        ),
        Field("more", "bool", "True: there are turns before these."),
        header=("session",),
    ),
    _answer(
        "exported",
        "The exported folder is complete; the server keeps the newest three of a session.",
        text("folder", "Path on the server's machine."),
        TURNS,
        Field(
            "files",
            "list",
            f"Names of the files in it; of a longer game the first {MAX_FILES}.",
            most=MAX_FILES,
            of=(text("", ""),),
        ),
        header=("session",),
    ),
    _answer("closed", "Answers `close`: the session has ended.", header=("session",)),
    _answer(
        "cancelling",
        "Answers `cancel`: a turn that runs ends with `error` `cancelled` on the turn socket.",
        Field("running", "bool", "False: no turn or export was waiting or running."),
        sockets="C",
        header=("session",),
    ),
)

_TURN_EVENTS = (
    _answer(
        "accepted",
        "The turn waits or runs; always seq 0.",
        TURN_ID,
        whole("place", "Turns before this one; 0: it runs now.", "turns"),
        seconds("estimate_s", "Estimated time until `done`, from the last turns' times."),
        text("instruction", "As it will be played (normalised)."),
        Field("replayed", "bool", "True: the turn was finished before; nothing is added to the session."),
        header=_EVENT,
    ),
    _answer(
        "understood",
        "How the instruction was understood, before `state`; only if the bundle reads everyday words. It has no `seq`.",
        *_SCENE,
        Field(
            "unknown",
            "list",
            "Words that ask for what the bundle cannot draw, in lower case; the rest says the nearest that it can.",
            of=(text("", ""),),
        ),
        text("text", "What was understood, in one line for a person."),
        text("notice", "What was not understood, for a person; absent if all was.", required=False),
        header=("session", "turn"),
        since="1.1",
    ),
    _answer(
        "state",
        "The turn's predicted strengths and the values after it, before its first frame; always seq 1.",
        *STRENGTHS,
        CHARACTER,
        Field(
            "shown",
            "map",
            "The values to display: `character`, with social and entertainment 5 lower where their strength is 0.",
            of=VALUES,
        ),
        Field("motion_scope", "float", "Mean optical flow that the denoiser is asked for.", "pixels a frame", least=0),
        header=_EVENT,
    ),
    _answer(
        "progress",
        "A denoise step is done; of an export too, which counts turns (and has no `turn` and no `seq`).",
        whole("step", "Steps done; of an export: turns written.", least=0),
        whole("steps", "Of how many.", least=1),
        seconds("seconds_left", "Estimate for the rest of the steps."),
        header=("session",),
    ),
    _answer(
        "frame",
        "One picture; its buffer holds `height` rows of `stride` bytes, or one JPEG file.",
        whole("index", "Number of the picture in its turn, from 0.", least=0),
        whole("count", "Pictures of the turn.", "frames", least=1),
        Field("dtype", "str", "Kind of one value.", choices=("uint8",)),
        Field("width", "int", "Columns.", "pixels", least=1, most=65535),
        Field("height", "int", "Rows.", "pixels", least=1, most=65535),
        Field("stride", "int", "Bytes from one row to the next; 0 for jpeg.", "bytes", least=0, most=2**31 - 1),
        Field("pixel_format", "str", "Order of a raw picture's bytes; of no meaning for jpeg.", choices=PIXEL_FORMATS),
        Field("codec", "str", "What the buffer holds.", choices=("raw", "jpeg")),
        header=_EVENT,
        buffers=1,
    ),
    _answer(
        "clip",
        "A piece of the turn's fragmented mp4; the pieces in order are the file.",
        whole("index", "Number of the piece, from 0.", least=0),
        Field("last", "bool", "True: the file is whole with this piece."),
        Field("codec", "str", "What the buffer holds.", choices=("mp4",)),
        header=_EVENT,
        buffers=1,
    ),
    _answer(
        "done",
        "The turn is part of the session and kept on disk; the last event of a turn.",
        Field(
            "seconds",
            "map",
            "The turn's time by stage.",
            of=(
                seconds("queue", "Waiting."),
                replace(seconds("reader", "In the instruction reader.", required=False), since="1.2"),
                seconds("predictor", "In the predictor."),
                seconds("denoiser", "In the denoiser."),
                seconds("vae", "In the vae."),
                seconds("total", "The whole turn, from its start to its last frame."),
            ),
        ),
        TURNS,
        header=_EVENT,
    ),
    _answer(
        "restarting",
        "The worker died; the turn (or export) goes on when it is back. Not an event: it has no `seq`.",
        whole("attempt", "Restarts for this turn so far.", least=1),
        seconds("retry_in_s", "Until the next start."),
        header=("session",),
    ),
)

_OTHERS = (
    _answer(
        "offer",
        "Instructions that are answered at once. It answers no request, and only a server that plays ahead sends it.",
        Field(
            "instructions",
            "list",
            "What to send as `instruction`; replaces the session's earlier offer, also when it is empty.",
            most=MAX_OFFERED,
            of=(text("", ""),),
        ),
        header=("session", "turn"),
        since="1.2",
    ),
    _answer("pong", "Answers `ping`.", sockets="TC"),
    _answer(
        "status",
        "Answers `status`: the server's state, load and times.",
        text("version", "Version of the server's package."),
        text("protocol", "Version of the protocol, `major.minor`."),
        STATE,
        text("bundle", "Name of the bundle."),
        text("plan", "Name of the denoise plan."),
        seconds("uptime_s", "Since the server started."),
        whole("turns_done", "Since the server started.", "turns"),
        whole("sessions", "Open sessions that are kept.", "sessions"),
        whole("connections", "Turn connections.", "connections"),
        whole("queue", "Jobs that wait.", "jobs"),
        whole("running", "Jobs that run.", "jobs"),
        Field(
            "worker",
            "map",
            "The process that owns the engines.",
            of=(
                Field(
                    "state",
                    "str",
                    "State of the worker; `failed`: it died three times in a row, and is started again nonetheless.",
                    choices=("starting", "ready", "busy", "restarting", "failed", "stopped"),
                    open=True,
                ),
                optional(whole("pid", "Its process id; absent when there is none.", least=1)),
                whole("restarts", "Since the server started."),
                text("last_error", "Why it last died; absent if it never did.", required=False),
                Field("resident_mib", "float", "Its memory; absent when unknown.", "MiB", required=False, least=0),
            ),
        ),
        Field(
            "seconds",
            "map",
            "Medians of the last 100 turns; a stage without a turn is absent.",
            of=tuple(
                replace(seconds(stage, "The same as in `done`.", required=False), since=since)
                for stage, since in STAGES.items()
            ),
        ),
        sockets="C",
    ),
    _answer(
        "error",
        "A request was refused, or a turn ended without `done`; carries `session` and `turn` where they are known.",
        Field("code", "str", "Which error; see Errors.", least=1, most=MAX_NAME_CHARACTERS),
        text("text", "What happened, for a person."),
        text("do", "What to do about it, for a person.", required=False),
        sockets="TC",
    ),
)

ANSWERS = (*_SESSION_ANSWERS, *_TURN_EVENTS, *_OTHERS)
