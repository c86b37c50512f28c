"""The options of `animegamer-rt serve`: every limit and every time, with its unit in the name.

Knows defaults and the command line; nothing of sockets or turns.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path

from animegamer_rt import untrusted
from animegamer_rt.engine_config import DEFAULT_CONFIG, EngineConfig
from animegamer_rt.errors import ConfigError
from animegamer_rt.serving.wire import MAX_OFFERED

from .log_lines import FORMATS

PORT = 5570
"""Port for turns. Control is the next port, metrics the one after it."""

MAX_WORKERS = 64


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """None: the bundle's or the program's own choice."""

    bundle: str = "pocket"
    plan: str | None = None
    engines: EngineConfig = DEFAULT_CONFIG
    state_dir: Path = Path("server-state")
    host: str = "127.0.0.1"
    port: int = PORT
    keys: Path | None = None
    authorized_keys: Path | None = None
    block_list: Path | None = None
    allow_list: Path | None = None
    workers: int = 1
    """Worker processes, each with its share of the cores or its own GPU."""
    ray: str | None = None
    """`HOST:PORT` of a Ray cluster on whose nodes the workers run; None: on this machine."""
    queue: int = 16
    """Turns that may wait, of all sessions together."""
    sessions: int = 64
    """Sessions that may be used within an hour; 0: no limit."""
    connections: int = 128
    turns_per_minute: int = 120
    """Turns that one session may have in a minute; 0: no limit."""
    turn_deadline_s: float = 120.0
    """Longest that a turn waits and runs, unless its client asks for less."""
    send_queue_mib: float = 48.0
    """Most that is held for a client that does not read: two full-size clips."""
    drain_s: float = 60.0
    worker_timeout_s: float = 60.0
    """A busy worker that sends nothing for this long is replaced."""
    backoff_s: float = 0.5
    """Wait before a worker that died is started again; doubled with each death in a row."""
    continue_on_other_engines: bool = False
    """Play sessions on that another kind of engines began, or another device or precision."""
    keep_shots: str = "window"
    """Shots stored of old turns: `window`, a number of turns, or `all`."""
    quota_gib: float = 8.0
    """Most that all sessions take on disk. Shots of idle sessions are deleted first: they can be predicted again."""
    keep_days: float | None = None
    """Sessions unused for longer are deleted; None: never."""
    metrics_port: int | None = None
    """None: the port after control's. 0: no metrics."""
    log_format: str = "text"
    """How the log is written to stderr: `text`, or `json` with one object a line."""
    parent: int | None = None
    """Id of the process that the server belongs to: it drains and ends when that process has ended."""
    web: str | None = None
    """`[ADDRESS:]PORT` of the page and its WebSocket; None: no gateway. Port 0: any free one."""
    web_password: Path | None = None
    """File whose first line everyone who opens the page is asked for."""
    origin: tuple[str, ...] = ()
    """Origins of other pages that may connect to the gateway."""
    ahead: int = 0
    """Turns of each waiting session that are played before they are asked for; 0: none."""
    ahead_mib: float = 128.0
    """Most that is held of such turns."""
    ahead_share: float = 1.0
    """Share of the idle time that may be spent on them."""
    trace: Path | None = None
    """A trace of the engines is written there whenever no turn waits."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add serve's own options to its parser; those of bundle and engines are added by the caller."""
    command.set_defaults(**{field.name: field.default for field in _own_fields()} | {"origin": None})
    add = command.add_argument
    add("--port", type=int, help="port for turns; control is the next one (default: %(default)s)")
    add("--state-dir", type=Path, metavar="DIR", help="folder of sessions and exports (default: %(default)s)")
    add(
        "--host",
        help="address to listen on; any but loopback needs --keys and --authorized-keys (default: %(default)s)",
    )
    add("--keys", type=Path, metavar="DIR", help="folder with server.key_secret; encrypts (see: keys new)")
    add("--authorized-keys", type=Path, metavar="DIR", help="folder with the public keys (*.key) of the players")
    add("--block-list", type=Path, metavar="FILE", help="words and phrases that are refused, one on each line")
    add("--allow-list", type=Path, metavar="FILE", help="words, one on each line; instructions with others are refused")
    add("--workers", type=int, metavar="N", help="engine processes that share out cores or GPUs (default: %(default)s)")
    add("--ray", metavar="HOST:PORT", help="run the workers on the nodes of this Ray cluster (docs/SERVER.md)")
    add("--queue", type=int, metavar="N", help="turns that may wait (default: %(default)s)")
    add("--sessions", type=int, metavar="N", help="sessions in use within an hour; 0: no limit (default: %(default)s)")
    add("--connections", type=int, metavar="N", help="clients that may be connected (default: %(default)s)")
    add(
        "--turns-per-minute",
        type=int,
        metavar="N",
        help="turns of one session in a minute; 0: no limit (default: %(default)s)",
    )
    add(
        "--turn-deadline",
        dest="turn_deadline_s",
        type=float,
        metavar="S",
        help="longest that a turn waits and runs, in seconds (default: %(default)g)",
    )
    add(
        "--send-queue-mib",
        type=float,
        metavar="MIB",
        help="memory for a client that does not read (default: %(default)g)",
    )
    add(
        "--drain-s",
        type=float,
        metavar="S",
        help="how long turns may go on after the server is asked to stop (default: %(default)g)",
    )
    add(
        "--worker-timeout-s",
        type=float,
        metavar="S",
        help="a busy worker that sends nothing for so long is replaced (default: %(default)g)",
    )
    add(
        "--backoff-s",
        type=float,
        metavar="S",
        help="wait before a worker that died is started again (default: %(default)g)",
    )
    add(
        "--continue-on-other-engines",
        action="store_true",
        help="play sessions on that another library, device or precision began: earlier turns will look different",
    )
    add("--keep-shots", help="shots stored of old turns: window, a number, or all (default: %(default)s)")
    add("--quota-gib", type=float, metavar="GIB", help="disk space for all sessions (default: %(default)g)")
    add("--keep-days", type=float, metavar="DAYS", help="delete sessions unused for longer (default: never)")
    add("--log-format", choices=FORMATS, help="of the log on stderr; json: an object a line (default: %(default)s)")
    add("--parent", type=int, metavar="PID", help="end, after the running turns, when this process has ended")
    add(
        "--web",
        metavar="[ADDRESS:]PORT",
        help="also serve a page for browsers there (docs/WEB.md)",
    )
    add("--web-password", type=Path, metavar="FILE", help="file with the password of the page; needed beyond loopback")
    add(
        "--origin",
        action="append",
        metavar="URL",
        help="https://HOST[:PORT] whose pages may connect; may be repeated",
    )
    add(
        "--ahead",
        type=int,
        metavar="N",
        help="play the N likeliest next turns of waiting sessions in idle time (docs/SERVER.md)",
    )
    add("--ahead-mib", type=float, metavar="MIB", help="memory for such turns (default: %(default)g)")
    add("--ahead-share", type=float, metavar="SHARE", help="of idle time spent on them, up to 1 (default: %(default)g)")
    add("--trace", type=Path, metavar="FILE", help="write a trace of the engines, for ui.perfetto.dev")
    add(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="Prometheus text on http://127.0.0.1:PORT/metrics; 0: none (default: --port + 2)",
    )


def from_arguments(arguments: argparse.Namespace) -> ServeOptions:
    """The options of a command line; `check` finds those out of range."""
    own = {field.name: getattr(arguments, field.name) for field in _own_fields()}
    own["origin"] = tuple(own["origin"] or ())
    return ServeOptions(engines=EngineConfig.from_arguments(arguments), **own)


def _own_fields() -> list[dataclasses.Field[object]]:
    return [field for field in dataclasses.fields(ServeOptions) if field.name != "engines"]


def check(options: ServeOptions) -> None:
    """Raises ConfigError naming the first option that is out of range, or that takes the port of another."""
    ranges: dict[str, tuple[float, float]] = {
        "port": (0, 65533),
        "metrics_port": (0, 65535),
        "workers": (1, MAX_WORKERS),
        "queue": (1, 10_000),
        "sessions": (0, 100_000),
        "connections": (1, 10_000),
        "turns_per_minute": (0, 100_000),
        "turn_deadline_s": (0.01, 86_400),
        "send_queue_mib": (0.01, 65_536),
        "drain_s": (0, 86_400),
        "quota_gib": (0.001, 1e6),
        "keep_days": (0, 36_500),
        "worker_timeout_s": (0.1, 86_400),
        "backoff_s": (0, 30),
        "ahead": (0, MAX_OFFERED),
        "ahead_mib": (0.01, 65_536),
        "ahead_share": (0.01, 1),
        "parent": (1, 2**31 - 1),
    }
    if options.ray is not None and options.trace is not None:
        do = "leave one of them out; a trace is written where a worker runs"
        raise ConfigError("--trace is for workers on this machine, not for --ray", do=do)
    try:
        str(options.state_dir.resolve()).encode()
    except (OSError, UnicodeEncodeError) as error:  # clients are told of exported folders, in UTF-8
        what, do = "the path is not UTF-8 text", "give a folder of another name, or set LC_ALL=C.UTF-8"
        raise ConfigError(what, where="--state-dir", found=ascii(str(options.state_dir)), do=do) from error
    for origin in options.origin:
        meant = untrusted.web_origin(origin)
        if not meant or origin != meant:
            do = f"give {meant or 'https://HOST or https://HOST:PORT'}, as browsers send it: without a path"
            raise ConfigError("not the origin of a web page", where="--origin", found=origin, do=do)
    if options.web is None and (options.origin or options.web_password):
        option = "--origin" if options.origin else "--web-password"
        raise ConfigError(
            "there is no page to connect to", where=option, do="add --web [ADDRESS:]PORT, or leave it out"
        )
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            option = "--turn-deadline" if name == "turn_deadline_s" else "--" + name.replace("_", "-")
            raise ConfigError("out of range", where=option, found=value, expected=f"{low:g} to {high:g}")
    _check_ports(options)


def _check_ports(options: ServeOptions) -> None:
    """Two of the server's own sockets on one port would never be free: that is no other program's."""
    host = untrusted.bare_host(options.host)
    metrics_port = (options.port and options.port + 2) if options.metrics_port is None else options.metrics_port
    asked = [("--port", host, options.port), ("--port", host, options.port and options.port + 1)]
    asked.append(("--metrics-port", "127.0.0.1", metrics_port))
    if options.web is not None:
        try:
            asked.append(("--web", *untrusted.listening_address(options.web)))
        except ValueError as error:
            expected = "[ADDRESS:]PORT, for example 8080, 0.0.0.0:8080 or [::1]:8080"
            what = "not an address to serve a page on"
            raise ConfigError(what, where="--web", found=options.web, expected=expected) from error
    for number, (option, address, port) in enumerate(asked):
        if any(port and port == other[2] and untrusted.same_host(address, other[1]) for other in asked[:number]):
            do = "choose another; --port takes two, and metrics the one after them unless --metrics-port is given"
            raise ConfigError("another socket of this server has the port", where=option, found=port, do=do)
