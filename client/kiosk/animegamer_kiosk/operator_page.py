"""The watcher's small web server: the animation shown until the page is available, and the staff page.

The waiting page and its files are open. Everything else needs the key, if there is one; an address beyond loopback has
one. Changes need a POST with a header that another site's page cannot send.
"""

from __future__ import annotations

import base64
import errno
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from animegamer_rt.bundle.files import free_bytes
from animegamer_rt.errors import PortInUseError, ServerError
from animegamer_rt.profiling.host import build
from animegamer_rt.serving.gateway.access import PasswordDoor
from animegamer_rt.serving.gateway.app import page_folder
from animegamer_rt.serving.gateway.http_server import HttpServer
from animegamer_rt.untrusted import host_name, is_address

from .browser import Browser
from .config import KioskConfig, read_key
from .kit import FILES
from .ladder import Action, Picture
from .machine import Machine

READY, UNREACHABLE = "ready", "unreachable"
"""Two states of the server, besides those of its own."""
HEADER = "X-Animegamer"
READY_S = 2.0
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
Respond = Callable[[Request], Response]


@dataclass(slots=True)
class Report:
    """The watcher's latest findings, for the staff page."""

    picture: Picture = Picture.GONE
    wanted: bool = True
    monitor: bool = True
    action: str = ""
    acted_at: str = ""
    resets: int = 0


class OperatorPage:
    """Serves until `close`. server_state: READY once visitors can play. state_folder: on the disk that may fill up.

    Raises PortInUseError for a port in use, ConfigError for a key that cannot be read.
    """

    def __init__(
        self,
        config: KioskConfig,
        report: Report,
        browser: Browser,
        machine: Machine,
        server_state: Callable[[], str],
        state_folder: Path,
    ) -> None:
        self._page_url, self._browser, self._machine, self._folder = config.page_url, browser, machine, state_folder
        self._report, self._ask_server = report, server_state
        self._door = None if config.operator_key is None else PasswordDoor(read_key(config.operator_key))
        self._server_state, self._state_since, self._ask_at = UNREACHABLE, time.monotonic(), 0.0
        self._build = build()
        ipv6 = ":" in config.operator_address
        address, family = (config.operator_address, config.operator_port), socket.AF_INET6 if ipv6 else socket.AF_INET
        try:
            listening = socket.create_server(address, family=family, dualstack_ipv6=ipv6)
        except OSError as error:
            where = f"operator_address {config.operator_address}, operator_port {config.operator_port}"
            do, kind = "choose others in kiosk.toml", PortInUseError if error.errno == errno.EADDRINUSE else ServerError
            raise kind("the staff page cannot be served", where=where, found=error.strerror, do=do) from error
        self.port: int = listening.getsockname()[1]
        self._server = HttpServer(self._app())
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join()

    def _app(self) -> Starlette:
        def file(path: Path) -> Respond:
            return lambda request: FileResponse(path, headers=HEADERS)

        def staff(respond: Respond) -> Respond:
            return lambda request: self._refusal(request) or respond(request)

        visitors = page_folder()
        return Starlette(
            routes=[
                Route("/waiting", file(FILES / "waiting.html")),
                Route("/waiting.js", file(FILES / "waiting.js")),
                Route("/waiting.jpg", file(visitors / "attract.jpg")),
                Route("/icon.svg", file(visitors / "icon.svg")),
                Route("/waiting.json", self._waiting),
                Route("/", staff(file(FILES / "operator.html"))),
                Route("/operator.js", staff(file(FILES / "operator.js"))),
                Route("/state.json", staff(lambda request: JSONResponse(self.state(), headers=HEADERS))),
                Route("/do/{button}", staff(self._press), methods=["POST"]),
            ]
        )

    def _waiting(self, request: Request) -> Response:
        return JSONResponse({"ready": self.server_state() == READY, "page": self._page_url}, headers=HEADERS)

    def _press(self, request: Request) -> Response:
        if request.headers.get(HEADER) != "1":
            return PlainTextResponse("only the page for staff may do this\n", 403)
        actions = {"browser": Action.BROWSER, "gateway": Action.GATEWAY, "server": Action.SERVER}
        buttons: dict[str, Callable[[], bool]] = {
            **{name: partial(self._machine.act, action) for name, action in actions.items()},
            "reset": self._browser.reset,
            "attract": self._browser.attract,
            "reboot": self._machine.reboot,
        }
        do = buttons.get(request.path_params["button"])
        return PlainTextResponse("not found\n", 404) if do is None else JSONResponse({"done": do()}, headers=HEADERS)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to who is not staff. Names are refused: a foreign site can point its own to our address."""
        name = host_name(request.headers.get("Host", ""))
        if not (name == "localhost" or is_address(name)):
            return PlainTextResponse("open this page by its address\n", 421)
        if self._door is None:
            return None
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "basic" and self._door.opens(request, _password(given)):
            return None
        return PlainTextResponse("the key is needed\n", 401, {"WWW-Authenticate": 'Basic realm="kiosk"'})

    def server_state(self) -> str:
        """The server's state, cached for some seconds, as many waiting pages may ask."""
        if time.monotonic() >= self._ask_at:
            before, self._server_state = self._server_state, self._ask_server()
            now = time.monotonic()
            self._ask_at = now + READY_S
            if self._server_state != before:
                self._state_since = now
        return self._server_state

    def state(self) -> dict[str, object]:
        """The content of the staff page."""
        report, machine, server = self._report, self._machine, self.server_state()
        return {
            "build": self._build,
            "time": datetime.now().isoformat(" ", "seconds"),
            "picture": report.picture.value,
            "hours": report.wanted,
            "monitor": report.monitor,
            "server": server,
            "server_s": round(time.monotonic() - self._state_since),
            "free_gib": round(free_bytes(self._folder) / 2**30, 1),
            "action": report.action,
            "acted_at": report.acted_at,
            "resets": report.resets,
            "units": machine.states(),
            "temperature_c": machine.temperature_c(),
            "errors": machine.errors(),
        }


def _password(credentials: str) -> bytes:
    """The password in the credentials of HTTP's Basic scheme; empty if they are not valid."""
    try:
        return base64.b64decode(credentials).partition(b":")[2]
    except ValueError:
        return b""
