"""The errors of this package; each has a code, a text and, where known, what to do.

ClientError
|-- ServerRefused     the server sent an error; `code` is one of those in PROTOCOL.md
|-- ConnectionLost    the connection was lost during a request that is not repeated
|-- TimedOut          the server did not answer in time
|-- ClientClosed      a call after `close`
`-- ProtocolError     received bytes that are not a message of the protocol, or a request that cannot be encoded
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """Base of all errors of this package: `code` is for programs, `text` and `do` (what to do about it) for people."""

    code: str = "client"

    def __init__(self, text: str, do: str | None = None) -> None:
        self.text = text
        self.do = do
        super().__init__(text if do is None else f"{text}; {do}")


class ServerRefused(ClientError):
    """The server's error. A newer server may have codes that are not in PROTOCOL.md: show the text.

    answer: of `not_understood`: maps with the fields of `Answer`, for another language than the text's.
    """

    def __init__(self, code: str, text: str, do: str | None = None, answer: Sequence[Mapping[str, Any]] = ()) -> None:
        self.code, self.answer = code, answer
        super().__init__(text, do)


class ConnectionLost(ClientError):
    """The connection was lost during a request that is not repeated (`export`). The server keeps the session."""

    code = "connection_lost"


class TimedOut(ClientError):
    """The server did not answer in time. It keeps the session: open(resume=token) continues the game."""

    code = "timed_out"


class ClientClosed(ClientError):
    """A call after `close`, or one ended by `close`."""

    code = "closed"


class ProtocolError(ClientError):
    """Received bytes that are not a message of the protocol, or a request that cannot be encoded (`bad_field`).

    `code` is protocol, version, missing_field, bad_field or too_large.
    """

    code = "protocol"

    def __init__(self, text: str, do: str | None = None, *, code: str = "protocol") -> None:
        self.code = code
        super().__init__(text, do)
