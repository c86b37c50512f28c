"""The options of `animegamer-rt route`, read and checked.

Knows the command line; nothing of connections.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from animegamer_rt import untrusted
from animegamer_rt.errors import ConfigError
from animegamer_rt.serving.server.options import PORT, ServeOptions, check

LOOPBACK = ("127.0.0.1", "::1")
_ADDRESS = re.compile(r"tcp://([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*|\[.+\]):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """servers: their addresses, in the order of their shards. listen: where players connect.

    client_keys, server_key: the router's own key pair, and the public key of the servers, where these have keys.
    """

    servers: tuple[str, ...]
    listen: ServeOptions
    client_keys: Path | None = None
    server_key: Path | None = None


def add_options(command: argparse.ArgumentParser) -> None:
    """Add route's options to its parser."""
    add, defaults = command.add_argument, ServeOptions()
    add("servers", nargs="+", metavar="SERVER", help="tcp://HOST:PORT of each, that of shard 1/N first")
    add("--port", type=int, default=PORT, help="for players; control is the next one (default: %(default)s)")
    add("--host", default=defaults.host, help="address to listen on, as in serve (default: %(default)s)")
    add("--keys", type=Path, metavar="DIR", help="as in serve")
    add("--authorized-keys", type=Path, metavar="DIR", help="as in serve")
    add("--connections", type=int, default=512, metavar="N", help="players at once (default: %(default)s)")
    add("--client-keys", type=Path, metavar="FILE", help="the router's own NAME.key_secret, for servers with keys")
    add("--server-key", type=Path, metavar="FILE", help="server.key of the servers, which all have the same")


def from_arguments(arguments: argparse.Namespace) -> RouteOptions:
    """The options of a command line. Raises ConfigError."""
    listen = ServeOptions(
        host=arguments.host,
        port=arguments.port,
        keys=arguments.keys,
        authorized_keys=arguments.authorized_keys,
        connections=arguments.connections,
        metrics_port=0,
    )
    check(listen)
    servers = tuple(arguments.servers)
    for server in servers:
        host, port = _host_and_port(server)
        if servers.count(server) > 1:
            raise ConfigError("a server is given twice", found=server, do="give each one once, in the order of --shard")
        own = untrusted.bare_host(listen.host)
        if abs(port - listen.port) <= 1 and (host == own or (host in LOOPBACK and untrusted.same_host(host, own))):
            do = "give the router and each server ports of their own, with --port"
            raise ConfigError("this is the router's own address", found=server, do=do)
    if (arguments.client_keys is None) != (arguments.server_key is None):
        raise ConfigError("--client-keys and --server-key belong together", do="give both, or neither")
    return RouteOptions(servers, listen, arguments.client_keys, arguments.server_key)


def _host_and_port(server: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(server)
    host = "" if found is None else untrusted.bare_host(found[1])
    if found is None or not 0 < int(found[2]) < 65535 or ("[" in server and not untrusted.is_address(host)):
        do = "give what each server printed after `ready`; an IPv6 address is in brackets"
        raise ConfigError("not a server's address", found=server, expected="tcp://HOST:PORT", do=do)
    return host, int(found[2])
