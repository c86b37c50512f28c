"""`serve --web`: a browser gets what a program gets, hostile visitors harm nobody, no game depends on the gateway."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import os
import random
import re
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import golden_messages as golden
import msgpack
import pytest
from browser_socket import JSON, MSGPACK, Browser, gateway_pid, resident_mib, web
from live_server import FULL_SIZE, TIMEOUT_S, LiveServer, frames, gone, refusal, until_timeout
from websockets.exceptions import ConnectionClosed, InvalidStatus

from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.wire.schema import CODES, VERSION


@pytest.fixture(scope="module")
def page(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveServer, str]]:
    """A server with a gateway, and its address."""
    with LiveServer(bundle, tmp_path_factory.mktemp("web"), "--web", "0", sessions=0) as server:
        yield server, web(server.ready())


def status_of(url: str, data: bytes | None = None, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("form", [JSON, MSGPACK])
def test_a_browser_gets_the_pictures_that_a_program_gets(page: tuple[LiveServer, str], form: str) -> None:
    server, url = page
    with server.client() as program:
        plain = frames(program.play(program.open(seed=5)))
    with Browser(url, form) as browser:
        assert browser.hello(codec="raw").fields["protocol"] == VERSION
        opened = browser.ask("open", {"seed": 5})
        assert frames(browser.rest(browser.begin(opened, "one"))) == plain
        browser.hello()
        pictures = frames(browser.rest(browser.begin(opened, "two")))
        assert all(picture.startswith(b"\xff\xd8") for picture in pictures), "JPEG unless asked otherwise"
        assert browser.ask("cancel", {"token": opened.fields["token"]}, session=opened.session).type == "cancelling"


def test_the_page_comes_whole_and_asks_for_nothing_outside(page: tuple[LiveServer, str]) -> None:
    _, url = page
    kinds = {"": "text/html", "page.js": "javascript", "style.css": "text/css", "attract.jpg": "image/jpeg"}
    for name, content in kinds.items():
        with urllib.request.urlopen(url + name) as answer:
            assert content in answer.headers["Content-Type"]
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            tag = answer.headers.get("ETag", "none")
            assert name == "" or status_of(url + name, None, **{"If-None-Match": tag}) == 304
    with urllib.request.urlopen(url) as answer:
        [script] = re.findall(r'src="(.*page.js)"', answer.read().decode())
    asked = urllib.request.Request(url + script, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked) as answer:
        assert "immutable" in answer.headers["Cache-Control"], "its address changes when it does"
        assert b"import" in gzip.decompress(answer.read())
    assert status_of(url + script + "/") == 404
    assert status_of(url + "healthz") == status_of(url + "readyz") == 200
    with urllib.request.urlopen(url + "metrics") as answer:
        assert b"animegamer_gateway_connections " in answer.read()
    assert {status_of(url + name) for name in ("..%2f..%2fpyproject.toml", "login.html", "%2e%2e/x", "app.py")} == {404}
    folder = Path(__file__).parents[4] / "client" / "web"
    assert sum(len(gzip.compress(path.read_bytes())) for path in folder.iterdir()) <= 150_000
    for path in folder.iterdir():
        assert path.suffix == ".jpg" or not [
            line
            for line in path.read_text("utf-8").splitlines()
            if "//" in line and "http://www.w3.org/2000/svg" not in line and ("http:" in line or "https:" in line)
        ], path


def test_what_is_no_message_is_answered_and_the_connection_lives(page: tuple[LiveServer, str]) -> None:
    _, url = page
    with Browser(url) as browser:
        browser.hello()
        bad: list[tuple[str | bytes, str]] = [
            ("{", "protocol"), ("[]", "protocol"), ("[" * 60_000, "protocol"), (b"\x00", "protocol"),
            ('{"type": NaN}', "protocol"), ('{"type": 5}', "bad_field"), ("{}", "missing_field"),
            ('{"type": "eat"}', "unknown_type"), (json.dumps({"type": "x" * 70_000}), "too_large"),
            ('{"type": "open", "fields": {"seed": "x"}}', "bad_field"),
            ('{"type": "open", "fields": {"seed": 1e999}}', "bad_field"),
            ('{"type": "open", "fields": {"seed": 99999999999999999999999}}', "protocol"),
            ('{"type": "open", "fields": {"token": "\\ud800"}}', "protocol"),
            ('{"type": "ping", "fields": [[1]]}', "bad_field"),
        ]  # fmt: skip
        for data, code in bad:
            browser.socket.send(data)
            answer = browser.receive()
            assert (answer.type, answer.fields.get("code")) == ("error", code), data[:60]
        assert browser.ask("ping").type == "pong"
        with pytest.raises(ConnectionClosed):  # while it still sends, the code may be lost
            browser.socket.send("x" * 9_000_000)
            browser.receive()
    with Browser(url, MSGPACK) as browser:
        for packed in (b"", b"\x00\x00\x00\x05\xc1", b"\x00\x00\x00\x01\xc1", b"\xff\xff\xff\xff\x80"):
            browser.socket.send(packed)
            assert browser.receive().fields["code"] == "protocol"


def test_pages_of_other_sites_and_other_protocols_are_refused(page: tuple[LiveServer, str]) -> None:
    _, url = page
    for headers in ({"Origin": "https://example.org"}, {"Origin": "null"}, {"Origin": "http://["}):
        with pytest.raises(InvalidStatus) as refused:
            Browser(url, additional_headers=headers)
        assert refused.value.response.status_code == 403
    with Browser(url, additional_headers={"Origin": url.rstrip("/")}) as browser:
        assert browser.hello().type == "welcome"
    assert status_of(url, Host="rebound.example.org") == 421, "a foreign name for our address"
    assert status_of(url, Host="[::1") == 421, "half an address"
    with Browser(url, "animegamer.v9.xml") as browser, pytest.raises(ConnectionClosed) as closed:
        browser.receive()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1002


def test_beyond_loopback_a_password_is_asked(bundle: Path, tmp_path: Path) -> None:
    code, text = refusal(bundle, tmp_path / "state", "--web", "0.0.0.0:0")
    assert code == 2 and "--web-password FILE" in text
    secret = tmp_path / "password"
    secret.write_text("1234567\nsecond line\n", encoding="utf-8")
    code, text = refusal(bundle, tmp_path / "state", "--web", "0", "--web-password", str(secret))
    assert code == 2 and "too short; found 7 characters; expected at least 8" in text
    secret.write_text("cel \u00fcnd peg\n", encoding="utf-8-sig")  # as an editor of Windows may write it
    settings = {"web": "0.0.0.0:0", "web_password": str(secret), "origins": ["https://play.example.org"]}
    with LiveServer(bundle, tmp_path / "state", **settings) as server:
        url = web(server.listening())
        with urllib.request.urlopen(url) as answer:
            assert b'type="password"' in answer.read()
        with pytest.raises(InvalidStatus) as refused:
            Browser(url)
        assert refused.value.response.status_code == status_of(url + "metrics") == 403
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with pytest.raises(urllib.error.HTTPError) as wrong:
            opener.open(url + "login", b"password=wrong")
        with wrong.value as answer:
            page = answer.read()
        assert b"Wrong password" in page and b'type="password"' in page
        with opener.open(url + "login", b"password=cel+%C3%BCnd+peg") as answer:
            assert b'id="sheet"' in answer.read()
        assert status_of(url, Authorization="Bearer wrong") == 403, "not the page that asks for it"
        in_utf8 = "Bearer cel \u00fcnd peg".encode().decode("latin-1")  # as the header's bytes
        assert status_of(url + "metrics", Authorization=in_utf8) == 200
        headers = {"Authorization": "Bearer cel \u00fcnd peg", "Origin": "https://play.example.org"}
        with Browser(url, additional_headers=headers) as browser:
            assert browser.hello().type == "welcome"


def test_a_browser_that_does_not_read_costs_the_gateway_no_memory_and_can_replay(bundle: Path, tmp_path: Path) -> None:
    limits = {"queue": 32, "turns_per_minute": 0, "web": "0"}
    with LiveServer(bundle, tmp_path / "state", *FULL_SIZE, device="simulated:0.02", **limits) as server:
        url = web(server.ready())
        with Browser(url, max_queue=1) as sleeper, Browser(url) as reader:
            sleeper.hello(codec="raw")
            reader.hello(codec="raw")
            before = resident_mib(gateway_pid(server))
            games = [sleeper.ask("open", {"seed": 2}) for _ in range(6)]
            turns = [sleeper.begin(game, "slept") for game in games]
            mine = [frames(reader.rest(reader.begin(reader.ask("open", {"seed": 1}), "read"))) for _ in range(2)]
            assert mine[0] == mine[1], "the reader gets all of its frames"
            server.await_status(lambda status: not status["running"] and not status["queue"])
            assert resident_mib(gateway_pid(server)) - before < 100, "the frames, 24 MB a turn, are not kept here"

            received: dict[str, list[Message]] = {turn: [] for turn in turns}
            while not all(events and events[-1].type == "done" for events in received.values()):
                message = sleeper.receive()
                received[str(message.parent)].append(message)
            counts = {sum(event.type == "frame" for event in events) for events in received.values()}
            assert min(counts) < 17, "six turns are more than is kept for a client"
            again = sleeper.begin(games[-1], "", "replay", turn=1)
            assert len(frames(sleeper.rest(again))) == 17


def test_no_game_is_lost_when_a_gateway_dies_or_hangs_and_it_ends_with_its_server(bundle: Path, tmp_path: Path) -> None:
    soon = "from animegamer_rt.serving.server import gateway_process; gateway_process.SILENT_S = 4.0"
    with LiveServer(bundle, tmp_path / "state", "--web", "0", device="simulated:1", code=soon) as server:
        url = web(server.ready())
        for end in (signal.SIGKILL, signal.SIGSTOP):
            with Browser(url, open_timeout=TIMEOUT_S) as browser, server.client() as program:
                first, game = gateway_pid(server), program.open(seed=6)
                browser.hello(codec="raw")
                opened = browser.ask("open", {"seed": 6})
                begun = browser.begin(opened, "kept")
                while browser.receive().type != "state":
                    pass
                mine = program.begin(game)
                os.kill(first, end)
                with pytest.raises(ConnectionClosed):
                    browser.rest(begun)
                plain = frames(program.rest(mine))
            for _ in until_timeout():
                if gateway_pid(server) != first:
                    break
            with Browser(url, open_timeout=TIMEOUT_S) as browser:
                browser.hello(codec="raw")
                assert browser.ask("open", {"token": opened.fields["token"]}).type == "opened"
                assert frames(browser.rest(browser.begin(opened, "kept"))) == plain
        left = gateway_pid(server), server.status()["worker"]["pid"]
        server.process.kill()
        assert any(gone(left[0]) and gone(left[1]) for _ in until_timeout()), "gateway and worker end with their server"


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
