"""The watcher's small web server: the animation shown until the page is available, and the staff page.

The waiting page and its files are open. Everything else needs the key, if there is one; an address beyond loopback has
one. Changes need a POST with a header that another site's page cannot send.
"""

from __future__ import annotations

import base64
import errno
import hmac
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from animegamer_rt.bundle.files import free_bytes
from animegamer_rt.errors import PortInUseError, ServerError
from animegamer_rt.profiling.host import build
from animegamer_rt.serving.gateway.app import page_folder
from animegamer_rt.untrusted import host_name, is_address

from .browser import Browser
from .config import KioskConfig, read_key
from .kit import FILES
from .ladder import Action, Picture
from .machine import Machine

log = logging.getLogger(__name__)
READY, UNREACHABLE = "ready", "unreachable"
"""Two states of the server, besides those of its own."""
HEADER = "X-Animegamer"
REQUEST_S, READY_S = 10.0, 2.0
OPEN = {"/waiting": "waiting.html", "/waiting.js": "waiting.js"}
PAGES_OWN = {"/waiting.jpg": "attract.jpg", "/icon.svg": "icon.svg"}
"""Files of the visitors' page, also open."""
STAFF = {"/": "operator.html", "/operator.js": "operator.js"}
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
}
CSP = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self'; connect-src 'self'"
ACTIONS = {"browser": Action.BROWSER, "gateway": Action.GATEWAY, "server": Action.SERVER}


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
        self.page_url, self.browser, self.machine, self._folder = config.page_url, browser, machine, state_folder
        self._report, self._ask_server = report, server_state
        self._key = None if config.operator_key is None else read_key(config.operator_key)
        self._server_state, self._state_since, self._ask_at = UNREACHABLE, time.monotonic(), 0.0
        self._build = build()
        page = self

        class Handler(_Handler):
            operator = page

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in config.operator_address else socket.AF_INET

            def handle_error(self, request: object, client_address: object) -> None:
                if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):  # the client has gone
                    log.exception("internal error of the staff page")

        try:
            self._server = Server((config.operator_address, config.operator_port), Handler)
        except OSError as error:
            where = f"operator_address {config.operator_address}, operator_port {config.operator_port}"
            do, kind = "choose others in kiosk.toml", PortInUseError if error.errno == errno.EADDRINUSE else ServerError
            raise kind("the staff page cannot be served", where=where, found=error.strerror, do=do) from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def admits(self, authorization: str) -> bool:
        """Whether a request with this header may see the staff page."""
        if self._key is None:
            return True
        try:
            given = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")[2]
        except ValueError:
            return False
        return hmac.compare_digest(given.encode(), self._key.encode())

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
        report, machine, server = self._report, self.machine, self.server_state()
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


class _Handler(BaseHTTPRequestHandler):
    operator: OperatorPage
    timeout = REQUEST_S
    server_version, sys_version = "animegamer-rt", ""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path in OPEN:
            self._send_file(FILES / OPEN[path])
        elif path in PAGES_OWN:
            self._send_file(page_folder() / PAGES_OWN[path])
        elif path == "/waiting.json":
            self._send_json({"ready": self.operator.server_state() == READY, "page": self.operator.page_url})
        elif not self._staff():
            return
        elif path in STAFF:
            self._send_file(FILES / STAFF[path])
        elif path == "/state.json":
            self._send_json(self.operator.state())
        else:
            self._send(404, b"not found\n", "text/plain")

    def do_POST(self) -> None:
        path = urlsplit(self.path).path.removeprefix("/do/")
        if not self._staff():
            return
        if self.headers.get(HEADER) != "1":
            self._send(403, b"only the page for staff may do this\n", "text/plain")
            return
        machine, browser = self.operator.machine, self.operator.browser
        buttons: dict[str, Callable[[], bool]] = {
            **{name: partial(machine.act, action) for name, action in ACTIONS.items()},
            "reset": browser.reset,
            "attract": browser.attract,
            "reboot": machine.reboot,
        }
        if (do := buttons.get(path)) is None:
            self._send(404, b"not found\n", "text/plain")
            return
        self._send_json({"done": do()})

    def _staff(self) -> bool:
        """Whether staff asks. Host names are refused, as a foreign site can point its own name to our address."""
        name = host_name(self.headers.get("Host", ""))
        if not (name == "localhost" or is_address(name)):
            self._send(421, b"open this page by its address\n", "text/plain")
            return False
        if self.operator.admits(self.headers.get("Authorization", "")):
            return True
        time.sleep(1.0)  # slows down guessing
        self._send(401, b"the key is needed\n", "text/plain", {"WWW-Authenticate": 'Basic realm="kiosk"'})
        return False

    def _send_file(self, path: Path) -> None:
        self._send(200, path.read_bytes(), KINDS[path.suffix], {"Content-Security-Policy": CSP})

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: a page that polls every two seconds would fill the journal."""
