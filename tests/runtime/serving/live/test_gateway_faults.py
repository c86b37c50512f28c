"""Hostile visitors of the gateway: the honest player sees nothing of it."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import re
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import golden_messages as golden
import msgpack
from browser_socket import JSON, MSGPACK, Browser, web
from live_server import LiveServer, frames
from websockets.exceptions import ConnectionClosed

from animegamer_rt.serving.wire.schema import CODES

HALF_OPEN = 500
MESSAGES = 2_000
CLIENT_FAULTS = set("protocol unknown_type missing_field bad_field hello_first cancelled not_understood undo".split())
"""Codes of mistakes that the page does not make, and those that it says in other words."""


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


def test_the_page_says_every_error_in_three_languages() -> None:
    text = (Path(__file__).parents[4] / "client" / "web" / "strings.js").read_text("utf-8")
    for name in ("EN", "ZH", "JA"):
        strings = text.split(f"const {name} = {{")[1].split("\n};")[0]
        keys = set(re.findall(r"(\w+): \"", strings))
        assert CODES.keys() - CLIENT_FAULTS <= keys, name
        assert keys == set(re.findall(r"(\w+): \"", text.split("const EN = {")[1].split("\n};")[0])), name


HEADERS = [vector["header"] for vector in golden.MESSAGES if vector["sender"] == "client"]
ODD: tuple[Any, ...] = (
    None, True, -1, 2**63, 2**64 - 1, 1e308, float("nan"), "", "a" * 70_000, "\x00", "\ud800",
    "<script>alert(1)</script>", [], [[]] * 300, {}, {"a": {"b": {}}}, "../../etc/passwd", "\U0001f600" * 70,
)  # fmt: skip
BATCH = 25


@dataclass
class Outcome:
    """answers: messages that came back, by code or type. turns: of the honest player, all with the same pictures."""

    answers: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    turns: int = 0


def hostile(dice: random.Random, form: str) -> str | bytes:
    """A message of which no more can be said than that it began as a good one."""
    header = copy.deepcopy(dice.choice(HEADERS))
    for _ in range(dice.randrange(3)):
        place = header if dice.random() < 0.5 or not isinstance(header.get("fields"), dict) else header["fields"]
        place[dice.choice([*place, "new"])] = copy.deepcopy(dice.choice(ODD))
    if form == JSON:
        data = json.dumps(header).encode()
    else:
        with contextlib.suppress(UnicodeEncodeError):
            packed = msgpack.packb(header)
            data = len(packed).to_bytes(4, "big") + packed
            return _broken(dice, data) if dice.random() < 0.5 else data
        data = dice.randbytes(40)
    if dice.random() < 0.5:
        data = _broken(dice, data)
    return data if form == MSGPACK or dice.random() < 0.02 else data.decode("latin-1")


def _broken(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed[: dice.randint(0, len(changed))] if dice.random() < 0.3 else changed)


def attack(url: str, form: str, messages: int, seed: int, outcome: Outcome) -> None:
    """Send so many messages over as many connections as that takes, and read what comes back."""
    dice, sent = random.Random(seed), 0
    while sent < messages:
        with contextlib.suppress(ConnectionClosed), Browser(url, form) as browser:
            browser.hello()
            while sent < messages:
                for _ in range(BATCH):
                    browser.socket.send(hostile(dice, form))
                    sent += 1
                    outcome.sent += 1
                fence = browser.send("ping", {})
                while (message := browser.receive()).parent != fence:
                    outcome.answers[str(message.fields.get("code", message.type))] += 1


def fuzz(server: LiveServer, messages: int) -> Outcome:
    """Attack in both forms at once. Raises AssertionError if the honest player sees other than its own pictures."""
    url, outcome = web(server), Outcome()
    with Browser(url) as player, ThreadPoolExecutor(2) as pool:
        player.hello(codec="raw")
        game = player.ask("open", {"seed": 4})
        plain = frames(player.rest(player.begin(game, "first")))
        forms = enumerate((JSON, MSGPACK))
        attacks = [pool.submit(attack, url, form, messages // 2, seed, outcome) for seed, form in forms]
        while not all(one.done() for one in attacks):
            again = player.rest(player.begin(game, "", "replay", turn=1))
            assert frames(again) == plain, again[-1]
            outcome.turns += 1
        for one in attacks:
            one.result()
    return outcome
