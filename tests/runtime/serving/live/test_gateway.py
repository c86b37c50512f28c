"""`serve --web`: a browser gets what a program gets, bad visitors harm nobody, and no game depends on the gateway."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_socket import JSON, MSGPACK, Browser, gateway_pid, resident_mib, web
from live_server import FULL_SIZE, TIMEOUT_S, LiveServer, frames, refusal, until_timeout
from websockets.exceptions import ConnectionClosed, InvalidStatus

from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.wire.schema import VERSION


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
    for name, content in (
        ("", "text/html"),
        ("page.js", "javascript"),
        ("style.css", "text/css"),
        ("attract.jpg", "image/jpeg"),
    ):
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


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hangs"])
def test_no_game_is_lost_when_the_gateway_is_killed_or_hangs(bundle: Path, tmp_path: Path, end: int) -> None:
    soon = "from animegamer_rt.serving.server import gateway_process; gateway_process.SILENT_S = 8.0"
    with LiveServer(bundle, tmp_path / "state", "--web", "0", device="simulated:1", code=soon) as server:
        url = web(server.ready())
        with Browser(url) as browser, server.client() as program:
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
        second = gateway_pid(server)
        server.process.kill()
        for _ in until_timeout():
            if not Path(f"/proc/{second}").exists():
                return
        raise AssertionError("the gateway outlived its server")
