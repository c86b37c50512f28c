"""Behind CURVE: an authorized player plays, nobody else is heard."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth
from live_server import LiveServer, RawClient, frames

from animegamer_rt.serving.server import curve_keys

HELLO = {"versions": [1], "client": "test"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    curve_keys.new("server", folder / "server")
    curve_keys.new("mia", folder / "allow")
    curve_keys.new("stranger", folder / "elsewhere")
    return folder


@pytest.fixture(scope="module")
def guarded(bundle: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--keys", str(folder / "server"), "--authorized-keys", str(folder / "allow"))
    with LiveServer(bundle, tmp_path_factory.mktemp("state"), *options) as server:
        yield server.ready()


def known_as(folder: Path, client: Path) -> Callable[[Any], None]:
    public, secret = zmq.auth.load_certificate(client)
    server, _ = zmq.auth.load_certificate(folder / "server" / "server.key")

    def configure(socket: Any) -> None:
        socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = public, secret, server

    return configure


def test_a_stranger_and_one_without_keys_are_not_heard(guarded: LiveServer, folder: Path) -> None:
    stranger = known_as(folder, folder / "elsewhere" / "stranger.key_secret")
    for configure in (stranger, None):
        with RawClient(guarded.port, configure=configure) as client:
            client.turns.sndtimeo = client.control.sndtimeo = 0
            with contextlib.suppress(zmq.Again):  # already hung up on
                client.send("hello", HELLO)
                client.send("status", control=True)
            assert client.silent(500)
            assert not client.control.poll(0)


def test_a_player_who_comes_back_under_the_same_identity_takes_over(guarded: LiveServer, folder: Path) -> None:
    mia = known_as(folder, folder / "allow" / "mia.key_secret")

    def once(socket: Any) -> None:
        mia(socket)
        socket.reconnect_ivl = -1  # else it would come back by itself and take its identity again

    with RawClient(guarded.port, routing=b"mia", configure=once) as lost:
        lost.ask("hello", HELLO, answer="welcome")
        game = lost.open()
        with RawClient(guarded.port, routing=b"mia", configure=mia) as back:
            back.ask("hello", HELLO, answer="welcome")
            assert frames(back.play(back.open(token=game.token)))
