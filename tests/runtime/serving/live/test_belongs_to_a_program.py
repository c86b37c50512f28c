"""A server that another program started: it says where it listens, and ends with that program."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import zmq
from live_server import TIMEOUT_S, LiveServer, RawClient, frames, gone, refusal, until_timeout

from animegamer_rt.errors import TRY_AGAIN

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


def test_with_port_0_the_first_line_says_where_it_listens(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state") as server:
        server.listening()
        for _ in until_timeout():
            lines = [line for line in server.said if line.startswith("{")]
            if lines:
                break
        place = json.loads(lines[0])
        assert place["port"] == server.port and place["control_port"] == server.port + 1
        assert place["address"] == f"tcp://127.0.0.1:{server.port}" and place["pid"] == server.process.pid
        assert place["metrics"].startswith("http://127.0.0.1:")
        code, said = refusal(bundle, tmp_path / "other", "--port", str(server.port))
        assert code == TRY_AGAIN and f"port {server.port}" in said
        code, said = refusal(bundle, tmp_path / "state")
        assert code == TRY_AGAIN and "another server" in said


def test_connections_that_say_nothing_keep_no_player_and_no_worker_out(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:0", code=LOW_LIMIT) as server:
        with server.ready().client() as early:
            game = early.open()
            limits = Path(f"/proc/{server.process.pid}/limits").read_text()
            assert [line.split()[3:5] for line in limits.splitlines() if line.startswith("Max open files")] == [
                ["160", "160"]
            ]
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


def test_a_log_that_nobody_reads_holds_up_no_turn_and_no_end(bundle: Path, tmp_path: Path) -> None:
    """As a game may start the server: with a pipe for stderr that it never looks at."""
    arguments = ["--bundle", str(bundle), "--state-dir", str(tmp_path / "state"), "--device", "simulated:0"]
    command = [sys.executable, "-m", "animegamer_rt", "serve", *arguments, "--port", "0"]
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
        port = json.loads(server.stdout.readline())["port"]
        assert server.stdout.readline().startswith("ready")
        with RawClient(port) as player:
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
