"""Hostile messages at a gateway while an honest player plays: `python tests/fakes/gateway_fuzz.py --messages 100000`.

With tests/fakes and runtime on PYTHONPATH. The same is a test with fewer messages.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import golden_messages as golden
import msgpack
from browser_socket import JSON, MSGPACK, Browser, gateway_pid, resident_mib, web
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
    """answers: messages that came back, by code or type. turns: of the honest player, all with the same pictures.

    growth_mib: of each one's memory over the second half of the messages.
    """

    answers: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    turns: int = 0
    growth_mib: dict[str, float] = field(default_factory=dict)


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
        middle: dict[str, float] = {}
        for half in range(2):
            attacks = [
                pool.submit(attack, url, form, messages // 4, 2 * half + seed, outcome)
                for seed, form in enumerate((JSON, MSGPACK))
            ]
            while not all(one.done() for one in attacks):
                again = player.rest(player.begin(game, "", "replay", turn=1))
                assert frames(again) == plain, again[-1]
                outcome.turns += 1
            for one in attacks:
                one.result()
            now = {"gateway": resident_mib(gateway_pid(server)), "server": resident_mib(server.process.pid)}
            middle = middle or now
        outcome.growth_mib = {name: round(now[name] - middle[name], 2) for name in now}
    return outcome


def main() -> int:
    """Run the long one and say its outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    messages = parser.parse_args().messages
    import fakes

    with tempfile.TemporaryDirectory() as folder:
        bundle = fakes.write_bundle(Path(folder) / "bundle").folder
        with LiveServer(bundle, Path(folder) / "state", "--web", "0", sessions=20, turns_per_minute=0) as server:
            outcome = fuzz(server.ready(), messages)
            wrong = [line for line in server.said if "ERROR" in line or "Traceback" in line]
    print(outcome, wrong[:5])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
