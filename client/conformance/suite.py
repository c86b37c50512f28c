"""Runs the scenarios of scenarios.json with one client, each on its own server, by commands to the client's driver.

A driver is a command line (see README.md).
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq
from client.conformance.fake_server import FakeServer
from client.conformance.fake_turns import FRAMES, PADDING, PNG, frame_rows
from client.conformance.other_programs import OtherProgram

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS: list[dict[str, Any]] = json.loads((HERE / "scenarios.json").read_text(encoding="utf-8"))
TIMEOUT_S = 5.0
"""The client's time limit in a scenario that sets none."""
DRIVER_S = 300.0
"""Longest wait for a driver's answer; only a hanging client or a long measurement takes that long."""
AT_ONCE = 4
"""Drivers that run concurrently: most scenarios wait."""


class Process:
    """A program that answers each line of standard input with one line. It starts on the first request."""

    def __init__(self, command: list[str], cwd: Path | None = None) -> None:
        self._command, self._cwd = command, cwd
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """Of the program that answered last."""
        assert self._process is not None
        return self._process.pid

    def ask(self, line: str) -> str:
        """The answer; a hanging program is killed, and restarted for the next line."""
        with self._lock:
            if self._process is None:
                pipe = subprocess.PIPE
                self._process = subprocess.Popen(self._command, cwd=self._cwd, stdin=pipe, stdout=pipe, text=True)
            process = self._process
            assert process.stdin is not None and process.stdout is not None
            ending = threading.Timer(DRIVER_S, process.kill)
            ending.start()
            try:
                process.stdin.write(line + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except OSError:
                answer = ""
            ending.cancel()
            if answer:
                return answer.rstrip("\n")
        self.close()
        return f"the driver ended or hung at: {line[:80]}"

    def close(self) -> None:
        """Close its standard input, which ends it."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with contextlib.suppress(OSError):
                    stream.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Suite:
    """The scenarios, and the files that they name. Use it as a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        picture = Path(self._folder.name) / "start.png"
        picture.write_bytes(PNG + b"the rest")
        no_picture = picture.with_suffix(".txt")
        no_picture.write_text("no picture", encoding="utf-8")
        self._words = {
            "server secret": zmq.curve_keypair()[1].decode(),
            "picture": str(picture),
            "no picture": str(no_picture),
        }

    def __enter__(self) -> Suite:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._folder.cleanup()

    def play(self, driver: list[str], cwd: Path | None = None) -> dict[str, str]:
        """The scenarios that failed, each with what went wrong. driver: its command line."""
        free = [Process(driver, cwd) for _ in range(AT_ONCE)]
        idle = list(free)

        def one(work: tuple[str, dict[str, Any]]) -> tuple[str, str]:
            name, scenario = work
            process = idle.pop()
            try:
                return name, self._scenario(process, scenario)
            finally:
                idle.append(process)

        work = [(scenario["name"], case) for scenario in SCENARIOS for case in self._cases(scenario)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ended = list(pool.map(one, work))
        for process in free:
            process.close()
        failed: dict[str, list[str]] = {}
        for name, fault in ended:
            if fault:
                failed.setdefault(name, []).append(fault)
        return {name: "; ".join(faults) for name, faults in failed.items()}

    def _cases(self, scenario: dict[str, Any]) -> list[dict[str, Any]]:
        """The scenario for each value of its `for`; with `within`, one after the other on the same server."""
        text = json.dumps({"for": [""], **scenario})
        for word, value in self._words.items():
            text = text.replace(f"{{{word}}}", value)
        text = re.sub(r"\{(\d+) letters\}", lambda found: "a" * int(found[1]), text)
        cases = [json.loads(text.replace("{k}", str(value))) for value in json.loads(text)["for"]]
        if not scenario.get("within"):
            return cases
        return [{**cases[0], "script": [step for case in cases for step in case["script"]]}]

    def _scenario(self, driver: Process, scenario: dict[str, Any]) -> str:
        """What went wrong; empty if nothing did."""
        script = dict(scenario["server"])
        offset = script.pop("port_offset", 0)
        server = start_server(script)
        host, _, port = server.address.rpartition(":")
        try:
            driver.ask(f"new {host}:{int(port) + offset} {scenario.get('timeout_s', TIMEOUT_S)}")
            for command, expected in scenario["script"]:
                fault = self._step(driver, server, command, expected)
                if fault:
                    return fault
        finally:
            driver.ask("close")  # so that it no longer looks for its server when another one gets these ports
            server.close()
        seen = Counter(server.kinds() if isinstance(server, FakeServer) else ())
        told = {kind: seen[kind] for kind in scenario.get("saw", {})}
        return "" if told == scenario.get("saw", {}) else f"the server was sent {told}, expected {scenario['saw']}"

    def _step(self, driver: Process, server: FakeServer | OtherProgram, command: str, expected: str) -> str:
        verb, _, rest = command.partition(" ")
        if verb == "server":
            name, key, value = rest.split(" ")
            assert isinstance(server, FakeServer)
            change(server, {name: {key: value if name == "faults" else [value]}})
            return ""
        answer, pattern = driver.ask(command), with_turns(expected)
        return (
            "" if re.match(pattern, answer) else f"`{command[:60]}` was answered `{answer[:300]}`, expected `{pattern}`"
        )


def start_server(script: dict[str, Any]) -> FakeServer | OtherProgram:
    """The server of a scenario: `program` is one of `other_programs`, else these are attributes of `FakeServer`."""
    if "program" in script:
        return OtherProgram(script["program"])
    key = script.pop("secret_key", None)
    server = FakeServer(key.encode() if key else None, script.pop("minor", 0))
    change(server, script)
    return server


def change(server: FakeServer, attributes: dict[str, Any]) -> None:
    """Set attributes; the keys of `faults` are numbers."""
    for name, value in attributes.items():
        if not hasattr(server, name):
            raise ValueError(f"a server has no {name!r}; see client/conformance/fake_server.py")
        setattr(server, name, {int(seq): fault for seq, fault in value.items()} if name == "faults" else value)


def with_turns(expected: str) -> str:
    """The pattern of an answer, in which `{whole 1}`, `{again 1}` and `{whole or again 1}` stand for a turn of a game
    with seed 3: every event once and in order, and the right pictures."""
    return re.sub(r"\{(whole|again|whole or again) (\d)\}", _turn_pattern, expected)


def _turn_pattern(found: re.Match[str]) -> str:
    hashed, number = 2166136261, int(found[2])
    for index in range(FRAMES):
        for byte in frame_rows(3, number, index, 4)[:, :-PADDING].tobytes():
            hashed = ((hashed ^ byte) * 16777619) & 0xFFFFFFFF
    turns = number if found[1] != "again" else r"\d+"
    replayed = {"whole": "0", "again": "1", "whole or again": "[01]"}[found[1]]
    pictures = ",".join(rf"{number}\.{index}" for index in range(FRAMES))
    return f"done turns={turns} seq=0-7 pictures={pictures} hash={hashed:08x} replayed={replayed}$"
