"""What each client adds to a turn, and whether it grows: python benchmarks/clients.py [--out FILE] [--frames N]

Plays the drivers of client/conformance against `serve --device simulated:0`, which runs no model. CPU includes what a
driver does besides: it looks for events every millisecond, and hashes every byte of every picture, which takes Python
most of its time. Wall time is that of a turn less the server's own. On a busy machine it says nothing of the client.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from animegamer_bench.machine import machine_facts

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from client.conformance.run import PYTHON  # noqa: E402
from client.conformance.suite import Process  # noqa: E402

CLIENTS = ("C and C++", "C#", "Python", "Python, asyncio")
FRAMES = 17
SMALL, POCKET = "24x16", "144x96"
GOAL_MS, GROWTH_MIB = 4.0, 2.0
"""Most CPU of a turn with pictures of pocket's size, but in Python; most growth after 10 000 frames."""


def build(name: str) -> tuple[list[str], Path]:
    """A client's driver, built as for a game, and the folder that it runs in."""

    def run(*command: object) -> None:
        subprocess.run(list(map(str, command)), cwd=ROOT, check=True, stdout=sys.stderr)

    if name == "C and C++":
        folder = ROOT / "build" / "bench-native"
        run("cmake", "-S", "client/native", "-B", folder, "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", folder, "--target", "driver")
        return [str(folder / "tests" / "driver")], ROOT
    if name == "C#":
        folder = ROOT / "build" / "bench-unity"
        run(sys.executable, "client/unity/Tests~/build.py", folder)
        return ["mono", "AnimeGamer.Driver.exe", "conform"], folder
    return [*PYTHON, *(["--aio"] if name == "Python, asyncio" else [])], ROOT


@contextlib.contextmanager
def served(size: str) -> Iterator[tuple[str, Path]]:
    """The address of a server, and its log."""
    with tempfile.TemporaryDirectory() as name:
        log, config = Path(name) / "log", Path(name) / "serve.toml"
        config.write_text("turns_per_minute = 0\n", encoding="utf-8")
        serve = [sys.executable, "-m", "animegamer_rt", "serve", "--device", "simulated:0", "--port", "0"]
        options = ["--frame-size", size, "--config", str(config), "--state-dir", name]
        with log.open("w") as errors:
            server = subprocess.Popen([*serve, *options], stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert server.stdout is not None
            yield next(line.split()[1] for line in server.stdout if line.startswith("ready ")), log
        finally:
            server.terminate()
            server.communicate()


def play(driver: Process, size: str, turns: int, frames: int) -> dict[str, Any]:
    """One game's turns, then replays up to `frames` frames, on a server of its own."""

    def ask(line: str) -> None:
        answer = driver.ask(line)
        if not answer.startswith(("ok", "done")):
            raise RuntimeError(f"{line!r} was answered {answer!r}")

    with served(size) as (address, log):
        ask(f"new {address} 60")
        ask("open 3")
        ask("turn warm Mirel waves.")
        program = psutil.Process(driver.pid)
        walls, before = [], program.cpu_times()
        for n in range(turns):
            at = time.perf_counter()
            ask(f"turn t{n} Mirel waves.")
            walls.append(time.perf_counter() - at)
        after = program.cpu_times()
        cpu_ms = 1000 * (after.user + after.system - before.user - before.system) / turns
        servers = [float(each) for each in re.findall(r"turn done .* seconds ([\d.]+)\)", log.read_text())]
        over = [wall - own for wall, own in zip(walls, servers[1:], strict=True)]
        result: dict[str, Any] = {"turns": turns, "cpu_ms_a_turn": round(cpu_ms, 2)}
        result["wall_over_server_ms_median"] = round(1000 * statistics.median(over), 2)
        for n in range(turns + 1, frames // FRAMES + 1):
            ask("replay 1 -1")
            if n in (10_000 // FRAMES, frames // FRAMES):
                result[f"resident_mib_at_{FRAMES * n}_frames"] = round(program.memory_info().rss / 2**20, 2)
        return result


def main() -> int:
    """Returns 1 if a client missed a goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", action="append", choices=CLIENTS, help="renew this one's part; repeatable")
    parser.add_argument("--frames", type=int, default=100_000, help="of each client (default: 100000)")
    parser.add_argument("--out", type=Path, default=Path("bench-results/clients.json"), help="default: %(default)s")
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    compilers = [subprocess.run([name, "--version"], capture_output=True, text=True) for name in ("c++", "mono")]
    missed = []
    for name in chosen.client or CLIENTS:
        driver = Process(*build(name))
        small, pocket = play(driver, SMALL, 100, chosen.frames), play(driver, POCKET, 100, 0)
        driver.close()
        first, last = (small[key] for key in small if key.startswith("resident"))
        missed += [f"{name}: CPU"] * ("Python" not in name and pocket["cpu_ms_a_turn"] > GOAL_MS)
        missed += [f"{name}: growth"] * (last - first > GROWTH_MIB)
        clients = json.loads(chosen.out.read_text(encoding="utf-8"))["clients"] if chosen.out.is_file() else {}
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        clients[name] = {"date": at, "load": round(os.getloadavg()[0], 1), SMALL: small, POCKET: pocket}
        print(name, clients[name], flush=True)
        versions = [each.stdout.splitlines()[0] for each in compilers]
        facts = {key: value for key, value in machine_facts().items() if key != "command_line"}  # it is bench's
        record = {"kind": "clients", **facts, "versions": versions, "clients": clients}
        chosen.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {chosen.out}; goals missed: {', '.join(missed) or 'none'}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
