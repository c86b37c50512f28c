"""Two windows, sentences that are ready, a frozen browser and a dead gateway, in a real Chromium on simulated engines.

`make browser` runs it. It is no part of `make test`, because it needs Chromium.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from chromium import Chromium, Page
from play_in_chromium import SIZES, Serve, await_turns, check_access, choose, click, say

TURN_S, AHEAD = 2, 3
FROZEN = {4: "Zelki flies in the city by day.", 45: "Bixo bows in the snowfield by day."}
"""Seconds, and what is drawn meanwhile. After 40 s the gateway has given a silent browser up. What ends in "by day" is
never ready: the server plays no such sentence ahead."""
SLIPS = "[...document.querySelectorAll('#ready button')].map((one) => one.textContent).filter(Boolean)"
EMPTIED = f"""new MutationObserver(() => {SLIPS}.length || (window.emptied = true))
    .observe(document.querySelector('#ready'), {{ subtree: true, childList: true }}), 0"""
DRAWING = "document.body.classList.contains('drawing')"


def await_offers(page: Page) -> list[str]:
    """Wait until as many sentences are shown as the server plays ahead; returns them."""
    page.until(f"{SLIPS}.length === {AHEAD}")
    return list(page.evaluate(SLIPS))


def pick_what_is_ready(page: Page, url: str, shots: Path) -> None:
    """Two turns of sentences that are ready, by mouse and by keyboard; then they are of the last turn only."""
    page.size(*SIZES["desk"])
    page.open(url)
    sentences = await_offers(page)
    page.evaluate(EMPTIED)
    click(page, "#ready button")
    await_turns(page, 1)
    assert page.evaluate("window.emptied"), "what was ready is withdrawn when the game goes on"
    sentences = await_offers(page)
    page.evaluate("document.querySelector('#ready button').focus()")
    page.press("ArrowRight")
    page.press("Enter")
    await_turns(page, 2)
    said = page.evaluate("[...document.querySelectorAll('#turns .line span')].at(-1).textContent")
    assert said == sentences[1], (said, sentences)
    sentences = await_offers(page)
    choose(page, 1)
    assert page.evaluate(SLIPS) == [], "what is said now begins a branch, for which nothing is ready"
    choose(page, 2)
    assert page.evaluate(SLIPS) == sentences
    for name, (width, height) in SIZES.items():
        page.size(width, height, scale=2 if name == "phone" else 1, mobile=name == "phone")
        check_access(page)
        page.screenshot(shots / f"ready-{name}.png")
    page.open(url + "?kiosk")
    for language, word in (("zh", "已画好"), ("ja", "描けた文"), ("en", "ready")):
        page.evaluate(f"one = document.querySelector('#language'), one.value = '{language}', one.onchange()")
        assert page.evaluate("document.querySelector('#ready h2').textContent") == word
    await_offers(page)
    time.sleep(0.5)  # the slips come in
    page.screenshot(shots / "ready-kiosk.png")
    print("picked sentences that were ready")


def two_windows(one: Page, other: Page, url: str) -> None:
    """Both show the game, whichever window plays; who speaks into a running turn is told so and breaks nothing."""
    for window in (one, other):
        window.size(*SIZES["desk"])
        window.open(url)
        await_turns(window, 2)
    say(one, "Dovan walks in the room by day.")
    one.until(DRAWING)
    say(other, "Mirel bows in the forest by day.")
    other.until("document.querySelector('#status').textContent.includes('another window')")
    await_turns(one, 3)
    other.until("document.querySelectorAll('#turns .line').length === 3")
    choose(other, 3)
    say(other, "Bixo dances in the desert by day.")
    await_turns(other, 4)
    one.until("document.querySelectorAll('#turns .line').length === 4")
    assert one.console == other.console == [], (one.console, other.console)
    print("played one game in two windows")


def main() -> int:
    """Play; options of `serve` are for the other program of `make browser`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/browser"), help="folder of the screenshots")
    arguments, _ = parser.parse_known_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state, Chromium() as page:
        server = Serve(["--device", f"simulated:{TURN_S}", "--ahead", str(AHEAD)], state)
        server.start()
        try:
            server.await_page()
            pick_what_is_ready(page, server.url, arguments.out)
            two_windows(page, page.tab(), server.url)
            choose(page, 4)
            for turn, (seconds, sentence) in enumerate(FROZEN.items(), 5):
                say(page, sentence)
                page.until(DRAWING)
                with page.frozen():
                    time.sleep(seconds)
                await_turns(page, turn)
                print(f"went on after the browser was frozen in a turn for {seconds} s")
            say(page, "Tofi waves at the beach by day.")
            page.until(DRAWING)
            server.kill_gateway()
            page.until("document.body.classList.contains('off')")
            page.until("!document.body.classList.contains('off')")
            await_turns(page, 7)
            print("went on after the gateway was killed in a turn")
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
