"""Two servers behind a router: sessions are found, moved and played on while servers and router are started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.soak import player as soak_player
from benchmarks.soak.undisturbed import compare
from browser_socket import Browser, web
from client.conformance.ports import ReservedPorts
from live_server import Game, LiveServer, RawClient, error_code, frames, until_timeout

from animegamer_client import Client
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.cli import main


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


HAS_IPV6 = _has_ipv6()
OPTIONS = ("--turns-per-minute", "0", "--plan", "exact")
PLAYERS, TURNS, SEED = 3, 40, 5


class Router:
    """`animegamer-rt route` in a process of its own, before the servers of some ports."""

    def __init__(self, *servers: int | str, port: int = 0) -> None:
        addresses = [server if isinstance(server, str) else f"tcp://127.0.0.1:{server}" for server in servers]
        program = "import sys; from animegamer_rt.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", program, "route", *addresses, "--port", str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready tcp://127.0.0.1:"), line
        self.port = int(line.split()[1].rpartition(":")[2])

    def __enter__(self) -> Router:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.end(signal.SIGKILL)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def client(self) -> RawClient:
        """A player behind the router, once a server can be reached."""
        client = RawClient(self.port)
        for _ in until_timeout():
            if client.ask("hello", {"versions": [1], "client": "test"}).type == "welcome":
                break
        return client


@pytest.fixture(scope="module")
def servers(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveServer]]:
    with ReservedPorts() as first, ReservedPorts() as second:
        both = [
            LiveServer(bundle, tmp_path_factory.mktemp(shard[0]), "--shard", shard, *ports.option, *OPTIONS)
            for shard, ports in (("1/2", first), ("2/2", second))
        ]
        try:
            for server in both:
                server.ready()
            yield both
        finally:
            for server in both:
                with server:
                    pass


def knows(server: LiveServer, game: Game) -> bool:
    """Whether the server plays a session itself."""
    with server.client() as client:
        return client.ask("open", {"token": game.token}).type == "opened"


def test_sessions_are_found_and_move_and_players_are_told(
    servers: list[LiveServer], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = servers
    with (
        Router(first.port, second.port) as router,
        router.client() as player,
        router.client() as other,
        first.client() as direct,
    ):
        games = [player.open(), other.open(), direct.open(seed=8)]
        assert {knows(first, game) for game in games[:2]} == {True, False}, "one server got both"
        game = games[2]
        before = frames(direct.play(game))
        opened = player.ask("open", {"token": game.token}, answer="opened")
        assert opened.session == game.session and opened.fields["turns"] == 1
        worker = first.status()["worker"]["pid"]
        os.kill(worker, signal.SIGSTOP)
        id = player.begin(game)
        begun = player.until(id, "accepted")
        move = ["sessions", "move", game.session, "--state-dir", str(first.state), "--to", str(second.state)]
        assert main(move) == 75
        os.kill(worker, signal.SIGCONT)
        assert "the session is playing; found a turn; try again when its turn is over" in capsys.readouterr().out
        frames([*begun, *player.rest(id)])
        assert main(move) == 0
        assert f"2 turns, now at tcp://127.0.0.1:{second.port}" in capsys.readouterr().out
        refused = direct.play(game)
        assert error_code(refused) == "unknown_session"
        assert f"tcp://127.0.0.1:{second.port}" in refused[-1].fields["do"]
        frames(player.play(game))
        with second.client() as there:
            assert there.ask("open", {"token": game.token}, answer="opened").fields["turns"] == 3
            again = there.ask("rewind", {"turn": 0, "token": game.token}, session=game.session, answer="rewound")
            assert again.fields["turns"] == 0 and frames(there.play(game)) == before
        assert player.ask("status", control=True, answer="status").fields["state"] == "ready"
        nobody = player.ask("open", {"token": "a token of no session"})
        assert error_code(nobody) == "unknown_session"
        assert router.end() == 0


@pytest.fixture
def port() -> Iterator[int]:
    with ReservedPorts() as ports:
        yield ports.port


def test_players_play_on_while_servers_and_router_are_started_again(
    servers: list[LiveServer], port: int, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak_player, "SILENCE_S", 1.5)
    tiny = open_bundle(str(bundle))
    ports = [server.port for server in servers]
    router = Router(*ports, port=port)
    router.client().close()
    done: list[int] = []
    stop = threading.Event()
    players = [
        soak_player.Player(index, port, SEED, tiny.manifest.world, TURNS, lambda: done.append(1), stop)
        for index in range(PLAYERS)
    ]
    for player in players:
        player.start()
    for place, server in enumerate(servers):
        assert server.end() == 0
        options = ("--shard", f"{place + 1}/2", "--port", str(server.port), *OPTIONS)
        servers[place] = LiveServer(bundle, server.state, *options).ready()
    router.end(signal.SIGKILL)
    before = len(done)
    router = Router(*ports, port=port)
    for player in players:
        player.join(60)
    assert before < len(done), "the games were over before the router was killed"
    assert [(player.failure, player.lost, player.changed) for player in players] == [(None, 0, 0)] * PLAYERS
    played = {key: digest for player in players for key, digest in player.played.items()}
    assert compare(tiny, "simulated:0", "exact", SEED, played, stop) == ([], PLAYERS * TURNS)
    assert router.end() == 0


def test_a_server_that_is_away_and_what_is_no_server_are_said(
    servers: list[LiveServer], capsys: pytest.CaptureFixture[str]
) -> None:
    with servers[1].client() as client:
        game = client.open()
    with Router(servers[0].port, 9) as router, router.client() as player:  # nothing listens at port 9
        assert player.open().opened.fields["turns"] == 0
        refused = player.ask("open", {"token": game.token})
        assert error_code(refused) == "starting" and "try again in a moment" in refused.fields["do"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((one, "not a server's address") for one in ("5570", "tcp://%:5570", "tcp://a b:5570", "tcp://::1:5570")),
        *((one, "not a server's address") for one in ("tcp://[::1:5570", "tcp://[::x]:5570", "tcp://a:0")),
        ("tcp://a:1 tcp://a:1", "given twice"),
        ("tcp://127.0.0.1:5570", "the router's own address"),
        ("tcp://[::1]:5571 --host ::1", "the router's own address"),
        ("tcp://localhost:5590 --host 0.0.0.0 --port 5589", "the router's own address"),
        ("tcp://a:1 --port 70000", "--port: out of range"),
    ],
)
def test_what_no_router_can_reach_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [words] if " b" in words else words.split()
    assert main(["route", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(not HAS_IPV6, reason="this machine has no IPv6 loopback")
def test_programs_browsers_and_players_of_a_router_reach_a_server_by_ipv6(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path, "--host", "[::1]", "--web", "[::1]:0") as server:
        url, address = web(server.listening()), f"tcp://[::1]:{server.port}"
        with Client(address, timeout_s=60) as program:
            program.open(seed=3)
        with Browser(url) as browser:
            assert browser.hello().type == "welcome"
        with Router(address) as router, router.client() as player:
            assert player.open().opened.fields["turns"] == 0
