"""The codes of `error` messages: their meaning, and what a client should do."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CODES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "protocol": (
            "The bytes are no message: wrong magic, too few frames, or a header that is not one msgpack map.",
            "Fix the client; compare its bytes with the vectors.",
        ),
        "version": (
            "The major version in frame 0, or every version that `hello` offers, is one the server does not speak.",
            "Offer a version that the error's text names, or update the client or the server.",
        ),
        "unknown_type": (
            "No message of this type may be sent by a client, or not on this socket.",
            "Fix the client, or look in `welcome.capabilities` before using what a newer server has.",
        ),
        "missing_field": ("A required field or header key is missing.", "Fix the client."),
        "bad_field": ("A field or header key has the wrong kind or is out of its bounds.", "Fix the client."),
        "too_large": ("A header, a buffer or the number of buffers is over its limit.", "Send less."),
        "hello_first": (
            "The connection has not said `hello`, or the server was started again since.",
            "Send `hello`, then the request again.",
        ),
        "unknown_session": (
            "No session of that id or token: mistyped, or removed by the server for its age or its quota.",
            "Open a new session.",
        ),
        "wrong_token": ("The token is not this session's.", "Send the token that `opened` carried."),
        "session_closed": ("The session was closed.", "Open a new session, or branch from one that is open."),
        "bundle_mismatch": (
            "The session was played with another bundle; its turns would not look the same here.",
            "Open a new session, or use a server that has that bundle.",
        ),
        "engines_mismatch": (
            "Another library, device or precision, or simulated engines, made the session's turns; they would not look "
            "the same here.",
            "Open a new session, or ask the operator for those engines, or for `--continue-on-other-engines`.",
        ),
        "no_such_turn": ("The session has no turn of that number.", "Send `list` and choose one of its turns."),
        "instruction": (
            "The instruction is empty, too long or not plain text.",
            "Change it; `welcome.limits.text_characters` is the longest.",
        ),
        "picture": (
            "The picture to start from is none that can be read, is damaged, or has too few or too many pixels.",
            "Send another: PNG, JPEG or WebP, at least 16 pixels a side, at most 16 megapixels.",
        ),
        "no_encoder": (
            "The server's bundle (or its simulated engines) cannot start a game from a picture.",
            "Open without one; the operator can serve a bundle with its encoder parts. Look for `picture` in "
            "`welcome.capabilities` first.",
        ),
        "blocked": ("The instruction holds words that this server does not play.", "Choose other words."),
        "turn_running": (
            "The session has a turn (or an export) waiting or running.",
            "Wait for its `done`, or send `cancel` on the control socket.",
        ),
        "busy": ("The queue is full.", "Try again after some seconds."),
        "too_many_sessions": (
            "As many sessions are in use, or as many players connected, as the server allows.",
            "Close one, or try again later.",
        ),
        "rate_limited": (
            "More turns and exports a minute than `welcome.limits.turns_a_minute`.",
            "Wait, then send the turn again with the same `turn_id`.",
        ),
        "draining": (
            "The server is stopping: running turns finish, new ones are refused.",
            "Connect again later; the session is kept.",
        ),
        "starting": ("The engines are still loading.", "Try again when `status.state` is `ready`."),
        "degraded": (
            "The worker cannot be started; the server goes on trying.",
            "Try again later; tell the operator `status.worker.last_error`.",
        ),
        "deadline": (
            "The turn did not finish within its `deadline_s` or the server's limit; the session is as before the turn.",
            "Send it again, with a longer `deadline_s` if you gave one.",
        ),
        "cancelled": ("The turn was cancelled; the session is as before the turn.", "Nothing: you asked for it."),
        "worker_failed": (
            "The worker died several times on this turn; the session is as before the turn.",
            "Send another instruction; tell the operator `status.worker.last_error`.",
        ),
        "unusable_output": (
            "The engines gave NaN, infinity or an empty frame, also in the next higher precision if there is one; "
            "the session is as before the turn.",
            "Send another instruction; tell the operator the error's text, which names the stage.",
        ),
        "storage": (
            "The server could not read or write its sessions (disk full, read-only).",
            "Tell the operator; the session is as after the last `done`.",
        ),
        "internal": ("A fault of the server; its log has the details.", "Try again; report it if it stays."),
    }
)
"""Code -> (meaning, what to do). A later minor version may add codes: show an unknown one's text and `do`."""
