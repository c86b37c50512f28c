"""Plays the page in a real Chromium: by chips and text, over a reload and a killed server; keeps screenshots.

`make browser` runs it. It is no part of `make test`, because it needs Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chromium import Chromium, Page
from client.conformance.ports import ReservedPorts

SIZES = {"desk": (1440, 900), "phone": (390, 844), "wall": (1080, 1920)}
CHIPS = {
    "zh": ("Tofi", "wave", "gently", "meadow", "day"),
    "ja": ("Zelki", "fly", "cloudland", "night"),
    "en": ("Dovan", "dance", "city", "party"),
}
"""Language of the page -> words that are chosen in it."""
HEADINGS = {"zh": "谁", "ja": "だれが", "en": "who"}
EXAMPLE = "#chips .examples button"
TEXTS = ("the fox jumps on the beach in a raincoat", "Now quickly.", "Bixo and Mirel walk in the forest.")
READY = "document.querySelector('#mp4').ariaDisabled === 'false'"
HOSTILE = "<img src=x onerror=document.title='hit'> waves in the room"


class Serve:
    """`animegamer-rt serve --web` on ports that stay the same when it is started again."""

    def __init__(self, options: list[str], state: str) -> None:
        self._ports = ReservedPorts()
        web = self._ports.port + 2
        self.url = f"http://127.0.0.1:{web}/"
        self._command = [sys.executable, "-m", "animegamer_rt", "serve", *self._ports.option, "--web", str(web)]
        settings = Path(state) / "serve.toml"
        settings.write_text("metrics_port = 0\n", encoding="utf-8")
        self._command += ["--config", str(settings), "--state-dir", state, *options]

    def start(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def kill_gateway(self) -> None:
        """End the gateway alone."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        [gateway] = [pid for pid in children if b"serving.gateway" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        os.kill(int(gateway), signal.SIGKILL)

    def await_page(self) -> None:
        """Wait until the page can be asked for."""
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(self.url.rsplit(":", 1)[1].rstrip("/")))) == 0:
                    return
            time.sleep(0.1)

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(60)
        self._ports.close()


def await_turns(page: Page, count: int) -> None:
    """Wait until so many turns are done, with every picture of the last one on the screen's chart."""
    page.until(f"document.querySelectorAll('#turns .line').length === {count}")
    page.until("document.querySelectorAll('#chart .here').length === 17")
    page.until(READY)


def click(page: Page, selector: str) -> None:
    """Click an element, which must be there and enabled."""
    found = f"document.querySelector({json.dumps(selector)})"
    page.until(f"{found} && {found}.ariaDisabled !== 'true'")
    page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")


def say(page: Page, text: str) -> None:
    """Type a sentence and press Enter, again if the page just then noticed that its connection was lost."""
    page.until(READY)
    page.evaluate("document.querySelector('#text').focus()")
    page.type(text)
    while page.evaluate("document.querySelector('#text').value"):
        page.until(READY)
        page.press("Enter")


def choose_language(page: Page, language: str) -> None:
    """Choose it as a visitor does."""
    set_language = f"one.value = '{language}'; one.dispatchEvent(new Event('change'))"
    page.evaluate(f"(one => {{ {set_language} }})(document.querySelector('#language'))")


def say_next(page: Page, text: str) -> None:
    """The same where there may be no clip yet."""
    page.until("document.querySelector('#photo').ariaDisabled === 'false'")
    page.evaluate("document.querySelector('#text').focus()")
    page.type(text)


def choose(page: Page, turn: int) -> None:
    """Put an earlier turn of the game on the table, and wait for the whole clip."""
    page.evaluate(f"document.querySelectorAll('#turns .line button')[{turn - 1}].click()")
    page.until(f"document.querySelectorAll('#turns .line button')[{turn - 1}].ariaCurrent === 'true'")
    page.until(f"!document.querySelector('#mp4').hidden && {READY}")


def check_access(page: Page) -> None:
    """No control without a name."""
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    controls = {"button", "textbox", "combobox", "image", "img", "progressbar", "link"}
    nameless = [node for node in nodes if node["role"]["value"] in controls and not node["ignored"]]
    assert not [node for node in nameless if not node["name"]["value"]], "a control has no name"


def play(page: Page, server: Serve, shots: Path) -> None:
    """The whole visit; fails by an assertion."""
    page.size(*SIZES["desk"])
    page.open(server.url)
    page.until("document.querySelectorAll('#chips button').length > 3")
    words = not page.evaluate(f"document.querySelector('{EXAMPLE}') !== null")
    for number, (language, chips) in enumerate(CHIPS.items(), 1):
        choose_language(page, language)
        assert not words or page.evaluate("document.querySelector('#chips h2').textContent") == HEADINGS[language]
        chosen = [f'#chips [data-word="{word}"]' for word in chips] if words else [f"{EXAMPLE}:nth-child({number})"]
        for selector in chosen:
            click(page, selector)
        sentence = page.evaluate("document.querySelector('#sentence').textContent")
        assert sentence.endswith("."), f"the chips compose no sentence: {sentence}"
        click(page, "#draw")
        await_turns(page, number)
    for number, text in enumerate(TEXTS, 4):
        say(page, text)
        await_turns(page, number)
    print("three turns played by words, one in each language, and three by text")

    session = page.evaluate("localStorage['animegamer.token']")
    page.open(server.url)
    await_turns(page, 6)
    say(page, HOSTILE)
    page.until("localStorage['animegamer.pending'] || document.querySelectorAll('#turns .line').length === 7")
    page.open(server.url)
    await_turns(page, 7)
    assert page.evaluate("document.title") == "animegamer-rt", "a visitor's words ran as HTML"
    print("reloaded, also in a turn")

    assert page.console == [], page.console
    say(page, "Dovan and Bixo run in the room.")
    page.until("document.body.classList.contains('drawing')")
    server.kill()
    page.until("document.body.classList.contains('off')")
    server.start()
    page.until("!document.body.classList.contains('off')")
    await_turns(page, 8)
    assert page.evaluate("localStorage['animegamer.token']") == session
    print("went on after the server was killed in a turn")

    choose(page, 2)
    click(page, "#rewind")
    await_turns(page, 2)
    say(page, "Bixo dances wildly in the desert.")
    await_turns(page, 3)
    print("rewound")

    choose(page, 1)
    page.until("!document.querySelector('#branching').hidden")
    say(page, "Mirel bows in the forest.")
    await_turns(page, 2)
    page.open(server.url)
    await_turns(page, 2)
    strips = "[...document.querySelectorAll('#turns ol')].map((one) => one.childElementCount).join()"
    assert page.evaluate(strips) == "3,1", "a branch lies under the film, also after a reload"
    click(page, "#turns ol:first-child li:nth-child(3) button")
    await_turns(page, 3)
    print("branched, and went back to the first film")

    page.evaluate("URL.createObjectURL = (blob) => ((window.saved = blob), 'blob:' + location.origin + '/none'), 0")
    click(page, "#mp4")
    page.until(f"window.saved && {READY}")
    saved = page.evaluate("window.saved.text()")
    assert "ftyp" in saved[:12] and 0 < saved.index("moov") < saved.index("mdat") and "moof" not in saved, (
        "a whole file"
    )
    page.console.clear()
    print("saved an mp4")

    drop = """(async () => {
        const files = new DataTransfer();
        const picture = await new Promise((take) => document.querySelector('#picture').toBlob(take));
        files.items.add(new File([picture], 'start.png'));
        dispatchEvent(new DragEvent('drop', { dataTransfer: files }));
    })()"""
    if page.evaluate("document.querySelector('#photo').hidden === false"):
        page.call("Page.setInterceptFileChooserDialog", enabled=True)
        page.call("Runtime.evaluate", expression="document.querySelector('#photo').click()", userGesture=True)
        page.evaluate(
            "['cancel', 'change'].forEach((kind) => document.querySelector('#file').dispatchEvent(new Event(kind)))"
        )
        assert page.evaluate(READY), "a camera that is refused changes nothing"
        click(page, "#turns ol:first-child li:nth-child(3) button")
        await_turns(page, 3)
        kept = page.evaluate("localStorage['animegamer.token']")
        page.evaluate(drop)
        page.until("document.querySelector('#sure').open")
        page.evaluate("document.querySelector('#sure button').click()")
        await_turns(page, 3)
        assert page.evaluate("localStorage['animegamer.token']") == kept, "a film ends only when its visitor says so"
        page.evaluate(drop)
        click(page, "#sure [value=yes]")
        page.until(f"localStorage['animegamer.token'] !== '{kept}'")
        page.until("document.querySelectorAll('#turns .line').length === 0")
        page.screenshot(shots / "picture.png")
        for number, text in enumerate(("He waves.", "Now at night.", "Zelki dances in the room."), 1):
            say_next(page, text)
            await_turns(page, number)
        print("started from a picture that was dropped")

    for name, (width, height) in SIZES.items():
        page.size(width, height, scale=2 if name == "phone" else 1, mobile=name == "phone")
        time.sleep(0.5)
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{name}: the page is {overflow} pixels wider than the window"
        check_access(page)
        page.screenshot(shots / f"{name}.png")
    page.open(server.url + "?kiosk")
    await_turns(page, 3)
    assert page.evaluate("getComputedStyle(document.querySelector('#free')).display") == "none"
    page.screenshot(shots / "kiosk.png")
    print(f"screenshots in {shots}")
    let_it_go_on(page, server)


def let_it_go_on(page: Page, server: Serve) -> None:
    """Clips follow each other, also after a refusal; the film is saved, and its link plays the story again."""
    page.size(*SIZES["desk"])
    page.open(server.url)
    await_turns(page, 3)
    click(page, "#fresh")
    click(page, "#sure [value=yes]")
    page.until("document.querySelectorAll('#turns .line').length === 0")
    click(page, "#live")
    page.until("document.querySelectorAll('#turns .line').length >= 2")
    page.evaluate("document.querySelector('#text').focus()")
    page.type("blorg fnarp")
    page.until("document.querySelector('#text').value === 'blorg fnarp'")
    page.until("document.querySelectorAll('#turns .line').length >= 4")
    page.evaluate("document.querySelector('#text').select()")
    page.type("Zelki flies in the city at night.")
    page.until(
        "[...document.querySelectorAll('#turns .line span')].some((one) => one.textContent.startsWith('Zelki f'))"
    )
    click(page, "#live")
    page.until(READY)
    told = "[...document.querySelectorAll('#turns .line span')].map((one) => one.textContent).join()"
    story = page.evaluate(told)
    page.evaluate("URL.createObjectURL = (blob) => ((window.saved = blob), 'blob:' + location.origin + '/none'), 0")
    click(page, "#reel")
    page.until("Boolean(window.saved)")
    assert page.evaluate("window.saved.size") > 100_000
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.link = text; }, 0")
    click(page, "#link")
    link = page.until("window.link")
    page.open("about:blank")
    page.open(link)
    page.until("document.querySelector('#sure').open")
    click(page, "#sure [value=yes]")
    page.until(f"{told} === {json.dumps(story)} && document.querySelector('#live').ariaPressed === 'false'")
    print("let it go on, saved the film, and played its link")


def main() -> int:
    """Play; what is not understood is passed on to `serve`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/browser"), help="folder of the screenshots")
    arguments, options = parser.parse_known_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state, Chromium() as page:
        server = Serve(options, state)
        server.start()
        try:
            server.await_page()
            play(page, server, arguments.out)
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
