"""Starts the web gateway, and restarts it when it dies. No game depends on it: it is a client of the server.

The listening socket stays open across restarts: browsers wait instead of being refused. The gateway's standard input is
a pipe that closes when the server dies, which ends the gateway. Its event loop writes to its standard output once a
second, so that a gateway that hangs is noticed and replaced.
"""

from __future__ import annotations

import errno
import importlib.util
import logging
import os
import socket as tcp
import subprocess
import sys
import time

import zmq

from animegamer_rt.bundle.files import read_bounded
from animegamer_rt.errors import ConfigError, PortInUseError, ServerError
from animegamer_rt.profiling.child_process import child_command
from animegamer_rt.serving.gateway.settings import GatewaySettings
from animegamer_rt.untrusted import bracketed, listening_address

from .options import ServeOptions
from .sockets import ON_THIS_MACHINE, ServerSockets, is_loopback
from .workers import STEADY_S, restart_wait_s

STOP_S, SILENT_S = 3.0, 30.0
"""How long it may take to stop, and how long it may write nothing, also while it starts."""
BIND_TRIES, BIND_WAIT_S = 20, 0.1
"""The gateway of a killed server holds its socket until it notices."""
BACKLOG = 256
MAX_PASSWORD_BYTES, MIN_PASSWORD = 1024, 8

log = logging.getLogger(__name__)


class GatewayProcess:
    """`url`: where a browser on this machine finds the page.

    Raises ConfigError for inconsistent options, ServerError for an address that cannot be bound.
    """

    def __init__(self, options: ServeOptions, sockets: ServerSockets) -> None:
        assert options.web is not None
        _check_installed()
        host, port = listening_address(options.web)
        password = _password(options)
        if password is None and not is_loopback(host):
            do = "write one into a file and pass it with --web-password FILE"
            raise ConfigError("a page beyond loopback needs a password", where="--web", found=options.web, do=do)
        self._socket = _listen(host, port)
        bound = self._socket.getsockname()[1]
        self.url = f"http://{bracketed(ON_THIS_MACHINE.get(host, host))}:{bound}/"
        self._settings = GatewaySettings(
            descriptor=self._socket.fileno(),
            turns=sockets.local_address(0),
            control=sockets.local_address(1),
            keys=_new_keys(sockets),
            visitor_prefix=sockets.visitor_prefix.decode(),
            password=password,
            origins=options.origins,
            trusted_proxies=options.trusted_proxies,
            connections=options.connections,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._deaths, self._start_at, self._started_at, self._heard_at = 0, 0.0, 0.0, 0.0

    def watch(self, now: float) -> None:
        """Start the gateway when it is time, and end one that hangs."""
        if self._process is None:
            if now >= self._start_at:
                self._start(now)
            return
        assert self._process.stdout is not None
        code = self._process.poll()
        if self._process.stdout.read():
            self._heard_at = now
        if code is None and now - self._heard_at < SILENT_S:
            return
        if code is None:
            self._process.kill()
            self._process.wait()
        self._process = None
        end = f"hung for {SILENT_S:g} s" if code is None else f"ended with code {code}"
        self._plan_start(now, f"the gateway {end}")

    def stop(self) -> None:
        """End the gateway and close its socket."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None
        self._socket.close()

    def _start(self, now: float) -> None:
        self._started_at = self._heard_at = now
        command = child_command("animegamer_rt.serving.gateway")
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[self._settings.descriptor],
                start_new_session=True,
            )
            assert self._process.stdin is not None and self._process.stdout is not None
            if sys.platform != "win32":  # _check_installed refuses --web there
                os.set_blocking(self._process.stdout.fileno(), False)
            self._process.stdin.write(self._settings.to_line())
            self._process.stdin.flush()
        except OSError as error:  # out of memory, or it died at once: may be temporary, and the games continue
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._process = None
            self._plan_start(now, f"the gateway could not be started: {error.strerror or error}")
            return
        log.info("gateway started, process %d", self._process.pid)

    def _plan_start(self, now: float, reason: str) -> None:
        self._deaths = 1 if now - self._started_at > STEADY_S else self._deaths + 1
        wait_s = restart_wait_s(self._deaths)
        self._start_at = now + wait_s
        log.error("%s; restarting it in %.1f s; games continue", reason, wait_s)


def _check_installed() -> None:
    if sys.platform == "win32":
        raise ConfigError("the page cannot be served on Windows yet", where="--web", do="run the server on Linux")
    missing = [name for name in ("starlette", "uvicorn", "websockets") if importlib.util.find_spec(name) is None]
    if missing:
        do = "run: pip install 'animegamer-rt[web]'"
        raise ConfigError("packages for the web page are missing", where="--web", found=", ".join(missing), do=do)


def _password(options: ServeOptions) -> str | None:
    if options.web_password is None:
        return None
    do = "write the password into the file's first line"
    try:
        text = read_bounded(options.web_password, MAX_PASSWORD_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise ConfigError("the password cannot be read", where=options.web_password, found=found, do=do) from error
    password = (text.splitlines() or [""])[0].strip()
    if len(password) < MIN_PASSWORD:
        found, expected = f"{len(password)} characters", f"at least {MIN_PASSWORD}"
        raise ConfigError(
            "the password is too short", where=options.web_password, found=found, expected=expected, do=do
        )
    return password


def _listen(host: str, port: int) -> tcp.socket:
    socket = tcp.socket(tcp.AF_INET6 if ":" in host else tcp.AF_INET)
    socket.setsockopt(tcp.SOL_SOCKET, tcp.SO_REUSEADDR, 1)
    for left in reversed(range(BIND_TRIES)):
        try:
            socket.bind((host, port))
            socket.listen(BACKLOG)
            return socket
        except OSError as error:
            if error.errno == errno.EADDRINUSE and left:
                time.sleep(BIND_WAIT_S)
                continue
            socket.close()
            do = "stop the other program, or choose another address with --web"
            found = error.strerror or str(error)
            kind = PortInUseError if error.errno == errno.EADDRINUSE else ServerError
            raise kind(
                "the web page's address cannot be bound", where=f"--web {bracketed(host)}:{port}", found=found, do=do
            ) from error
    raise AssertionError("the last try returns or raises")


def _new_keys(sockets: ServerSockets) -> tuple[str, ...]:
    """With CURVE: the server's public key and a new pair for this server's gateway alone."""
    if sockets.keys is None:
        return ()
    public, secret = zmq.curve_keypair()
    sockets.admit_gateway(public)
    return tuple(key.decode() for key in (sockets.keys.public, public, secret))
