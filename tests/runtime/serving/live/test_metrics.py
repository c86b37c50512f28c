"""The page for Prometheus says what the live server did, and hurts nobody: not its loop, not its start, not its end."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from client.conformance.ports import ReservedPorts
from live_server import LiveServer, error_code, frames, refusal, until_timeout
from prometheus_client.parser import text_string_to_metric_families

from animegamer_rt.errors import TRY_AGAIN
from animegamer_rt.serving.server import metrics
from animegamer_rt.serving.server.metrics import Metrics, serve_metrics

Numbers = dict[tuple[str, ...], float]


def read(address: str) -> Numbers:
    """Sample name and label values -> value."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_turns_errors_and_bytes_are_counted(server: LiveServer) -> None:
    before = read(server.metrics)
    with server.client() as player:
        game = player.open()
        pictures = [picture for _ in range(2) for picture in frames(player.play(game))]
        assert error_code(player.play(game, " ")) == "instruction"
        after, sessions = read(server.metrics), server.status()["sessions"]
        for _ in until_timeout():
            now = read(server.metrics)
            # Told once a second, so what was told last may be of the middle of a turn.
            if (now["animegamer_sessions",], now["animegamer_ready",], now["animegamer_running",]) == (sessions, 1, 0):
                break
        else:
            raise AssertionError(f"how full it is was never told: {now}")
        assert now["animegamer_connections",] >= 1
        assert now["animegamer_queue",] == 0
    assert after["animegamer_worker_turns_total", "1"] - before["animegamer_worker_turns_total", "1"] == 2
    pictures_in = "animegamer_first_picture_seconds_sum"
    assert 0 < (after[pictures_in,] - before[pictures_in,]) / 2 < 10
    assert after["animegamer_turns_total",] - before["animegamer_turns_total",] == 2
    for stage in ("queue", "predictor", "denoiser", "vae", "total"):
        name = ("animegamer_turn_seconds_count", stage)
        assert after[name] - before[name] == 2
    seconds = after["animegamer_turn_seconds_sum", "total"] - before["animegamer_turn_seconds_sum", "total"]
    assert seconds >= 2 * 0.05
    sent = after["animegamer_bytes_sent_total",] - before["animegamer_bytes_sent_total",]
    assert sent > sum(map(len, pictures))
    refused = "animegamer_errors_total", "instruction"
    assert after[refused] - before.get(refused, 0) == 1
    assert after["animegamer_frames_dropped_total",] == 0
    assert now["animegamer_worker_resident_bytes", "1"] > 2**20
    assert now["animegamer_up",] == 1


def test_page_is_beside_the_servers_ports_and_a_taken_port_is_said(bundle: Path, tmp_path: Path) -> None:
    with ReservedPorts() as ports, socket.create_server(("127.0.0.1", ports.port + 2)):
        code, said = refusal(bundle, tmp_path, *ports.option)
    assert code == TRY_AGAIN
    assert f"error: port {ports.port + 2}: the metrics' port cannot be bound" in said and "metrics_port" in said


def test_silent_visitors_keep_the_page_from_nobody_and_cost_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PAGE_S", 1.0)
    with contextlib.ExitStack() as crowd, serve_metrics(Metrics(), 0) as served:
        port = int(served.split(":")[2].split("/")[0])
        before = threading.active_count()
        silent = [crowd.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)) for _ in range(200)]
        assert read(served)["animegamer_up",] == 1
        assert threading.active_count() - before <= metrics.PAGE_CONNECTIONS + 1
        for number, one in enumerate(silent):
            with contextlib.suppress(ConnectionError):
                while one.recv(1024):
                    one.sendall(b"GET"[number % 3 :])
        assert read(served)["animegamer_up",] == 1
    with pytest.raises(urllib.error.URLError):
        read(served)


def test_the_page_has_one_path_and_no_foreign_name() -> None:
    with serve_metrics(Metrics(), 0) as served:
        for path, host, status in (("", "evil.example", 421), ("", "[::1", 421), ("/../../etc/passwd", "", 404)):
            asked = urllib.request.Request(served + path, headers={"Host": host} if host else {})
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(asked, timeout=10)
            refused.value.close()
            assert refused.value.code == status
