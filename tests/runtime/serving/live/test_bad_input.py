"""Whatever a client sends, it gets a code, the server lives, and other players notice nothing. Behind CURVE, strangers
are not heard."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
import zmq.auth
from live_server import LiveServer, RawClient, error_code, frames, until_timeout

from animegamer_rt.serving.server import curve_keys
from animegamer_rt.serving.wire.codec import FIRST_FRAME


def receive(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := line.recv(size - len(data))):
        data += piece
    return data


HELLO = {"versions": [1], "client": "test"}


def packed(**header: Any) -> bytes:
    data: bytes = msgpack.packb(header)
    return data


def test_what_is_no_request_is_refused_with_its_code(player: RawClient) -> None:
    turn = {"type": "turn", "id": "mine", "session": "s", "fields": {"turn_id": "t", "token": "t"}}
    for first, header, code in (
        (b"GET / HTTP/1.1", packed(type="ping"), "protocol"),
        (FIRST_FRAME, b"\xc1\xc1\xc1", "protocol"),
        (b"AGRT\x02", packed(type="ping"), "version"),
        (FIRST_FRAME, packed(type="fly"), "unknown_type"),
        (FIRST_FRAME, packed(**turn), "missing_field"),
        (FIRST_FRAME, packed(type="open", fields={"seed": -1}), "bad_field"),
        (FIRST_FRAME, packed(type="ping", fields={"filler": "x" * 70_000}), "too_large"),
    ):
        player.send_raw([first, header])
        refusal = player.receive()
        assert error_code(refusal) == code
        assert refusal.parent == ("mine" if code == "missing_field" else None)
    assert frames(player.play(player.open())), "and the same connection still plays"


def test_a_frame_announced_as_a_gigabyte_is_hung_up_on(server: LiveServer, player: RawClient) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
        line.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\x00") + bytes(32))
        assert receive(line, 64).startswith(b"\xff")
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        line.sendall(b"\x04" + bytes([len(ready)]) + ready)
        assert b"ROUTER" in receive(line, 2 + len(ready))
        line.sendall(b"\x02" + struct.pack(">Q", 2**30) + b"x" * 1000)
        with contextlib.suppress(ConnectionResetError):
            while line.recv(4096):  # until the server hangs up; a time-out fails the test
                pass
    assert frames(player.play(player.open()))


def test_hello_comes_first_and_must_speak_our_version(server: LiveServer) -> None:
    with RawClient(server.port) as client:
        assert error_code(client.ask("ping")) == "hello_first"
        assert error_code(client.ask("hello", {"versions": [2, 3], "client": "later"})) == "version"
        welcome = client.ask("hello", HELLO | {"versions": [1, 2]}, answer="welcome").fields
        assert welcome["version"] == 1 and welcome["bundle"]["frames"] == 17 and welcome["state"] == "ready"
        assert welcome["bundle"]["random_weights"] is True, "simulated pictures mean nothing"
        assert client.ask("ping").type == "pong"
        assert client.ask("ping", control=True).type == "pong", "control needs no hello"


def test_sessions_are_opened_by_their_own_token_only(player: RawClient) -> None:
    game, other = player.open(), player.open()
    turn = {"instruction": "Mia waves.", "turn_id": "t", "token": other.token}
    assert error_code(player.ask("turn", turn, session=game.session)) == "wrong_token"
    assert error_code(player.ask("turn", turn, session="nobody")) == "unknown_session"
    assert error_code(player.ask("open", {"token": "made-up"})) == "unknown_session"
    assert error_code(player.ask("cancel", {"token": "x"}, session=game.session, control=True)) == "wrong_token"
    assert error_code(player.ask("replay", {"token": game.token}, session=game.session, turn=1)) == "no_such_turn"
    assert error_code(player.ask("rewind", {"token": game.token, "turn": 1}, session=game.session)) == "no_such_turn"
    assert player.open(token=game.token).opened.fields["turns"] == 0


def test_text_that_cannot_be_played_is_refused(player: RawClient) -> None:
    game = player.open()
    for text in ("", " \t\n", "\u0007\u202e", "?!.", "x" * 10_000, "Mia waves. " * 60):
        refused = player.play(game, text)
        assert error_code(refused) == "instruction" and len(refused) == 1
    assert error_code(player.play(game, "ｎａｋｅｄ Mia")) == "blocked"
    assert frames(player.play(game)), "the game is as before"


def test_the_players_who_are_connected_are_bounded(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", connections=2) as server:
        with server.ready().client() as player, server.client() as other:
            assert frames(player.play(player.open()))
            with server.client() as third:
                assert frames(third.play(third.open())), "who never played makes room"
                assert other.silent(100)
                with RawClient(server.port) as fourth:
                    assert error_code(fourth.ask("hello", HELLO)) == "too_many_sessions"
                assert frames(player.play(player.open())), "those who play go on"


def test_an_identity_that_is_taken_is_not_given_away(server: LiveServer) -> None:
    with RawClient(server.port, routing=b"kiosk") as first:
        first.ask("hello", HELLO, answer="welcome")
        game = first.open()
        with RawClient(server.port, routing=b"kiosk") as second:
            second.send("hello", HELLO)
            assert second.silent(300), "the second of the same name is not heard"
            assert frames(first.play(game)), "and the first goes on"
            with server.client() as other:
                assert frames(other.play(other.open()))


def test_a_flood_of_nonsense_does_not_keep_others_waiting(server: LiveServer, player: RawClient) -> None:
    with RawClient(server.port) as noisy:
        for _ in range(3000):
            noisy.send_raw([b"nonsense"])
        assert frames(player.play(player.open()))
        assert server.status()["state"] == "ready"


FAULT = """
from animegamer_rt.serving.server.status import ServerStatus
def status(self):
    raise ZeroDivisionError("nobody thought of this")
ServerStatus.status = status
"""


def test_a_fault_in_the_server_is_answered_logged_and_ends_nothing(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", code=FAULT) as server, RawClient(server.listening().port) as player:
        assert error_code(player.ask("status", control=True)) == "internal"
        assert player.ask("ping", control=True).type == "pong"
        for _ in until_timeout():
            if any("ZeroDivisionError: nobody thought of this" in line for line in server.said):
                break
        assert any("Traceback" in line for line in server.said)
        assert any("internal error while handling 'status'" in line for line in server.said)


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
