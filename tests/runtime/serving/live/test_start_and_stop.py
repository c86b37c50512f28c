"""The server starts or says what to do about it, ends without cutting a turn short, and leaves nothing behind: for
people, for systemd, and for a program that started it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import zmq
from live_server import TIMEOUT_S, LiveServer, RawClient, error_code, frames, gone, refusal, until_timeout

from animegamer_rt.errors import TRY_AGAIN
from animegamer_rt.serving.server.curve_keys import load, new
from animegamer_rt.serving.server.supervisor import Supervisor
from animegamer_rt.serving.store import database
from animegamer_rt.serving.store.store import Store

NO_RIGHTS = """
import ctypes, os
if hasattr(os, "geteuid") and os.geteuid() == 0:  # root may write anywhere, until it gives that up
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
"""
SMALL_DISK = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))"


def test_the_server_imports_no_engine() -> None:
    code = """
import sys
import animegamer_rt.serving.server.server, animegamer_rt.cli
banned = {"onnxruntime", "torch", "av", "sentencepiece", "onnx"}
ours = ("pipeline", "session", "stages", "backends", "models", "serving.worker")
banned |= {f"animegamer_rt.{name}" for name in ours}
print(sorted(name for name in sys.modules if any(name == b or name.startswith(b + ".") for b in banned)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_first_line_says_where_it_listens_and_only_turns_wait_for_the_worker(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:2") as server, server.listening().client() as player:
        assert server.status()["state"] == "starting"
        game = player.open()
        assert error_code(player.play(game)) == "starting"
        assert player.ask("ping").type == "pong"
        assert not any(line.startswith("ready ") for line in server.said)
        place = json.loads(next(line for line in server.said if line.startswith("{")))
        assert place["port"] == server.port and place["control_port"] == server.port + 1
        assert place["address"] == f"tcp://127.0.0.1:{server.port}" and place["pid"] == server.process.pid
        assert place["metrics"].startswith("http://127.0.0.1:")
        server.ready()
        assert server.status()["state"] == "ready"
        code, said = refusal(bundle, tmp_path / "other", "--port", str(server.port))
        assert code == TRY_AGAIN and f"port {server.port}" in said
        code, said = refusal(bundle, tmp_path / "state")
        assert code == TRY_AGAIN and "another server" in said


@pytest.mark.parametrize("signals", [["SIGTERM"], ["SIGHUP"] * 2], ids=["asked to", "terminal and its shell close"])
def test_accepted_turns_finish_before_the_end_new_are_refused(bundle: Path, tmp_path: Path, signals: list[str]) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:1") as server:
        with server.ready().client() as one, server.client() as two, server.client() as three:
            first, second, third = one.open(), two.open(), three.open()
            runs = one.begin(first)
            events = one.until(runs, "state")
            waits = two.begin(second)
            waited = two.until(waits, "accepted")
            worker = server.status()["worker"]["pid"]
            for name in signals:
                server.process.send_signal(getattr(signal, name))
                server.await_status(lambda status: status["state"] == "draining")
            assert error_code(three.play(third)) == "draining"
            assert frames([*events, *one.rest(runs)])
            assert frames([*waited, *two.rest(waits)])
        assert server.process.wait(60) == 0
        assert gone(worker)
    with Store(tmp_path / "state") as store:
        assert [store.get(game.session).turns for game in (first, second, third)] == [1, 1, 0]


def test_a_second_ctrl_c_ends_at_once(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:60") as server:
        server.listening()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0, "nothing runs, so the first is enough"
    with LiveServer(bundle, tmp_path / "state", device="simulated:1.5") as server, server.ready().client() as player:
        game = player.open()
        turn = player.begin(game)
        player.until(turn, "state")
        server.process.send_signal(signal.SIGINT)
        server.await_status(lambda status: status["state"] == "draining")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 130
    with Store(tmp_path / "state") as store:
        assert store.get(game.session).turns == 0


def test_other_addresses_need_keys_and_players(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, keys = tmp_path / "state", tmp_path / "keys"
    code, said = refusal(bundle, state, "--host", "0.0.0.0")
    assert code == 2 and "animegamer-rt keys new server" in said and "--authorized-keys" in said
    new("server", keys)
    none = ("--authorized-keys", str(tmp_path / "none"))
    code, said = refusal(bundle, state, "--host", "0.0.0.0", "--keys", str(keys), *none)
    assert code == 2 and "--authorized-keys" in said
    (keys / "server.key_secret").chmod(0o644)
    new("mia", tmp_path / "allow")
    allow = ("--authorized-keys", str(tmp_path / "allow"))
    code, said = refusal(bundle, state, "--host", "0.0.0.0", "--keys", str(keys), *allow)
    assert code == 2 and "chmod 600" in said
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(keys))  # systemd's, which may show as readable by the group
    assert len(load(keys, tmp_path / "allow", "0.0.0.0").authorized) == 1


@pytest.mark.parametrize("played", [True, False])
def test_a_state_folder_that_cannot_be_written_is_named(bundle: Path, tmp_path: Path, played: bool) -> None:
    state = tmp_path / "state"
    state.mkdir()
    if played:
        Store(state).close()
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    for path in (*state.iterdir(), state):
        path.chmod(0o500)
    code, said = refusal(bundle, state, code=NO_RIGHTS)
    assert code == 2 and str(state) in said and "writable" in said and "Traceback" not in said
    assert {path.name: path.read_bytes() for path in state.iterdir()} == before


def test_a_log_that_is_a_link_is_refused_and_its_target_kept(bundle: Path, tmp_path: Path) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    state.mkdir()
    other.write_text("precious", encoding="utf-8")
    (state / "worker.log").symlink_to(other)
    code, said = refusal(bundle, state)
    assert code == 2 and "worker.log: the worker's log cannot be written; found a link" in said
    assert other.read_text(encoding="utf-8") == "precious"


def test_a_full_disk_costs_the_turn_and_nothing_that_was_kept(bundle: Path, tmp_path: Path) -> None:
    played: list[list[bytes]] = []
    with LiveServer(bundle, tmp_path / "state", device="simulated:0", code=SMALL_DISK, turns_per_minute=0) as server:
        with server.ready().client() as player:
            game = player.open()
            while (events := player.play(game, f"Mia waves {len(played)}."))[-1].type == "done":
                played.append(frames(events))
            assert error_code(events) == "storage" and played
            assert "do" in events[-1].fields and str(tmp_path) not in str(events[-1].fields), "no path of the server"
            status = server.status()
            assert status["state"] == "ready" and status["worker"]["restarts"] == 0
    with LiveServer(bundle, tmp_path / "state", device="simulated:0") as server, server.ready().client() as player:
        assert player.open(token=game.token).opened.fields["turns"] == len(played)
        last = player.send("replay", {"token": game.token}, session=game.session, turn=len(played))
        assert frames(player.rest(last)) == played[-1]
        assert frames(player.play(game))


def test_a_disk_full_at_the_start_may_have_room(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SCRIPTS", (("PRAGMA max_page_count = 1", *database.SCRIPTS[0]),))
    code, said = refusal(bundle, tmp_path / "state")
    assert code == TRY_AGAIN and "the disk is full" in said and "free disk space" in said and "Traceback" not in said


WATCHDOG_US = "400000"


def until(channel: socket.socket, state: str) -> list[str]:
    """What the server tells, up to a state; fails the test when it never comes."""
    told: list[str] = []
    while not told or told[-1] != state:
        told.append(channel.recv(100).decode())
    return told


def test_systemd_and_the_log_are_told_what_becomes_of_turns(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", WATCHDOG_US)
        with LiveServer(bundle, tmp_path / "state", device="simulated:1") as server:
            assert set(until(manager, "READY=1")) <= {"WATCHDOG=1", "READY=1"}
            with server.ready().client() as player:
                assert server.status()["state"] == "ready", "it was told after the warm-up"
                game = player.open()
                seconds = player.play(game)[-1].fields["seconds"]["total"]
                assert error_code(player.play(game, deadline_s=0.01)) == "deadline"
                turn = player.begin(game)
                player.ask("cancel", {"token": game.token}, session=game.session, control=True)
                assert error_code(player.rest(turn)) == "cancelled"
                until(manager, "WATCHDOG=1")
                turn = player.begin(game)
                player.until(turn, "state")
                worker = server.status()["worker"]["pid"]
                os.kill(worker, signal.SIGSTOP)
                manager.settimeout(1.0)
                with pytest.raises(TimeoutError):  # the watchdog is not fed while a turn stands still
                    while True:
                        manager.recv(100)
                assert server.status()["running"] == 1, "the server itself still answers"
                os.kill(worker, signal.SIGCONT)
                manager.settimeout(TIMEOUT_S)
                until(manager, "WATCHDOG=1")
                assert player.rest(turn)[-1].type == "done"
            assert server.end(signal.SIGTERM) == 0
            until(manager, "STOPPING=1")
            server.process.wait()
    told = [line.split(maxsplit=1)[1].strip() for line in server.said if f"session {game.session}" in line]
    assert told[0] == f"INFO turn done (session {game.session}, turn 1, seconds {round(seconds, 3)})"
    assert told[1] == f"WARNING turn failed: deadline (session {game.session}, turn 2)"
    assert told[2] == f"INFO turn ended: cancelled (session {game.session}, turn 2)" and len(told) == 4


def test_a_socket_of_systemd_without_a_file_is_told_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0animegamer-test-{os.getpid()}")
        Supervisor(environment={"NOTIFY_SOCKET": f"@animegamer-test-{os.getpid()}"}).ready()
        assert manager.recv(100) == b"READY=1"


LOW_LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 160))"


def test_a_server_ends_with_its_program_once_the_running_turn_is_done(bundle: Path, tmp_path: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    limits = ("--parent", str(program.pid))
    try:
        with LiveServer(bundle, tmp_path / "state", *limits, device="simulated:1") as server:
            with server.ready().client() as player:
                worker = server.status()["worker"]["pid"]
                turn = player.begin(player.open())
                events = player.until(turn, "state")
                program.kill()  # and nobody asks for its exit code yet
                assert frames([*events, *player.rest(turn)])
            assert server.process.wait(60) == 0
            for _ in until_timeout():
                if gone(worker):
                    break
            else:
                raise AssertionError("the worker still runs")
    finally:
        program.kill()
        program.communicate()
    code, said = refusal(bundle, tmp_path / "other", "--parent", str(program.pid))
    assert code == 2 and "--parent" in said and "Traceback" not in said


def test_connections_that_say_nothing_keep_no_player_and_no_worker_out(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:0", code=LOW_LIMIT) as server:
        with server.ready().client() as early:
            game = early.open()
            limits = Path(f"/proc/{server.process.pid}/limits").read_text()
            [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
            assert line.split()[3:5] == ["160", "160"]
            with zmq.Context() as context:
                silent = [context.socket(zmq.DEALER) for _ in range(250)]  # their handshakes end, then nothing comes
                for number, stranger in enumerate(silent):
                    stranger.linger, stranger.reconnect_ivl = 0, -1
                    stranger.connect(f"tcp://127.0.0.1:{server.port + number % 2}")
                os.kill(server.status()["worker"]["pid"], signal.SIGKILL)
                for _ in until_timeout():
                    with RawClient(server.port) as asking:
                        asking.send("status", control=True)
                        if not asking.control.poll(2000):  # a stranger who came later has its place: ask again
                            continue
                        status = asking.receive(control=True).fields
                    if status["worker"]["restarts"] == 1 and status["state"] == "ready":
                        break
                with server.client() as late:
                    assert frames(late.play(late.open()))
                assert frames(early.play(game)), "who was there before is still there"
                open_files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
                assert open_files < 160
                context.destroy(linger=0)


def test_a_log_that_nobody_reads_holds_up_no_turn_no_page_and_no_end(bundle: Path, tmp_path: Path) -> None:
    """As a game may start the server: with a pipe for stderr that it never looks at."""
    arguments = ["--bundle", str(bundle), "--state-dir", str(tmp_path / "state"), "--device", "simulated:0"]
    command = [sys.executable, "-m", "animegamer_rt", "serve", *arguments, "--port", "0", "--web", "127.0.0.1:0"]
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"\n" * 4096)
    os.set_blocking(writing, True)
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing, text=True, cwd=tmp_path)
    os.close(writing)
    try:
        assert server.stdout is not None
        started = json.loads(server.stdout.readline())
        assert server.stdout.readline().startswith("ready")
        page = urlsplit(started["web"])
        for request in (b"no request\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"):  # one is logged
            with socket.create_connection((page.hostname, page.port), timeout=20) as browser:
                browser.sendall(request)
                assert browser.recv(100).startswith(b"HTTP/1.1")
        with RawClient(started["port"]) as player:
            player.ask("hello", {"versions": [1], "client": "test"}, answer="welcome")
            game = player.open()
            assert frames(player.play(game))
            os.read(reading, 1 << 20)  # now somebody reads
            assert frames(player.play(game))
        server.send_signal(signal.SIGTERM)
        assert server.wait(TIMEOUT_S) == 0
        with os.fdopen(reading, errors="replace") as log:
            said = log.read()
        assert "turn 2" in said and "earlier lines were dropped because nobody read them]" in said
    finally:
        server.kill()
        server.communicate()
