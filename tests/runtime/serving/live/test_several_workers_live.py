"""A server with several workers: games play beside each other, and a worker that dies costs time only."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path

import psutil
from live_server import LiveServer, frames


def worker_processes(server: LiveServer) -> list[psutil.Process]:
    return sorted(psutil.Process(server.process.pid).children(), key=lambda process: process.pid)


def test_games_play_beside_each_other_and_outlive_a_worker_that_is_killed(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.5", workers=3, backoff_s=0.05) as server:
        server.ready()
        with server.client() as one, server.client() as two:
            games = one.open(seed=21), two.open(seed=21)
            first = frames(one.play(games[0], "Mia waves."))
            processes = worker_processes(server)
            assert len(processes) == 3
            if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) >= 2:
                assert processes[0].cpu_affinity() != processes[1].cpu_affinity()
            assert frames(two.play(games[1], "Mia waves.")) == first
            turns = one.begin(games[0], "Tobo runs."), two.begin(games[1], "Tobo runs.")
            heard = [one.until(turns[0], "progress"), two.until(turns[1], "progress")]
            for process in processes[:2]:
                process.send_signal(signal.SIGKILL)
            played = [
                frames([*events, *client.rest(turn)])
                for client, turn, events in zip((one, two), turns, heard, strict=True)
            ]
            assert played[0] == played[1], "the same bytes, whichever worker played them to the end"
        address = next(line.rpartition(" ")[2] for line in server.said if "metrics on http://" in line)
        with urllib.request.urlopen(address, timeout=10) as page:
            said = page.read().decode()
        assert all(f'animegamer_worker_restarts_total{{worker="{number}"}}' in said for number in (1, 2, 3))
        status = server.status()
        assert status["worker"]["restarts"] == 2 and "pid" not in status["worker"]
        assert (tmp_path / "state" / "worker-3.log").is_file()
