"""What strangers may take of the gateway before and behind the password: everybody else still gets the page."""

from __future__ import annotations

import contextlib
import http.client
import math
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import psutil
import pytest
from browser_socket import Browser, web
from live_server import LiveServer, until_timeout
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from animegamer_rt.serving.gateway import access, http_server
from animegamer_rt.serving.gateway.http_server import HttpServer, peer_of
from animegamer_rt.serving.gateway.visitors import Visitor, Visitors

GET = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n"
UPGRADE = (
    b"POST /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 4\r\n\r\n"
)
"""No WebSocket begins with a POST."""
OPENING = UPGRADE.replace(b"POST", b"GET").replace(
    b"Content-Length: 4", b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
)
MUCH = 16 * 2**20
FEW_DESCRIPTORS = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))"
PASSWORD = "one long password"


def answer(url: str, body: bytes | None = None, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Status, headers and body; redirects are not followed."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", address.path, body, headers)
        found = connection.getresponse()
        return found.status, found.headers, found.read()


def log_in(url: str) -> str:
    status, headers, _ = answer(url + "login", b"password=" + PASSWORD.replace(" ", "+").encode())
    assert status == 303
    return str(headers["Set-Cookie"]).partition(";")[0]


@contextlib.contextmanager
def small_server(app: Any = None, **options: Any) -> Iterator[int]:
    """The gateway's HTTP, without routes unless an application is given, in a thread; yields its port."""
    server = HttpServer(app or Starlette(), **options)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield int(port)
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.parametrize(
    ("whole", "begun"),
    [(b"", b""), (b"", b"GET /"), (b"", POST), (b"", UPGRADE), (GET, b""), (GET, b"GET /"), (GET, POST)],
    ids=["silent", "header", "body", "bad upgrade", "kept alive", "second header", "second body"],
)
def test_a_slow_request_ends_its_connection(monkeypatch: pytest.MonkeyPatch, whole: bytes, begun: bytes) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S", 0.4)
    with small_server() as port, socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
        slow.sendall(whole)
        if whole:
            assert slow.recv(1024)
        began = time.monotonic()
        slow.sendall(begun)
        slow.settimeout(0.05)
        with contextlib.suppress(ConnectionError):
            for _ in until_timeout():
                with contextlib.suppress(TimeoutError):
                    if not slow.recv(1024):
                        break
                slow.sendall(b"x" if begun else b"")
        assert time.monotonic() - began < 4.0, "a byte now and then did not keep it"


def test_an_answer_that_nobody_fetches_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "ANSWER_S", 0.4)

    async def endless(scope: Any, receive: Any, send: Callable[[Any], Any]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": bytes(2**20), "more_body": True})
            begun.set()

    begun = threading.Event()
    with small_server(endless, lifespan="off") as port, socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(GET)
        assert begun.wait(10)
        time.sleep(1.0)
        slow.settimeout(10)
        with pytest.raises(ConnectionError):
            while True:
                if not slow.recv(2**20):
                    raise ConnectionError


def test_a_flood_of_tiny_chunks_is_read_between_the_requests_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read, before, all_sent = 0, list[int](), threading.Event()
    receive = http_server.LimitedHttp.data_received

    def counted(self: http_server.LimitedHttp, data: bytes) -> None:
        nonlocal read
        all_sent.wait()  # so that it begins with all that is to be read, on a busy machine too
        read += len(data)
        if data == GET:
            before.append(read)
        receive(self, data)

    monkeypatch.setattr(http_server.LimitedHttp, "data_received", counted)
    flood = POST.replace(b"Content-Length: 4000", b"Transfer-Encoding: chunked") + b"1\r\na\r\n" * 30_000
    with small_server() as port, contextlib.ExitStack() as held:
        held.callback(all_sent.set)
        for _ in range(16):
            one = held.enter_context(socket.create_connection(("127.0.0.1", port)))
            one.setblocking(False)
            assert one.send(flood) > 100_000
        polite = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        polite.sendall(GET)
        all_sent.set()
        assert polite.recv(1000).startswith(b"HTTP/1.1 404")
        assert before[0] < 16 * 50_000


def test_of_many_pings_the_last_is_answered_once_the_browser_reads() -> None:
    async def sends_much(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": bytes(MUCH)})
        assert (await receive())["text"] == "all pings are sent"
        answered.set()
        await receive()

    answered = threading.Event()
    with small_server(sends_much, lifespan="off") as port, socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(OPENING)
        assert slow.recv(12) == b"HTTP/1.1 101"
        pings = b"".join(b"\x89\x84" + bytes(4) + number.to_bytes(4, "big") for number in range(10_000))
        slow.sendall(pings + b"\x81\x92" + bytes(4) + b"all pings are sent")
        assert answered.wait(20)
        slow.settimeout(1.0)
        received = bytearray()
        with contextlib.suppress(TimeoutError):
            while data := slow.recv(2**20):
                received += data
        message = received.index(b"\x82\x7f") + 10 + MUCH
        assert received[message:] == b"\x8a\x04" + (9_999).to_bytes(4, "big")


NO_LIMIT_BUT_DESCRIPTORS = """
import logging, resource, socket, sys
from starlette.applications import Starlette
from animegamer_rt.serving.gateway import http_server
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
logging.basicConfig()
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
http_server.HttpServer(Starlette()).run([listening])
"""


def test_without_descriptors_the_oldest_connection_is_closed_and_one_line_is_written() -> None:
    command = [sys.executable, "-c", NO_LIMIT_BUT_DESCRIPTORS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/"
        with contextlib.ExitStack() as held:
            for _ in range(120):
                one = held.enter_context(socket.create_connection(("127.0.0.1", int(url.split(":")[2][:-1]))))
                one.sendall(POST)
            assert answer(url)[0] == 404, "an empty application, but it answers"
        server.terminate()
        said = server.stderr.read()
    assert said.count("\n") <= 2 and "cannot be accepted: Too many open files; closing the oldest" in said


def test_a_login_ends_after_its_time_or_by_others_of_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_LOGINS", 10)
    rules = access.Access(PASSWORD, (), lambda: None)

    def connection(address: str, login: str = "") -> HTTPConnection:
        cookie = f"{access.COOKIE}={login}".encode()
        return HTTPConnection({"type": "http", "client": (address, 1), "headers": [(b"cookie", cookie)]})

    def known(login: str) -> bool:
        return rules.knows_password(connection("192.0.2.1", login))

    mine = rules.log_in(connection("192.0.2.1"))
    greedy = [rules.log_in(connection("192.0.2.2")) for _ in range(20)]
    assert known(mine) and not known("x")
    assert [known(login) for login in greedy] == [False] * 11 + [True] * 9
    monkeypatch.setattr(access, "LOGIN_S", 0)
    assert not known(rules.log_in(connection("192.0.2.1")))


@pytest.mark.parametrize("typed", ["p\u00e4ssw\u00f6rter", "pa\u0308sswo\u0308rter", " p\u00e4ssw\u00f6rter \r"])
def test_a_password_may_be_typed_in_any_form_of_its_accents(typed: str) -> None:
    for written in ("p\u00e4ssw\u00f6rter", "pa\u0308sswo\u0308rter"):
        assert access.PasswordDoor(written).opens(HTTPConnection({"type": "http", "headers": []}), typed.encode())


def test_a_crowd_that_plays_nothing_gives_way_shuts_nobody_out_and_fills_no_log(bundle: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"web": "0", "connections": 16}
    with contextlib.ExitStack() as held, LiveServer(bundle, tmp_path, code=FEW_DESCRIPTORS, **settings) as server:
        url = web(server.ready())
        address = urlsplit(url)
        for _ in range(400):
            one = held.enter_context(socket.create_connection((str(address.hostname), int(address.port or 0))))
            one.sendall(POST)
        for route in ("", "healthz", "readyz"):
            assert answer(url + route)[0] == 200
        with Browser(url) as browser:
            assert browser.hello().type == "welcome"
        held.close()  # 400 aborted forms
        assert answer(url + "healthz")[0] == 200
        with ThreadPoolExecutor(64) as pool:
            assert Counter(pool.map(lambda _: answer(url + "readyz")[0], range(300))) == {200: 300}
        player = held.enter_context(Browser(url))
        player.hello()
        game = player.ask("open", {"seed": 1})
        player.rest(player.begin(game, "first"))
        idle = [held.enter_context(Browser(url)) for _ in range(18)]
        for one in idle:
            with contextlib.suppress(ConnectionClosed):
                one.hello()
        assert player.rest(player.begin(game, "second"))[-1].type == "done", "who plays stays"
        with pytest.raises(ConnectionClosed) as closed:
            idle[0].receive()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1013
        assert sum(map(len, server.said)) < 2000 and not any("Traceback" in line for line in server.said)


def test_logins_differ_and_end_and_wrong_passwords_lock_nobody_inside_out(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    settings = {"web": "0", "web_password": str(tmp_path / "password")}
    with LiveServer(bundle, tmp_path / "state", **settings) as server:
        url = web(server.ready())
        mine, other = log_in(url), log_in(url)
        assert mine != other
        with Browser(url, additional_headers={"Cookie": mine}) as browser:
            assert browser.hello().type == "welcome"
            status, headers, _ = answer(url + "logout", b"", Cookie=mine)
            assert status == 303 and "Max-Age=0" in str(headers["Set-Cookie"])
            with pytest.raises(ConnectionClosed):
                browser.receive()
        assert (answer(url + "login", Cookie=mine)[0], answer(url + "login", Cookie=other)[0]) == (403, 204)
        with pytest.raises(InvalidStatus):
            Browser(url, additional_headers={"Cookie": mine})
        assert b'id="leave" data-t' in answer(url, Cookie=other)[2], "the page offers to log out"
    with LiveServer(bundle, tmp_path / "state", **settings) as server:
        url = web(server.ready())
        assert answer(url + "login", Cookie=other)[0] == 403, "a login ends with its server"
        inside = log_in(url)
        status, _, text = answer(url + "login", b"password=wrong")
        assert status == 403 and b"Wrong password" in text
        for body in (b"password=wrong", b"password=" + PASSWORD.replace(" ", "+").encode()):
            assert answer(url + "login", body, Origin="https://elsewhere.example")[0] == 403, "nor is it counted"
        with ThreadPoolExecutor(50) as pool:
            guesses = Counter(pool.map(lambda n: answer(url + "login", b"password=wrong%d" % n)[0], range(100)))
        assert guesses == {403: 29, 429: 71}
        assert answer(url, Authorization=f"Bearer {PASSWORD}")[0] == 429, "not even the right one is tried"
        status, _, text = answer(url + "login", b"password=" + PASSWORD.encode())
        assert status == 429 and b"wait a minute" in text
        _, _, figures = answer(url + "metrics", Cookie=inside)
        assert b"animegamer_gateway_wrong_passwords_total 30.0" in figures
        with Browser(url, additional_headers={"Cookie": inside}) as browser:
            assert browser.hello().type == "welcome"
        assert sum("wrong password" in line for line in server.said) == 1, "one line a minute"


def test_messages_that_never_end_share_a_bound_and_others_send_theirs(bundle: Path, tmp_path: Path) -> None:
    with contextlib.ExitStack() as held, LiveServer(bundle, tmp_path, web="0") as server:
        url = web(server.ready())
        gateway = next(one for one in psutil.Process(server.process.pid).children() if "gateway" in str(one.cmdline()))
        before = gateway.memory_info().rss
        half, header = 4 * 2**20, b"\x02\xff" + (8 * 2**20).to_bytes(8, "big") + bytes(4)
        for _ in range(120):
            endless = held.enter_context(Browser(url))
            with contextlib.suppress(OSError):  # closed, as it should be
                endless.socket.socket.sendall(header + bytes(half))
        with Browser(url) as browser:
            assert browser.hello().type == "welcome"
        assert gateway.memory_info().rss - before < 240 * 2**20, "not 480"


def test_the_address_with_most_websockets_gives_way_and_first_those_that_do_not_play() -> None:
    visitors = Visitors(most=8)

    def arrive(peer: str, played: bool = False) -> Visitor | None:
        visitor = Visitor(cast(Any, None), peer, "", time.monotonic() if played else -math.inf)
        return visitor if visitors.enter(visitor) else None

    neighbour = arrive("192.0.2.7")
    greedy = [arrive("192.0.2.9", played=number == 0) for number in range(50)]
    assert neighbour in visitors and greedy[0] in visitors, "neither others nor what plays gives way to one's own"
    assert len(visitors) == 8 and sum(one.peer == "192.0.2.9" for one in visitors) == 7
    players = [arrive(f"198.51.100.{number}", played=True) for number in range(7)]
    assert set(visitors) == {greedy[0], *players}, "one each"
    assert arrive("203.0.113.1") is None, "all play"
    assert arrive("") is None and arrive("192.0.2.9") is None
    assert players[3] is not None
    players[3].played -= 1000
    assert arrive("203.0.113.1") is not None and players[3] not in visitors, "one stopped playing long ago"


def test_addresses_that_share_a_share() -> None:
    same = {peer_of((address, 1)) for address in ("2001:db8::1", "2001:db8::2:3", "fe80::1%eth0", "192.0.2.1")}
    assert len(same) == 3 and peer_of(("::1", 1)) == peer_of(("::ffff:127.0.0.1", 1)) == "" == peer_of(None)


def test_who_knows_the_password_gets_in_during_a_flood_of_wrong_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[None] = []
    door = access.PasswordDoor(PASSWORD, lambda: counted.append(None))

    def give(address: str, password: str) -> int:
        try:
            scope = {"type": "http", "client": (address, 1), "headers": []}
            return 200 if door.opens(HTTPConnection(scope), password.encode()) else 403
        except HTTPException as refused:
            return refused.status_code

    assert [give("192.0.2.1", "wrong") for _ in range(12)] == [403] * 10 + [429] * 2
    assert give("192.0.2.1", PASSWORD) == 429, "not even the right one is tried"
    flood = Counter(give(f"198.51.100.{number % 100}", "wrong") for number in range(5000))
    assert flood[403] <= 30 + 100 and give("203.0.113.9", PASSWORD) == 200
    assert (give("203.0.113.7", "wrong"), give("203.0.113.7", PASSWORD)) == (403, 429), "one try each in a flood"
    monkeypatch.setattr(access, "MOST_REMEMBERED", len(counted))
    assert give("203.0.113.8", PASSWORD) == 429, "and a bound for all"
    monkeypatch.setattr(access, "WRONG_S", 0.0)
    assert give("192.0.2.1", PASSWORD) == 200
    assert not door._wrong and not door._wrong_of
