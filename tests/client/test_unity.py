"""The Unity package: compiled by Mono, its engine-free core played against live servers.

Unity itself is not here. What needs it is compiled against stubs of the API that it uses, and not run.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import golden_messages as golden
import pytest
from live_server import LiveServer

import fakes
from client.mono_build import MonoBuild


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> MonoBuild:
    return MonoBuild(tmp_path_factory.mktemp("mono"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fakes.write_bundle(tmp_path_factory.mktemp("bundle") / "tiny").folder


@pytest.fixture(scope="module")
def server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    options = ("--turns-per-minute", "0")
    with LiveServer(bundle, tmp_path_factory.mktemp("state"), *options, device="simulated:0.2") as running:
        yield running.ready()


def address_of(server: LiveServer) -> str:
    return f"tcp://127.0.0.1:{server.port}"


def in_hex(frame: str | dict[str, Any]) -> str:
    """A frame of a vector as the driver takes it."""
    return frame if isinstance(frame, str) else f"{frame['hex']}*{frame['times']}"


def test_golden_messages_are_read_and_written_to_the_byte(build: MonoBuild) -> None:
    vectors = golden.MESSAGES + [each for each in golden.REFUSED if each["layer"] == "frames"]
    lines = [" ".join([each["sender"], *map(in_hex, each["frames"])]) for each in vectors]
    answers = build.run("vectors", says="\n".join(lines))
    assert len(answers) == len(vectors)
    for vector, answer in zip(vectors, answers, strict=True):
        if "code" in vector:
            assert answer == f"refused {vector['code']}", vector["name"]
            continue
        read, header, written = answer.split(" ")
        assert read == "read", vector["name"]
        seen = json.loads(header)
        if vector["canonical"]:
            assert seen == vector["header"], vector["name"]
            assert written == golden.frames(vector)[1].hex(), vector["name"]
        else:
            assert seen["type"] == vector["header"]["type"], vector["name"]


def test_a_game_is_played_cancelled_rewound_branched_exported_and_resumed(build: MonoBuild, server: LiveServer) -> None:
    assert build.run("play", address_of(server)) == [
        "three turns",
        "cancel",
        "say instead",
        "refusals",
        "rewind, branch, export, close",
        "resume, replay, closed",
    ]


def test_a_server_that_is_killed_and_restarted_in_a_turn_is_resumed(
    build: MonoBuild, bundle: Path, tmp_path: Path
) -> None:
    with LiveServer(bundle, tmp_path, device="simulated:0.5") as first:
        with build.start("restart", address_of(first.ready())) as driver:
            try:
                assert driver.stdout is not None and driver.stdout.readline() == "kill the server\n"
                first.process.kill()
                first.process.wait()
                with LiveServer(bundle, tmp_path, "--port", str(first.port)):
                    assert driver.communicate(timeout=100)[0] == "restart\n"
            finally:
                driver.kill()


class Web(BaseHTTPRequestHandler):
    """A web server that answers whatever comes."""

    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_what_is_no_game_server_is_named(build: MonoBuild) -> None:
    with HTTPServer(("127.0.0.1", 0), Web) as web, socket.create_server(("127.0.0.1", 0)) as silent:
        thread = threading.Thread(target=web.serve_forever, daemon=True)
        thread.start()
        (said,) = build.run("unreachable", f"tcp://127.0.0.1:{web.server_port}")
        assert said.startswith("protocol: ") and "another program" in said and "HTTP/1.1 400" in said
        web.shutdown()
        thread.join()
        (said,) = build.run("unreachable", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        assert said.startswith("timed_out: ") and "does not answer as a game server does" in said
    (said,) = build.run("unreachable", "tcp://127.0.0.1:1")
    assert said.startswith("timed_out: ") and "nothing listens there" in said and "animegamer-rt serve" in said
    (said,) = build.run("unreachable", "tcp://example.com:5570")
    assert said.startswith("bad_argument: ")


def test_code_is_unloaded_twenty_times_without_a_thread_or_socket_left(build: MonoBuild, server: LiveServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = build.run("domains", address_of(server), f"tcp://127.0.0.1:{silent.getsockname()[1]}")
    assert said == ["unloaded 20 times, 13 turns"]
