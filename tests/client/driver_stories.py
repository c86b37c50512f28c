"""What each client's driver (client/conformance/README.md) plays on live servers, and over a bad wire."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import golden_messages as golden
import msgpack
import zmq
from client.conformance import run as conformance
from client.conformance.fake_server import FakeServer
from client.conformance.ports import ReservedPorts
from client.conformance.suite import Process, with_turns
from live_server import LiveServer

from animegamer_client.codec import Message, decode, encode
from client.wire_cutter import WireCutter

GAME = (
    "open 3",
    *("turn a Mirel waves gently.", "turn a Mirel waves gently.", "turn b Bixo jumps.", "turn c Tofi sits.", "list"),
    *("replay 1 -1", "replay 9 -1", "rewind 2", "turn d Tofi runs.", "resume", "replay 3 -1", "branch 1"),
    *("turn e Bixo jumps.", "list", f"turn f {'a' * 2000}", "end", "end", "turn f Tofi sits."),
    "resume nobody",
)
LONGEST_CUT_BYTES, CHANGES = 4000, 24


@contextlib.contextmanager
def started(command: list[str], cwd: Path | None = None) -> Iterator[Process]:
    """A driver, until the end of `with`."""
    driver = Process(command, cwd)
    try:
        yield driver
    finally:
        driver.close()


def address_of(server: LiveServer) -> str:
    return f"tcp://127.0.0.1:{server.port}"


def check_display(command: list[str], cwd: Path | None = None) -> None:
    """The program shows every clip of client/vectors/display.json as it says."""
    with started(command, cwd) as program:
        for vector in golden.DISPLAY:
            for line, expected in vector["script"]:
                assert program.ask(f"display {line}") == expected, (vector["name"], line)


def check_conformance(command: list[str], cwd: Path | None = None) -> None:
    """All scenarios that can be played here pass."""
    assert conformance.play(command, cwd) == {}


def golden_line(vector: dict[str, Any]) -> str:
    """A golden message as programs that decode it take it: who sends it, then its frames in hex."""
    frames = (each if isinstance(each, str) else f"{each['hex']}*{each['times']}" for each in vector["frames"])
    return " ".join([vector["sender"], *frames])


def check_golden(decode_lines: Callable[[str], list[str]], refuses: Callable[[dict[str, Any]], bool]) -> None:
    """Golden messages are read, and written to the byte; broken ones that it `refuses` get their code."""
    vectors = golden.MESSAGES + [each for each in golden.REFUSED if refuses(each)]
    answers = decode_lines("\n".join(map(golden_line, vectors)))
    for vector, answer in zip(vectors, answers, strict=True):
        if "code" in vector:
            assert answer == f"refused {vector['code']}", vector["name"]
            continue
        assert answer.startswith("read "), (vector["name"], answer)
        written = bytes.fromhex(answer.removeprefix("read "))
        if vector["canonical"]:
            assert written == golden.frames(vector)[1], vector["name"]
        else:
            assert msgpack.unpackb(written)["type"] == vector["header"]["type"], vector["name"]


class DriverStories:
    """What every client's driver plays. A test file inherits it, and has the fixtures `driver` and `server`."""

    def test_a_game_is_that_of_the_python_client(self, driver: Process, server: LiveServer) -> None:
        """A game with each request is the Python client's, to the pictures; so is a turn that is cancelled in it."""
        with started(conformance.PYTHON) as python:
            for line in (f"new {address_of(server)} 60", *GAME):
                mine, its = driver.ask(line), python.ask(line)
                compared = 2 if its.startswith("error ") else 6  # words: texts differ
                assert mine.split(" ")[:compared] == its.split(" ")[:compared], line[:80]
        assert driver.ask("open 3") == "ok 0"
        assert driver.ask("begin a Mirel waves gently.") == "ok"
        assert driver.ask("turn b Bixo jumps.").startswith("error turn_running ")
        assert driver.ask("cancel") == "ok 1" and driver.ask("rest").startswith("error cancelled ")
        assert driver.ask("turn c Tofi sits.").startswith("done turns=1 seq=0-")

    def test_a_killed_server_is_resumed(self, driver: Process, bundle: Path, tmp_path: Path) -> None:
        """A server that is killed in a turn, early and late, and started again: no event is lost."""
        with ReservedPorts() as ports, contextlib.ExitStack() as servers:

            def start() -> LiveServer:
                server = LiveServer(
                    bundle, tmp_path / "killed", *ports.option, device="simulated:0.5", turns_per_minute=0
                )
                return servers.enter_context(server).ready()

            server = start()
            assert driver.ask(f"new {address_of(server)} 60") == "ok" and driver.ask("open 3") == "ok 0"
            for turn, seconds in enumerate((0.0, 0.4), 1):
                assert driver.ask("begin a" + str(turn) + " Mirel waves.") == "ok"
                time.sleep(seconds)
                server.process.kill()
                server.process.wait()
                server = start()
                done = re.match(
                    rf"done turns={turn} (seq=0-\d+ pictures=(?:{turn}\.\d+,?){{17}} hash=\w+) ", driver.ask("rest")
                )
                assert done is not None
                assert driver.ask(f"replay {turn} -1") == f"done turns={turn} {done[1]} replayed=1"

    def test_a_turn_is_whole_over_a_bad_wire(self, driver: Process) -> None:
        """A turn is whole wherever the wire is cut, and from a slow drip; changed bytes end in it or in an error."""
        with contextlib.closing(FakeServer()) as server:

            def play(wire: WireCutter, timeout_s: float) -> str:
                with wire:
                    driver.ask(f"new {wire.address} {timeout_s}")
                    opened = driver.ask("open 3")
                    return driver.ask("turn a Mia waves.") if opened == "ok 0" else opened

            whole = with_turns("{whole or again 1}")
            for cut in range(1, LONGEST_CUT_BYTES, 131):  # in the greeting, in lengths, headers and pictures
                wire = WireCutter(server.address, cut_after=cut)
                assert re.match(whole, play(wire, 10)), cut
                if wire.passed < cut:
                    break
            else:
                raise AssertionError("a turn has more bytes than LONGEST_CUT_BYTES")
            assert re.match(whole, play(WireCutter(server.address, drip=7), 4))
            dice = random.Random(1)
            changes = [(dice.randrange(cut), dice.randrange(256)) for _ in range(CHANGES)]
            played = [play(WireCutter(server.address, change=change), 0.6) for change in changes]
            words = {answer.split(" ")[0] for answer in played}
            assert words == {"done", "error"}, played

    def test_pings_are_answered_while_nobody_calls(self, driver: Process) -> None:
        """Pings of the transport are answered while nobody calls: a peer that does not answer is dropped after 2 s."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router = context.socket(zmq.ROUTER)
        answers: list[str] = []
        try:
            router.linger, router.router_mandatory = 0, 1
            router.heartbeat_ivl, router.heartbeat_timeout = 50, 2000
            address = f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
            driver.ask(f"new {address} 20")
            asking = threading.Thread(target=lambda: answers.append(driver.ask("connect")))
            asking.start()
            while asking.is_alive():
                if router.poll(100):
                    routing, *frames = router.recv_multipart()
                    request = decode(frames)
                    answer = {"hello": "welcome", "ping": "pong"}[request.type]
                    time.sleep(2.5)
                    fields = next(each["header"]["fields"] for each in golden.MESSAGES if each["name"] == answer)
                    router.send_multipart([routing, *encode(Message(answer, fields, parent=request.id))])
            assert answers == ["ok pocket ready"]
        finally:
            context.destroy(linger=0)
