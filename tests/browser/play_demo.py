"""Plays the page without a server (`make demo`) in a real Chromium: `python tests/browser/play_demo.py build/demo`."""

from __future__ import annotations

import argparse
import functools
import http.server
import sys
import threading
from pathlib import Path

from chromium import Chromium
from play_in_chromium import READY, await_turns, click


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def play(page: Chromium, url: str, shot: Path) -> None:
    """Three turns, a reload, back to the first, a branch, a GIF, a new game."""
    page.size(1440, 900)
    page.open(url)
    for turn in (1, 2, 3):
        click(page, "#chips button:nth-child(2)")
        click(page, "#draw")
        await_turns(page, turn)
    page.open(url)
    await_turns(page, 3)
    click(page, "#turns .line:first-child button")
    page.until(f"!document.querySelector('#branching').hidden && {READY}")
    click(page, "#chips button:nth-child(1)")
    click(page, "#draw")
    await_turns(page, 2)
    assert page.evaluate("document.querySelectorAll('#turns ol').length") == 2
    page.evaluate("URL.createObjectURL = (blob) => ((window.saved = blob), 'blob:' + location.origin + '/none'), 0")
    click(page, "#gif")
    page.until(f"window.saved && {READY}")
    page.screenshot(shot)
    assert page.evaluate("document.querySelector('#mp4').hidden")
    assert page.console == [], page.console
    click(page, "#fresh")
    page.until("document.querySelector('#film').hidden")
    print(f"three turns, a reload, a branch, a GIF; {shot}")


def main() -> int:
    """Serve the folder and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/demo.png"), help="screenshot")
    arguments = parser.parse_args()
    handler = functools.partial(QuietHandler, directory=str(arguments.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, Chromium() as page:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        play(page, f"http://127.0.0.1:{server.server_port}/", arguments.out)
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
