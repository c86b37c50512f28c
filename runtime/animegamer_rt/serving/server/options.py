"""The settings of `animegamer-rt serve`, with units in their names, and their ranges.

`config_file` reads and prints them; `command` defines those that are command-line options.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from animegamer_rt import untrusted
from animegamer_rt.engine_config import BUNDLE, DEFAULT_CONFIG, EngineConfig
from animegamer_rt.errors import ConfigError
from animegamer_rt.serving.wire.schema import MAX_OFFERED

PORT = 5570
"""Port for turns. Control is the next port, metrics the one after it."""

MAX_WORKERS = 64


def _setting(default: Any, meaning: str, low: float | None = None, high: float | None = None, **more: Any) -> Any:
    """A field and its meaning. low, high: the range of a number. more: metavar of an option."""
    limits = None if low is None or high is None else (low, high)
    return dataclasses.field(default=default, metadata={"meaning": meaning, "range": limits, **more})


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """None means the bundle's or the program's own choice."""

    bundle: str = _setting("pocket", BUNDLE)
    plan: str | None = _setting(None, "exact, balanced, fast or turbo; unset: the bundle's default")
    host: str = _setting("127.0.0.1", "address to listen on; any but loopback needs keys and authorized keys")
    port: int = _setting(PORT, "port for turns; control uses the next one; 0: any free pair", 0, 65533)
    state_dir: Path = _setting(Path("server-state"), "folder of sessions and exports", metavar="DIR")
    keys: Path | None = _setting(None, "folder with server.key_secret; encrypts (see: keys new)", metavar="DIR")
    authorized_keys: Path | None = _setting(None, "folder with the players' public keys (*.key)", metavar="DIR")
    workers: int = _setting(1, "engine processes, which share the cores or GPUs", 1, MAX_WORKERS, metavar="N")
    ray: str | None = _setting(None, "run the workers on the nodes of this Ray cluster", metavar="HOST:PORT")
    web: str | None = _setting(
        None, "also serve a web page here (docs/WEB.md); port 0: any free one", metavar="[ADDRESS:]PORT"
    )
    web_password: Path | None = _setting(
        None, "file with the page's password in its first line; needed beyond loopback", metavar="FILE"
    )
    origins: tuple[str, ...] = _setting((), "https://HOST[:PORT] of other sites whose pages may connect")
    trusted_proxies: tuple[str, ...] = _setting(
        (), "addresses or networks of proxies before the page whose X-Forwarded-For is believed"
    )
    continue_on_other_engines: bool = _setting(
        False,
        "allow sessions that were started with another device, library or precision; their earlier turns will look "
        "different",
    )
    ahead: int = _setting(
        0, "speculative turns per waiting session, rendered in idle time; 0: none", 0, MAX_OFFERED, metavar="N"
    )
    ahead_mib: float = _setting(128.0, "memory for speculative turns", 0.01, 65_536)
    parent: int | None = _setting(
        None, "drain and exit when the process with this id has ended", 1, 2**31 - 1, metavar="PID"
    )
    queue: int = _setting(16, "turns that may wait, over all sessions", 1, 10_000)
    sessions: int = _setting(64, "sessions that may be used within an hour; 0: no limit", 0, 100_000)
    connections: int = _setting(128, "clients that may be connected", 1, 10_000)
    turns_per_minute: int = _setting(120, "turns per minute of one session; 0: no limit", 0, 100_000)
    export_turns: int = _setting(100, "turns of a game that may be exported; 0: no limit", 0, 100_000)
    turn_deadline_s: float = _setting(
        120.0, "longest time a turn may wait and run, unless its client asks for less", 0.01, 86_400
    )
    send_queue_mib: float = _setting(48.0, "memory for a client that does not read: two full-size clips", 0.01, 65_536)
    send_queues_mib: float = _setting(192.0, "memory for all clients that do not read", 0.01, 65_536)
    worker_timeout_s: float = _setting(60.0, "replace a busy worker that sends nothing for this long", 0.1, 86_400)
    block_list: Path | None = _setting(None, "file of words and phrases to refuse, one per line")
    allow_list: Path | None = _setting(None, "file of words, one per line; instructions with others are refused")
    quota_gib: float = _setting(8.0, "disk space for all sessions", 0.001, 1e6)
    keep_days: float | None = _setting(None, "delete sessions unused for longer; unset: never", 0, 36_500)
    metrics_port: int | None = _setting(
        None, "Prometheus text on http://127.0.0.1:PORT/metrics; 0: none; unset: port + 2", 0, 65535
    )
    engines: EngineConfig = _setting(DEFAULT_CONFIG, "where and how the bundle's parts run")


FIELDS: Mapping[str, dataclasses.Field[Any]] = {field.name: field for field in dataclasses.fields(ServeOptions)}


def check_values(options: ServeOptions, names: Iterable[str], where: Callable[[str], str]) -> None:
    """Raises ConfigError for the first of these settings that is out of range; where: how the user knows it."""
    for name in names:
        value, about = getattr(options, name), FIELDS[name].metadata
        if value is not None and about.get("range") is not None:
            low, high = about["range"]
            if not low <= value <= high:
                raise ConfigError("out of range", where=where(name), found=value, expected=f"{low:g} to {high:g}")


def check(options: ServeOptions) -> None:
    """Raises ConfigError for the first setting that is out of range or conflicts with another."""
    check_values(options, FIELDS, str)
    try:
        os.path.realpath(options.state_dir).encode()  # unlike `resolve`, it takes a link to itself
    except UnicodeEncodeError as error:  # clients receive the paths of exports in UTF-8
        what, do = "the path is not UTF-8 text", "give a folder of another name, or set LC_ALL=C.UTF-8"
        raise ConfigError(what, where="state_dir", found=ascii(str(options.state_dir)), do=do) from error
    for origin in options.origins:
        meant = untrusted.web_origin(origin)
        if not meant or origin != meant:
            do = f"give {meant or 'https://HOST or https://HOST:PORT'}, as browsers send it: without a path"
            raise ConfigError("not the origin of a web page", where="origins", found=origin, do=do)
    for proxy in options.trusted_proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as error:
            what, expected = "not a proxy's address", "an IP address or a network, such as 127.0.0.1 or 10.0.0.0/8"
            raise ConfigError(what, where="trusted_proxies", found=proxy, expected=expected) from error
    for name in ("origins", "trusted_proxies", "web_password") if options.web is None else ():
        if getattr(options, name):
            raise ConfigError("the setting needs web", where=name, do="set web too, or leave it out")
    _check_ports(options)


def _check_ports(options: ServeOptions) -> None:
    """Refuse two sockets of this server on one port: the error of the second would blame another program."""
    host = untrusted.bare_host(options.host)
    if not untrusted.is_address(host):
        expected = "an IP address of this machine, such as 127.0.0.1, 0.0.0.0 or ::"
        raise ConfigError("not an address to listen on", where="host", found=options.host, expected=expected)
    metrics_port = (options.port and options.port + 2) if options.metrics_port is None else options.metrics_port
    asked = [("port", host, options.port), ("port", host, options.port and options.port + 1)]
    asked.append(("metrics_port", "127.0.0.1", metrics_port))
    if options.web is not None:
        try:
            asked.append(("web", *untrusted.listening_address(options.web)))
        except ValueError as error:
            expected = "[ADDRESS:]PORT, for example 8080, 0.0.0.0:8080 or [::1]:8080"
            what = "not an address to serve a page on"
            raise ConfigError(what, where="web", found=options.web, expected=expected) from error
    for number, (name, address, port) in enumerate(asked):
        if any(port and port == other[2] and untrusted.same_host(address, other[1]) for other in asked[:number]):
            do = "choose another; port takes two, and metrics the one after them unless metrics_port is set"
            raise ConfigError("another socket of this server uses the port", where=name, found=port, do=do)
