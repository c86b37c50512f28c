"""Everything that can go wrong for a client, in one tree; each error has a code, a text and, where known, what to do.

Knows nothing of sockets or messages.

    ClientError
    |-- ServerRefused     the server answered with an error; `code` is one of those that PROTOCOL.md lists
    |-- ConnectionLost    the connection went away and did not come back
    |-- TimedOut          the server did not answer in time
    `-- ProtocolError     bytes that are no message of the protocol, or fields that none can carry; `code` says why
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of all errors of this package: `code` for programs, `text` and `do` (what to do about it) for people."""

    code: str = "client"

    def __init__(self, text: str, do: str | None = None) -> None:
        self.text = text
        self.do = do
        super().__init__(text if do is None else f"{text}; {do}")


class ServerRefused(ClientError):
    """The server's own error. A code that this client does not know comes from a newer server: show the text."""

    def __init__(self, code: str, text: str, do: str | None = None) -> None:
        self.code = code
        super().__init__(text, do)


class ConnectionLost(ClientError):
    """The connection went away and did not come back; the session is kept by the server."""

    code = "connection_lost"


class TimedOut(ClientError):
    """The server did not answer in time."""

    code = "timed_out"


class ProtocolError(ClientError):
    """Bytes that are no message of the protocol: `code` is protocol, version, missing_field, bad_field or too_large."""

    code = "protocol"

    def __init__(self, text: str, do: str | None = None, *, code: str = "protocol") -> None:
        self.code = code
        super().__init__(text, do)
