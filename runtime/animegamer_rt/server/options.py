"""What `animegamer-rt serve` can be asked for: every limit and every waiting time, with its unit in the name.

Knows defaults and how the command line spells them; nothing of sockets or turns.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError

PORT = 5570
"""Turns; control is the next port, metrics the one after it."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """None is the bundle's or the program's own choice; 0 is "no limit" where a limit's text says so."""

    bundle: str = "pocket"
    plan: str | None = None
    state: Path = Path("server-state")
    host: str = "127.0.0.1"
    port: int = PORT
    engines: str = "onnxruntime"
    threads: int | None = None
    keys: Path | None = None
    allow: Path | None = None
    block_list: Path | None = None
    queue: int = 16
    """Most turns that wait, of all sessions together."""
    sessions: int = 64
    """Most sessions used within the last hour; 0 is no limit."""
    connections: int = 128
    turns_a_minute: int = 120
    """Most turns a minute of one session; 0 is no limit."""
    turn_deadline_s: float = 120.0
    """Most seconds that a turn waits and runs, unless its client asks for fewer."""
    outbox_mib: float = 48.0
    """Most that is kept for a client that does not read: two full-size clips."""
    drain_s: float = 60.0
    stall_s: float = 60.0
    """A worker that says nothing for so long while it has a job is taken for dead."""
    backoff_s: float = 0.5
    """Wait before a worker that died is started again; doubled with each death in a row."""
    loading_s: float = 600.0
    """The same while it loads its engines."""
    keep_shots: str = "window"
    """Shots kept of old turns: `window`, a number of turns, or `all`."""
    quota_gib: float = 8.0
    """Most that all sessions take on disk; shots of idle ones go first, they can be predicted again."""
    keep_days: float | None = None
    """Sessions unused for longer are removed."""
    metrics_port: int | None = None
    """None is the port after control's; 0 is none."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add serve's own options to its parser; `--bundle` and `--plan` are the command's."""
    default = ServeOptions()
    add = command.add_argument
    add("--port", type=int, default=default.port, help=f"of turns; control is the next one (default: {default.port})")
    add("--state", type=Path, default=default.state, metavar="DIR", help="sessions and exports (default: server-state)")
    add("--host", default=default.host, help="address to serve on; any but loopback needs --keys and --allow")
    add("--keys", type=Path, metavar="DIR", help="folder with server.key_secret; encrypts (see: keys new)")
    add("--allow", type=Path, metavar="DIR", help="folder of the public keys (*.key) of the clients let in")
    add("--engines", default=default.engines, help="onnxruntime, or fixed:SECONDS for turns of a fixed cost")
    add("--threads", type=int, help="cores the engines may use (default: all)")
    add("--block-list", type=Path, metavar="FILE", help="words and phrases that no instruction may hold, a line each")
    add("--queue", type=int, default=default.queue, help=f"most turns that wait (default: {default.queue})")
    add("--sessions", type=int, default=default.sessions, help="most sessions in use, 0: any (default: 64)")
    add("--connections", type=int, default=default.connections, help="most connections (default: 128)")
    add("--turns-a-minute", type=int, default=default.turns_a_minute, help="of one session, 0: any (default: 120)")
    add("--turn-deadline", type=float, default=default.turn_deadline_s, metavar="S", help="seconds (default: 120)")
    add("--outbox-mib", type=float, default=default.outbox_mib, metavar="MIB", help="kept for a slow client")
    add(
        "--drain-s", type=float, default=default.drain_s, metavar="S", help="for running turns at the end (default: 60)"
    )
    add("--stall-s", type=float, default=default.stall_s, metavar="S", help="silence of a dead worker (default: 60)")
    add("--backoff-s", type=float, default=default.backoff_s, metavar="S", help="before a restart (default: 0.5)")
    add("--keep-shots", default=default.keep_shots, help="window, a number of turns, or all (default: window)")
    add("--quota-gib", type=float, default=default.quota_gib, metavar="GIB", help="of all sessions (default: 8)")
    add("--keep-days", type=float, metavar="DAYS", help="remove sessions unused for longer (default: never)")
    add(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="Prometheus text on http://127.0.0.1:PORT/metrics; 0: none (default: --port + 2)",
    )


def from_arguments(arguments: argparse.Namespace) -> ServeOptions:
    """The options that a command line asked for. Raises ConfigError for a value that makes no sense."""
    given = vars(arguments)
    names = {field.name for field in dataclasses.fields(ServeOptions)}
    values = {name: value for name, value in given.items() if name in names}
    values["turn_deadline_s"] = given["turn_deadline"]
    options = ServeOptions(**values)
    check(options)
    return options


def check(options: ServeOptions) -> None:
    """Raises ConfigError naming the first option that is out of range."""
    ranges: dict[str, tuple[float, float]] = {
        "port": (0, 65533),
        "metrics_port": (0, 65535),
        "queue": (1, 10_000),
        "sessions": (0, 100_000),
        "connections": (1, 10_000),
        "turns_a_minute": (0, 100_000),
        "turn_deadline_s": (0.01, 86_400),
        "outbox_mib": (0.01, 65_536),
        "drain_s": (0, 86_400),
        "quota_gib": (0.001, 1e6),
        "stall_s": (0.1, 86_400),
        "backoff_s": (0, 30),
        "loading_s": (1, 86_400),
    }
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            option = "--" + name.replace("_", "-").replace("turn-deadline-s", "turn-deadline")
            raise ConfigError("out of range", where=option, found=value, expected=f"{low:g} to {high:g}")
    kind, _, seconds = options.engines.partition(":")
    if kind != "onnxruntime" and not (kind == "fixed" and _is_seconds(seconds)):
        expected = "onnxruntime or fixed:SECONDS"
        raise ConfigError("unknown engines", where="--engines", found=repr(options.engines), expected=expected)


def _is_seconds(text: str) -> bool:
    try:
        return 0 <= float(text) < 3600
    except ValueError:
        return False
