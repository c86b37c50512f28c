"""Hostile messages at a gateway while an honest player plays."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import golden_messages as golden
import msgpack
from browser_socket import JSON, MSGPACK, Browser, web
from live_server import LiveServer, frames
from websockets.exceptions import ConnectionClosed

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
