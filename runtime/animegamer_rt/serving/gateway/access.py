"""Who may connect: pages of this address or an allowed origin and, if a password is set, those who know it.

Another site's page could otherwise play through its visitor's browser, even on loopback.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from animegamer_rt.untrusted import host_name, is_address

COOKIE = "animegamer"


class Access:
    """The rules of one gateway. `cookie`: given to a browser that knew the password, and shown by it from then on."""

    def __init__(self, password: str | None, origins: Sequence[str]) -> None:
        self._password, self._origins = password, frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).netloc for origin in origins)
        # Derived from the password, so that cookies outlive a restart of the gateway.
        key = b"" if password is None else hashlib.scrypt(password.encode(), salt=b"animegamer", n=2**14, r=8, p=1)
        self.cookie = key.hex()

    def knows_password(self, connection: HTTPConnection) -> bool:
        """Whether no password is needed, or the connection has the cookie or `Authorization: Bearer PASSWORD`."""
        if self._password is None:
            return True
        bearer = connection.headers.get("authorization", "").removeprefix("Bearer ")
        # Programs send a header in UTF-8 or Latin-1; it was decoded as Latin-1.
        if self.is_password(bearer.encode("latin-1")) or self.is_password(bearer.encode()):
            return True
        return secrets.compare_digest(connection.cookies.get(COOKIE, "").encode(), self.cookie.encode())

    def guesses(self, connection: HTTPConnection) -> bool:
        """Whether the connection sent a wrong password."""
        return connection.headers.get("authorization", "").startswith("Bearer ") and not self.knows_password(connection)

    def is_password(self, given: bytes) -> bool:
        """Whether these bytes are the password in UTF-8. Compares in constant time."""
        return self._password is not None and hmac.compare_digest(given, self._password.encode())

    def host_allowed(self, connection: HTTPConnection) -> bool:
        """Whether the request's host is one of ours.

        A foreign site can point its own name to 127.0.0.1, which makes its page "same-origin". So without a password
        the host must be an address, localhost, or that of an allowed origin.
        """
        host = connection.headers.get("host", "")
        name = host_name(host)
        return self._password is not None or host in self._hosts or name == "localhost" or is_address(name)

    def origin_allowed(self, connection: HTTPConnection) -> bool:
        """Whether the connecting page has the same or an allowed origin. Programs send no origin."""
        origin = connection.headers.get("origin")
        if origin is None or origin in self._origins:
            return True
        return origin.partition("://")[2] == connection.headers.get("host", "")
