"""Who may connect: pages of this address or an allowed origin and, if a password is set, those who know it.

Another site's page could otherwise play through its visitor's browser, even on loopback.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
import unicodedata
from collections import Counter, deque
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from animegamer_rt.serving.shares import Share, Worth
from animegamer_rt.untrusted import host_name, is_address

from .http_server import log, peer_of

COOKIE = "animegamer"
LOGIN_S = 24 * 3600
MAX_LOGINS = 10_000
WRONG_S, MAX_WRONG, MAX_WRONG_OF_ONE, MOST_REMEMBERED = 60.0, 30, 10, 10_000
"""Within so many seconds, so many wrong passwords are tried, so many from one address, and then one from each other
address. The last figure bounds them all."""


def _as_typed(password: bytes) -> bytes:
    """The password in one form: keyboards and editors differ in accents, and in blanks at either end."""
    return unicodedata.normalize("NFC", password.decode(errors="replace")).strip().encode()


class PasswordDoor:
    """One password, and the addresses that gave wrong ones within a minute.

    Beyond its limit, nothing from an address is tried, right or wrong. A flood of wrong passwords lowers the limit to
    one for every address, so a person who knows the password still gets in. count_wrong is called for each wrong one.
    """

    def __init__(self, password: str, count_wrong: Callable[[], None] = lambda: None) -> None:
        self._password, self._count_wrong, self._lock = _as_typed(password.encode()), count_wrong, threading.Lock()
        self._wrong: deque[tuple[float, str]] = deque()
        self._wrong_of = Counter[str]()

    def opens(self, connection: HTTPConnection, *given: bytes) -> bool:
        """Whether one of these is the password. Raises HTTPException 429 while too many wrong ones were given."""
        peer, now = peer_of(connection.client), time.monotonic()
        with self._lock:
            while self._wrong and now - self._wrong[0][0] > WRONG_S:
                _, other = self._wrong.popleft()
                self._wrong_of[other] -= 1
                if not self._wrong_of[other]:
                    del self._wrong_of[other]
            flood = len(self._wrong) >= MAX_WRONG
            limit = MAX_WRONG if not peer else 1 if flood else MAX_WRONG_OF_ONE
            if self._wrong_of[peer] >= limit or len(self._wrong) >= MOST_REMEMBERED:
                wait = {"Retry-After": str(round(WRONG_S))}
                raise HTTPException(429, "too many wrong passwords; wait a minute\n", wait)
            if any(hmac.compare_digest(_as_typed(one), self._password) for one in given):
                return True
            self._wrong.append((now, peer))
            self._wrong_of[peer] += 1
        self._count_wrong()
        log.warning("a wrong password from %s", peer or "this machine")
        return False


class Access:
    """The rules of one gateway. A login lasts a day at most, and ends with the gateway's process."""

    def __init__(self, password: str | None, origins: Sequence[str], count_wrong: Callable[[], None]) -> None:
        self.door = None if password is None else PasswordDoor(password, count_wrong)
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).netloc for origin in origins)
        self._logins: dict[str, float] = {}
        self._share = Share[str](MAX_LOGINS)

    def log_in(self, connection: HTTPConnection) -> str:
        """A new login: the value of its cookie. At the bound, the address with the most loses its oldest."""
        peer = peer_of(connection.client)
        if (oldest := self._share.giver(peer)) is not None:
            self.log_out(oldest)
        login = secrets.token_urlsafe(32)
        self._share.set(login, peer, worth=Worth.UNUSED)
        self._logins[login] = time.monotonic() + LOGIN_S
        return login

    def log_out(self, login: str) -> None:
        """End a login, if there is one with this cookie."""
        self._logins.pop(login, None)
        self._share.drop(login)

    def knows_password(self, connection: HTTPConnection) -> bool:
        """Whether no password is needed, or the connection has a login or `Authorization: Bearer PASSWORD`.

        Raises HTTPException 403 for a wrong password, 429 while too many were given.
        """
        if self.door is None or self._logins.get(connection.cookies.get(COOKIE, ""), 0.0) > time.monotonic():
            return True
        scheme, _, bearer = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        # Programs send a header in UTF-8 or Latin-1; it was decoded as Latin-1.
        if not self.door.opens(connection, bearer.encode("latin-1"), bearer.encode()):
            raise HTTPException(403, "send Authorization: Bearer PASSWORD\n")
        return True

    def host_allowed(self, connection: HTTPConnection) -> bool:
        """Whether the request's host is one of ours.

        A foreign site can point its own name to 127.0.0.1, which makes its page "same-origin". So without a password
        the host must be an address, localhost, or that of an allowed origin.
        """
        host = connection.headers.get("host", "")
        name = host_name(host)
        return self.door is not None or host in self._hosts or name == "localhost" or is_address(name)

    def origin_allowed(self, connection: HTTPConnection) -> bool:
        """Whether the connecting page has the same or an allowed origin. Programs send no origin."""
        origin = connection.headers.get("origin")
        if origin is None or origin in self._origins:
            return True
        return origin.partition("://")[2] == connection.headers.get("host", "")
