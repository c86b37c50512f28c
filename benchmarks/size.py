"""Measures the size of the project: lines by folder, words of prose, and the files that one turn enters.

    python benchmarks/size.py               lines and words of the files that git tracks
    python benchmarks/size.py --turns       also the runtime's files that a turn enters, played with the pocket bundle

A file counts as entered if one of its functions is called during a second turn, in any thread: first through
`animegamer_rt.open`, then in the process of `serve`, with the Python client.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RUNTIME = ROOT / "runtime" / "animegamer_rt"
FOLDERS = ("runtime", "export", "kernels", "client", "benchmarks", "tests")
CODE = re.compile(r"\.(py|cs|cpp|cc|c|h|hpp|cu|cuh|js|css|html|gd|sh)$")


class FilesEntered:
    """The runtime's files whose functions are called inside the block, by any thread started there."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __enter__(self) -> FilesEntered:
        threading.setprofile(self._call)
        sys.setprofile(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _call(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self.files.add(frame.f_code.co_filename)

    def of_runtime(self) -> list[str]:
        """Paths relative to runtime/animegamer_rt, sorted."""
        paths = (Path(name) for name in self.files)
        return sorted(str(path.relative_to(RUNTIME)) for path in paths if path.is_relative_to(RUNTIME))


def tracked(pattern: re.Pattern[str], *folders: str) -> list[Path]:
    """The files in git's index whose names match."""
    command = ["git", "ls-files", "-z", "--", *folders]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return [ROOT / name for name in names if pattern.search(name) and (ROOT / name).is_file()]


def counts() -> dict[str, int]:
    """Lines of code by folder, and words of Markdown."""
    lines: Counter[str] = Counter()
    for path in tracked(CODE, *FOLDERS):
        lines[path.relative_to(ROOT).parts[0]] += path.read_bytes().count(b"\n")
    pages = tracked(re.compile(r"\.md$"))
    words = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").split()) for path in pages}
    return {
        **{f"{folder}_lines": lines[folder] for folder in FOLDERS},
        "code_lines": sum(lines.values()),
        "readme_words": words[Path("README.md")],
        "markdown_words": sum(words.values()),
    }


def api_turn() -> list[str]:
    """The files entered by a second turn through `animegamer_rt.open`."""
    import animegamer_rt

    with animegamer_rt.open("pocket", plan="fast") as player, FilesEntered() as entered:
        game = player.start(seed=7)
        game.turn("Tofi waves in the meadow.")
        entered.files.clear()
        game.turn("Tofi runs.")
    return entered.of_runtime()


def served_turn() -> list[str]:
    """The files entered by a second turn in the server's process."""
    from animegamer_client import Client

    with tempfile.TemporaryDirectory() as state:
        report, settings = Path(state) / "files.json", Path(state) / "serve.toml"
        settings.write_text("metrics_port = 0\n", encoding="utf-8")  # whose page has a thread of its own
        arguments = ["serve", "--state-dir", state, "--port", "0", "--config", settings]
        command = [sys.executable, __file__, "--profile", str(report), *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert server.stdout is not None
            ready = next(line for line in server.stdout if line.startswith("ready "))
            with Client(ready.split()[1], timeout_s=60) as client:
                game = client.open(seed=7)
                list(game.turn("Tofi waves in the meadow."))
                server.send_signal(signal.SIGUSR1)
                list(game.turn("Tofi runs."))
                server.send_signal(signal.SIGUSR2)
                client.status()
            server.send_signal(signal.SIGTERM)
            for _ in server.stdout:
                pass
        files: list[str] = json.loads(report.read_text())
        return files


def serve_profiled(report: Path, arguments: list[str]) -> int:
    """Runs a command; SIGUSR1 clears the list of files, SIGUSR2 writes it."""
    from animegamer_rt.cli import main as command

    with FilesEntered() as entered:
        signal.signal(signal.SIGUSR1, lambda *_: entered.files.clear())
        signal.signal(signal.SIGUSR2, lambda *_: report.write_text(json.dumps(entered.of_runtime())) and None)
        return command(arguments)


def main() -> int:
    """Prints the counts, one JSON line last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", action="store_true", help="also count the files that a turn enters")
    figures: dict[str, Any] = counts()
    if parser.parse_args().turns:
        for name, files in (("api_turn", api_turn()), ("served_turn", served_turn())):
            print(f"{name}: {', '.join(files)}")
            figures[f"{name}_files"] = len(files)
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--profile"]:
        sys.exit(serve_profiled(Path(sys.argv[2]), sys.argv[3:]))
    sys.exit(main())
