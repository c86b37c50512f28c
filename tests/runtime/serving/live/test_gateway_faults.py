"""Hostile visitors of the gateway, and a game in two windows: the honest player sees nothing of it."""

from __future__ import annotations

import contextlib
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from browser_socket import Browser, web
from gateway_fuzz import fuzz
from live_server import LiveServer, frames

from animegamer_rt.serving.wire import CODES

HALF_OPEN = 500
MESSAGES = 2_000
CLIENT_FAULTS = {"protocol", "unknown_type", "missing_field", "bad_field", "hello_first", "cancelled"}
"""Codes of mistakes that the page does not make, and one that it says in other words."""


def test_a_player_plays_on_among_500_half_open_sockets_and_2000_hostile_messages(bundle: Path, tmp_path: Path) -> None:
    settings = {"web": "0", "sessions": 20, "turns_per_minute": 0}
    with contextlib.ExitStack() as sockets, LiveServer(bundle, tmp_path / "state", **settings) as server:
        url = web(server.ready())
        address = urlsplit(url)
        half_open = []
        for number in range(HALF_OPEN):
            one = sockets.enter_context(socket.create_connection((str(address.hostname), int(address.port or 0))))
            one.sendall((b"", b"GET / HT", b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n")[number % 3])
            half_open.append(one)
        outcome = fuzz(server, MESSAGES)
        assert outcome.turns and outcome.sent >= MESSAGES
        assert {"protocol", "bad_field", "too_large", "unknown_type"} <= outcome.answers.keys()
        assert "internal" not in outcome.answers
        for one in half_open:
            one.settimeout(30)
            with contextlib.suppress(ConnectionError):
                assert one.recv(1024) == b"" or one.recv(1024) == b"", "a connection that asks for nothing is closed"
        assert not [line for line in server.said if "Traceback" in line or "ERROR" in line]


def test_two_windows_play_one_game(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", "--web", "0", device="simulated:0.3") as server:
        url = web(server.ready())
        with Browser(url) as one, Browser(url) as other:
            for window in (one, other):
                window.hello(codec="raw")
            game = one.ask("open", {"seed": 3})
            assert other.ask("open", {"token": game.fields["token"]}).session == game.session
            begun = one.begin(game, "mine")
            while one.receive().type != "state":
                pass
            assert other.rest(other.begin(game, "theirs"))[-1].fields["code"] == "turn_running"
            moved = other.begin(game, "mine")
            assert len(frames(other.rest(moved))) == 17, "the turn's events go to the window that asked last"
            second = one.rest(one.begin(game, "next"))
            assert [event.turn for event in second if event.type == "done"] == [2] and begun


def test_the_page_says_every_error_in_three_languages() -> None:
    text = (Path(__file__).parents[4] / "client" / "web" / "strings.js").read_text("utf-8")
    for name in ("EN", "ZH", "JA"):
        strings = text.split(f"const {name} = {{")[1].split("\n};")[0]
        keys = set(re.findall(r"(\w+): \"", strings))
        assert CODES.keys() - CLIENT_FAULTS <= keys, name
        assert keys == set(re.findall(r"(\w+): \"", text.split("const EN = {")[1].split("\n};")[0])), name
