"""The worker is killed, hangs, or never comes up: players get their frames, or a clear error, and nothing is lost."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from live_server import LiveServer, error_code, frames

TRIES = 8
"""A turn may be over before the kill comes, on a busy machine; another one is tried then."""
FAULTY = f"""
from animegamer_rt.serving.server import local_host
program = {str(Path(__file__).parents[4] / "benchmarks" / "soak" / "faulty_worker.py")!r}
local_host.child_command = lambda module, *options: [sys.executable, program, *options]
"""
"""The workers of such a server fail every turn from the word "wedge" on."""


@pytest.fixture(scope="module")
def mortal(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(bundle, tmp_path_factory.mktemp("mortal"), device="simulated:0.5", worker_timeout_s=4) as server:
        yield server.ready()


def kill(pid: int, name: str = "SIGKILL") -> None:
    os.kill(pid, getattr(signal, name, signal.SIGTERM))


@pytest.mark.parametrize("stage", ["accepted", "progress", "frame"])
def test_a_worker_killed_at_any_stage_costs_time_only(mortal: LiveServer, stage: str) -> None:
    with mortal.client() as player:
        plain = player.open(seed=21)
        expected = [frames(player.play(plain, text)) for text in ("Mia waves.", "Tobo runs.")]
        for _ in range(TRIES):
            game = player.open(seed=21)
            assert frames(player.play(game, "Mia waves.")) == expected[0]
            pid = mortal.status()["worker"]["pid"]
            turn = player.begin(game, "Tobo runs.")
            events = player.until(turn, stage)
            kill(pid)
            events += player.rest(turn)
            assert frames(events) == expected[1], "bit-equal, numbered on, nothing twice"
            assert player.open(token=game.token).opened.fields["turns"] == 2
            restarts = [event for event in events if event.type == "restarting"]
            if restarts:
                break
        assert restarts[0].fields["attempt"] == 1 and restarts[0].turn == 2
        assert "killed (signal 9; out of memory?" in mortal.status()["worker"]["last_error"]


def test_a_worker_that_hangs_is_replaced(mortal: LiveServer) -> None:
    with mortal.client() as player:
        game = player.open()
        for _ in range(TRIES):
            pid = mortal.await_status(lambda status: status["worker"]["state"] == "ready")["worker"]["pid"]
            turn = player.begin(game)
            events = player.until(turn, "state")
            kill(pid, "SIGSTOP")
            events += player.rest(turn)
            assert frames(events)
            if "restarting" in {event.type for event in events}:
                break
            kill(pid, "SIGCONT")
        else:
            raise AssertionError("no worker was stopped in time")
        assert "sent nothing" in mortal.status()["worker"]["last_error"]


def test_a_worker_that_dies_costs_a_turn_one_that_cannot_start_degrades_a_server(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.8") as server, server.ready().client() as player:
        game = player.open()
        assert frames(player.play(game, "Mia waves.", turn_id="kept"))
        turn = player.begin(game, "Tobo runs.")
        killed = {0}
        for _ in range(3):
            worker = server.await_status(
                lambda status: status["worker"]["state"] == "busy" and status["worker"]["pid"] not in killed
            )["worker"]
            kill(worker["pid"])
            killed.add(worker["pid"])
        events = player.rest(turn)
        assert error_code(events) == "worker_failed"
        assert [event.fields["attempt"] for event in events if event.type == "restarting"] == [1, 2]

        # The same turn is refused at once; the server is as well as before.
        (refused,) = player.play(game, "Tobo runs.")
        assert "wait" in refused.fields["do"] and refused.fields["code"] == "worker_failed"
        assert server.status()["state"] == "ready"
        assert frames(player.play(game, "Mia sleeps."))

        # It cannot even come up: everything that needs no engine still works.
        for _ in range(3):
            worker = server.await_status(lambda status: status["worker"].get("pid", 0) not in killed)["worker"]
            kill(worker["pid"])
            killed.add(worker["pid"])
        status = server.await_status(lambda status: status["worker"]["restarts"] == 6)
        assert status["state"] == "degraded" and status["worker"]["state"] == "failed"
        assert error_code(player.play(game, "Mia sleeps.")) == "degraded"
        assert player.open(token=game.token).opened.fields["turns"] == 2
        assert player.ask("ping").type == "pong"

        # It goes on trying, and nothing was lost.
        server.await_status(lambda status: status["state"] == "ready")
        assert frames(player.play(game, "Tobo rests."))
        assert player.play(game, "x", turn_id="kept")[0].fields["replayed"]


def test_a_worker_that_answers_but_fails_every_turn_is_replaced(bundle: Path, tmp_path: Path) -> None:
    live = LiveServer(bundle, tmp_path / "state", code=FAULTY)
    with live as server, server.ready().client() as one, server.client() as two:
        games = [(one, one.open(seed=21)), (two, two.open(seed=21))]
        expected = [frames(player.play(game, "Mia waves.")) for player, game in games]
        said = []
        while not server.status()["worker"]["restarts"]:
            for player, game in games:
                events = player.play(game, "wedge" if not said else "Mia waves.")
                said += [(event.fields["code"], event.fields["text"]) for event in events if event.type == "error"]
        assert {*said} == {("internal", "the worker failed")} and len(said) in (3, 4)
        assert "failed 3 turns in a row" in server.status()["worker"]["last_error"]
        player, game = games[0]
        assert frames(player.play(player.open(seed=21), "Mia waves.")) == expected[0]


def test_a_frozen_machine_costs_no_worker_and_no_turn(bundle: Path, tmp_path: Path) -> None:
    with (
        LiveServer(bundle, tmp_path / "state", device="simulated:0.8", worker_timeout_s=1.5) as server,
        server.ready().client() as player,
    ):
        before = server.status()["worker"]
        for who, stage in (("all", "state"), ("all", "progress"), ("server", "accepted"), ("server", "frame")):
            turn = player.begin(player.open(seed=21), "Mia waves.", deadline_s=3)
            events = player.until(turn, stage)
            frozen = [server.process.pid, *([before["pid"]] if who == "all" else [])]
            for pid in frozen:
                kill(pid, "SIGSTOP")
            time.sleep(3.5)
            for pid in frozen:
                kill(pid, "SIGCONT")
            assert frames([*events, *player.rest(turn)])
        after = server.status()["worker"]
        assert (after["pid"], after["restarts"]) == (before["pid"], 0)


def test_games_play_beside_each_other_and_outlive_a_worker_that_is_killed(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.5", workers=3) as server:
        server.ready()
        with server.client() as one, server.client() as two:
            games = one.open(seed=21), two.open(seed=21)
            first = frames(one.play(games[0], "Mia waves."))
            processes = sorted(psutil.Process(server.process.pid).children(), key=lambda process: process.pid)
            assert len(processes) == 3
            if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) >= 2:
                assert processes[0].cpu_affinity() != processes[1].cpu_affinity()
            assert frames(two.play(games[1], "Mia waves.")) == first
            turns = one.begin(games[0], "Tobo runs."), two.begin(games[1], "Tobo runs.")
            heard = [one.until(turns[0], "progress"), two.until(turns[1], "progress")]
            for process in processes[:2]:
                process.send_signal(signal.SIGKILL)
            played = [frames([*heard[n], *client.rest(turns[n])]) for n, client in enumerate((one, two))]
            assert played[0] == played[1], "the same bytes, whichever worker played them to the end"
        with urllib.request.urlopen(server.metrics, timeout=10) as page:
            said = page.read().decode()
        restarts = [line.split() for line in said.splitlines() if line.startswith("animegamer_worker_restarts_total{")]
        assert sorted(count for _, count in restarts) == ["0.0", "1.0", "1.0"]
        status = server.status()
        assert status["worker"]["restarts"] == 2 and "pid" not in status["worker"]
        assert (tmp_path / "state" / "worker-3.log").is_file()
