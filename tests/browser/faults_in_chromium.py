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
ABLE = "((one) => document.querySelector(one)?.ariaDisabled === 'false')"
TYPED = "document.querySelector('#text').value.trim()"
TABLE = """[...['scene', 'understood', 'notice', 'values'].map((id) => document.getElementById(id).textContent),
    document.querySelectorAll('#chart .here').length, document.querySelector('#mp4').hidden].join()"""
DRAWING = "document.body.classList.contains('drawing')"


def await_offers(page: Page) -> list[str]:
    """Wait until as many sentences are shown as the server plays ahead; returns them."""
    page.until(f"{SLIPS}.length === {AHEAD}")
    return list(page.evaluate(SLIPS))


def press_before_the_script(page: Page, url: str) -> None:
    """A press while the page's script is still on its way does nothing: above all it does not load the page again."""
    page.call("Network.enable")
    page.call("Network.setBlockedURLs", urls=["*/page.js"])
    page.open(url + "?kiosk")
    page.evaluate("document.querySelector('#sheet').requestSubmit()")
    time.sleep(0.5)
    assert page.evaluate("location.search") == "?kiosk", "a kiosk's page stays one"
    page.call("Network.setBlockedURLs", urls=[])
    print("pressed before the script ran")


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


def what_is_refused(page: Page, url: str) -> None:
    """The first press draws. A turn that is stopped or refused changes nothing and gives its sentence back."""
    page.size(*SIZES["desk"])
    page.open(url)
    page.evaluate("document.querySelector('#draw').focus()")
    page.until(f"{ABLE}('#draw')")
    page.press("Enter")
    await_turns(page, 1)
    table = page.evaluate(TABLE)
    for text, end in (("Tofi waves by day. " * 30, "500"), ("Dovan walks in the room by day.", "Stopped")):
        page.evaluate("document.querySelector('#text').focus()")
        page.type(text)
        if end == "Stopped":
            page.until("document.activeElement === document.body || !document.querySelector('#cancel').hidden")
            page.evaluate("document.querySelector('#cancel').focus()")
            page.until(DRAWING)
            page.press("Enter")
        page.until(f"document.querySelector('#status').textContent.includes('{end}')")
        assert page.evaluate(TYPED) == text.strip() and page.evaluate(TABLE) == table, page.evaluate(TABLE)
        assert page.evaluate("document.activeElement !== document.body"), "the keyboard's place is lost"
        page.evaluate("document.querySelector('#text').value = ''")
    click(page, "#fresh")
    click(page, "#sure button:not([value])")
    assert page.evaluate(TABLE) == table, "a film ends only when its visitor says so"
    for damaged in ("'{bad'", "'null'", """'{"strips":[{}]}'"""):
        page.evaluate(f"['film', 'pending'].forEach((key) => (localStorage['animegamer.' + key] = {damaged}))")
        page.open(url)
        await_turns(page, 1)
    script = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('', 'SecurityError'); } })"
    blocked = page.call("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]
    page.open(url)
    page.until(f"{ABLE}('#draw')")
    for turn in (1, 2):
        click(page, "#draw")
        await_turns(page, turn)
    page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=blocked)
    page.open(url)
    await_turns(page, 1)
    click(page, "#fresh")
    click(page, "#sure [value=yes]")
    page.until("document.querySelectorAll('#turns .line').length === 0")
    page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.until("document.body.classList.contains('off')", timeout_s=3)
    page.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    page.until("!document.body.classList.contains('off')")
    page.console.clear()  # of the requests that were refused
    print("lost nothing to a refusal, a stop, a damaged or blocked store")


def two_windows(one: Page, other: Page, url: str) -> None:
    """Both show the game, whichever window plays; who speaks into a running turn is told so and breaks nothing."""
    for window in (one, other):
        window.size(*SIZES["desk"])
        window.open(url)
        await_turns(window, 2)
    say(one, "Dovan walks in the room by day.")
    one.until(DRAWING)
    other.evaluate("document.querySelector('#text').focus()")
    other.type("Mirel bows in the forest by day.")
    other.until("document.querySelector('#status').textContent.includes('another window')")
    await_turns(one, 3)
    other.until("document.querySelectorAll('#turns .line').length === 3")
    other.until("!document.querySelector('#status').textContent.includes('another window')")
    assert other.evaluate(TYPED) == "Mirel bows in the forest by day.", "what was typed is not lost"
    other.evaluate("document.querySelector('#text').value = ''")
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
            press_before_the_script(page, server.url)
            what_is_refused(page, server.url)
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
