"""What `animegamer-rt serve` can be asked for: every limit and every waiting time, with its unit in the name.

Knows defaults and how the command line spells them; nothing of sockets or turns.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path

from animegamer_rt.engine_config import DEFAULT_CONFIG, EngineConfig
from animegamer_rt.errors import ConfigError

PORT = 5570
"""Turns; control is the next port, metrics the one after it."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """None is the bundle's or the program's own choice; 0 is "no limit" where a limit's text says so."""

    bundle: str = "pocket"
    plan: str | None = None
    engines: EngineConfig = DEFAULT_CONFIG
    state_dir: Path = Path("server-state")
    host: str = "127.0.0.1"
    port: int = PORT
    keys: Path | None = None
    authorized_keys: Path | None = None
    block_list: Path | None = None
    queue: int = 16
    """Most turns that wait, of all sessions together."""
    sessions: int = 64
    """Most sessions used within the last hour; 0 is no limit."""
    connections: int = 128
    turns_per_minute: int = 120
    """Most turns a minute of one session; 0 is no limit."""
    turn_deadline_s: float = 120.0
    """Most seconds that a turn waits and runs, unless its client asks for fewer."""
    send_queue_mib: float = 48.0
    """Most that is kept for a client that does not read: two full-size clips."""
    drain_s: float = 60.0
    worker_timeout_s: float = 60.0
    """A worker that says nothing for this long while it has a job is taken for dead."""
    backoff_s: float = 0.5
    """Wait before a worker that died is started again; doubled with each death in a row."""
    keep_shots: str = "window"
    """Shots kept of old turns: `window`, a number of turns, or `all`."""
    quota_gib: float = 8.0
    """Most that all sessions take on disk; shots of idle ones go first, they can be predicted again."""
    keep_days: float | None = None
    """Sessions unused for longer are removed."""
    metrics_port: int | None = None
    """None is the port after control's; 0 is none."""
    trace: Path | None = None
    """What the engines did is written there whenever nothing waits."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add serve's own options to its parser; those of bundle and engines are the command's."""
    command.set_defaults(**{field.name: field.default for field in _own_fields()})
    add = command.add_argument
    add("--port", type=int, help="of turns; control is the next one (default: %(default)s)")
    add("--state-dir", type=Path, metavar="DIR", help="sessions and exports (default: %(default)s)")
    add("--host", help="address; any but loopback needs --keys and --authorized-keys (default: %(default)s)")
    add("--keys", type=Path, metavar="DIR", help="folder with server.key_secret; encrypts (see: keys new)")
    add("--authorized-keys", type=Path, metavar="DIR", help="folder of the public keys (*.key) of the clients let in")
    add("--block-list", type=Path, metavar="FILE", help="words and phrases that no instruction may hold, a line each")
    add("--queue", type=int, help="most turns that wait (default: %(default)s)")
    add("--sessions", type=int, help="most sessions in use, 0: any (default: %(default)s)")
    add("--connections", type=int, help="most connections (default: %(default)s)")
    add("--turns-per-minute", type=int, help="of one session, 0: any (default: %(default)s)")
    add("--turn-deadline", dest="turn_deadline_s", type=float, metavar="S", help="seconds (default: %(default)g)")
    add("--send-queue-mib", type=float, metavar="MIB", help="kept for a slow client (default: %(default)g)")
    add("--drain-s", type=float, metavar="S", help="for running turns at the end (default: %(default)g)")
    add("--worker-timeout-s", type=float, metavar="S", help="silence of a dead worker (default: %(default)g)")
    add("--backoff-s", type=float, metavar="S", help="before a restart (default: %(default)g)")
    add("--keep-shots", help="window, a number of turns, or all (default: %(default)s)")
    add("--quota-gib", type=float, metavar="GIB", help="of all sessions (default: %(default)g)")
    add("--keep-days", type=float, metavar="DAYS", help="remove sessions unused for longer (default: never)")
    add("--trace", type=Path, metavar="FILE", help="what the engines did, for ui.perfetto.dev, written at rest")
    add(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="Prometheus text on http://127.0.0.1:PORT/metrics; 0: none (default: --port + 2)",
    )


def from_arguments(arguments: argparse.Namespace) -> ServeOptions:
    """The options that a command line asked for; `check` says whether they make sense."""
    own = {field.name: getattr(arguments, field.name) for field in _own_fields()}
    return ServeOptions(engines=EngineConfig.from_arguments(arguments), **own)


def _own_fields() -> list[dataclasses.Field[object]]:
    return [field for field in dataclasses.fields(ServeOptions) if field.name != "engines"]


def check(options: ServeOptions) -> None:
    """Raises ConfigError naming the first option that is out of range."""
    ranges: dict[str, tuple[float, float]] = {
        "port": (0, 65533),
        "metrics_port": (0, 65535),
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
    }
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            option = "--turn-deadline" if name == "turn_deadline_s" else "--" + name.replace("_", "-")
            raise ConfigError("out of range", where=option, found=value, expected=f"{low:g} to {high:g}")
