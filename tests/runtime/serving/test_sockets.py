"""The server's sockets: what PROTOCOL.md promises of a network that breaks, and a port that is half taken."""

from __future__ import annotations

import re
import socket
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import zmq
import zmq.auth
from client.conformance.ports import ReservedPorts

from animegamer_rt.errors import ServerError
from animegamer_rt.serving.server import sockets as server_sockets
from animegamer_rt.serving.server.curve_keys import new_pair
from animegamer_rt.serving.server.descriptors import raise_limit
from animegamer_rt.serving.server.options import ServeOptions
from animegamer_rt.serving.server.sockets import ServerSockets

PROTOCOL = (Path(__file__).parents[3] / "client" / "PROTOCOL.md").read_text(encoding="utf-8")


def test_a_broken_network_is_noticed_within_the_minute_that_the_protocol_names() -> None:
    assert re.search(r"notices a broken network within about a minute, by TCP keep-alive", PROTOCOL)
    with closing(ServerSockets(ServeOptions(port=0))) as sockets:
        for one in (sockets.turns, sockets.control):
            assert one.tcp_keepalive == 1
            assert one.tcp_keepalive_idle + one.tcp_keepalive_intvl * one.tcp_keepalive_cnt <= 60
            assert one.tcp_maxrt <= 60_000, "also while data is under way, when nothing is asked to be kept alive"


def test_both_ports_are_had_or_none() -> None:
    with ReservedPorts() as free, socket.create_server(("127.0.0.1", free.port + 1)):
        with pytest.raises(ServerError, match=f"port {free.port + 1}: the port is in use"):
            ServerSockets(ServeOptions(port=free.port))
        socket.create_server(("127.0.0.1", free.port)).close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a connection has received")
def test_who_sends_parts_without_end_is_closed_who_ends_messages_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_sockets, "UNFINISHED_BYTES", 2**20)
    monkeypatch.setattr(server_sockets, "COUNT_S", 0.0)
    with closing(ServerSockets(ServeOptions(port=0))) as sockets:
        with zmq.Context() as context, context.socket(zmq.DEALER) as player:
            player.connect(f"tcp://127.0.0.1:{sockets.port}")
            with socket.create_connection(("127.0.0.1", sockets.port)) as endless:
                endless.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48))
                endless.sendall(b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")
                with pytest.raises(ConnectionError):
                    for _ in range(100):
                        endless.sendall(b"\x03" + (2**18).to_bytes(8, "big") + bytes(2**18))
                        player.send_multipart([b"picture", bytes(2**18)])
                        assert any(sockets.turns in sockets.poll(100) for _ in range(100))
                        assert sockets.receive(sockets.turns).frames[0] == b"picture"
            assert sockets.connections == 1


def test_a_connection_counts_once_it_has_sent_a_message() -> None:
    with ExitStack() as held, closing(ServerSockets(ServeOptions(port=0))) as sockets:
        for _ in range(5):
            held.enter_context(socket.create_connection(("127.0.0.1", sockets.port)))
        assert 0 < sockets.turns.handshake_ivl <= 5000
        with zmq.Context() as context, context.socket(zmq.DEALER) as player:
            player.connect(f"tcp://127.0.0.1:{sockets.port}")
            player.send_multipart([b"hello", b"you"])
            assert any(sockets.turns in sockets.poll(100) for _ in range(100)) and sockets.connections == 0
            assert sockets.receive(sockets.turns).frames == [b"hello", b"you"] and sockets.connections == 1
            with pytest.raises(zmq.Again):
                sockets.receive(sockets.turns)
        assert any(sockets.poll(100) is not None and sockets.connections == 0 for _ in range(100)), "until it is gone"


def test_a_connection_is_charged_to_its_key_or_to_the_address_that_the_gateway_passed(tmp_path: Path) -> None:
    for name, folder in (("server", "keys"), ("mia", "players")):
        assert new_pair(name, tmp_path / folder) == 0
    sockets = ServerSockets(ServeOptions(port=0, keys=tmp_path / "keys", authorized_keys=tmp_path / "players"))
    gateway_key, gateway_secret = zmq.curve_keypair()
    sockets.admit_gateway(gateway_key)
    server_key, _ = zmq.auth.load_certificate(tmp_path / "keys" / "server.key")
    mia_key, mia_secret = zmq.auth.load_certificate(tmp_path / "players" / "mia.key_secret")
    visitor = sockets.visitor_prefix + 16 * b"x" + b"192.0.2.1"
    holders = []
    try:
        for key, secret, routing in (
            (mia_key, mia_secret, b"mia"),
            (gateway_key, gateway_secret, visitor),
            (gateway_key, gateway_secret, b"other"),
        ):
            with zmq.Context() as context, context.socket(zmq.DEALER) as player:
                player.curve_publickey, player.curve_secretkey, player.curve_serverkey = key, secret, server_key
                player.routing_id = routing
                player.connect(f"tcp://127.0.0.1:{sockets.port}")
                player.send(b"hello")
                assert any(sockets.turns in sockets.poll(100) for _ in range(100))
                holders.append(sockets.receive(sockets.turns).holder)
    finally:
        sockets.close()
    assert holders == [mia_key, b"192.0.2.1", None]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_too_few_descriptors_for_players_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (79, 79))
    with pytest.raises(ServerError, match=r"limit on open files.*found 79; expected 80 or more; raise .*: ulimit -Hn"):
        raise_limit()
    monkeypatch.setattr("resource.getrlimit", lambda _: (80, 80))
    assert raise_limit() == 80
    with pytest.raises(ServerError, match="expected 96 or more"):
        raise_limit(workers=3)
