"""The Godot addon's driver for the conformance suite: starts Godot, and hands it the commands over TCP.

A script of Godot 3 cannot read its standard input. Godot needs a display (Xvfb), and what it says goes to the standard
error. While frames are measured it says `frame` at each, whose times are added to its answer: its clock is one of its
own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).parents[1]
START_S = 60.0
"""Longest wait for Godot's start; only a failing one takes so long."""


def main() -> int:
    """Returns Godot's exit code."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(START_S)
        options = ["--disable-render-loop", "--audio-driver", "Dummy"]
        godot = subprocess.Popen(
            ["godot3-runner", "--path", str(PROJECT), *options, "res://tests/conform.tscn"],
            env={**os.environ, "ANIMEGAMER_DRIVER_PORT": str(listener.getsockname()[1])},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )
        try:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw", encoding="utf-8", newline="\n") as lines:
                for line in sys.stdin:
                    lines.write(line)
                    lines.flush()
                    at_ns: list[int] = []
                    while (answer := lines.readline()) == "frame\n":
                        at_ns.append(time.monotonic_ns())
                    if at_ns and answer.startswith("{"):
                        answer = json.dumps({**json.loads(answer), "at_ns": at_ns}) + "\n"
                    print(answer, end="", flush=True)
            return godot.wait(START_S)
        finally:
            godot.kill()
            godot.wait()


if __name__ == "__main__":
    sys.exit(main())
