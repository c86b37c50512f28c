"""The browser on the screen, through its DevTools port: what it really draws, and what visitors left in it.

Each call opens its own connection with a time limit, so a hanging browser blocks nothing for long. The page's elements
are found by their ids.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import av
import numpy as np

from .ladder import Picture
from .loopback import open_local

TIMEOUT_S = 5.0
WIDTH = 64
"""Width of the compared pictures, in pixels."""
FLAT = 8
"""A picture whose grey levels (of 255) all lie within this range is black, or otherwise empty."""
HISTORY_TRIES = 5

_STATE = """(() => {
  const now = performance.now();
  if (!window.animegamerTouched) {
    window.animegamerTouched = { at: null };
    const touch = () => { window.animegamerTouched.at = performance.now(); };
    const options = { capture: true, passive: true };
    for (const kind of ["pointerdown", "keydown", "wheel"]) addEventListener(kind, touch, options);
  }
  const touched = window.animegamerTouched;
  const off = document.body?.classList.contains("off");
  const drawing = !off && document.getElementById("cancel")?.hidden === false;
  const played = document.querySelector("#turns li");
  if (drawing || (touched.at === null && played)) touched.at = now;
  const box = document.querySelector("canvas")?.getBoundingClientRect();
  return { url: location.href, box: box && [box.x, box.y, box.width, box.height],
           said: document.getElementById("status")?.textContent ?? "",
           idle: touched.at === null ? null : (now - touched.at) / 1000 };
})()"""
_END_GAME = """new Promise((done) => {
  const fresh = document.getElementById("fresh");
  if (!fresh || fresh.getAttribute("aria-disabled") === "true") return done(false);
  fresh.click();
  setTimeout(() => done(true), 1000);
})"""


log = logging.getLogger(__name__)


class BrowserError(Exception):
    """The browser does not respond, or shows no page."""


@dataclass(frozen=True, slots=True)
class Page:
    """What the browser shows. idle_s: seconds since a visitor touched the page; None: untouched and empty."""

    url: str
    idle_s: float | None
    pixels: bytes
    """Grey levels of the picture, scaled down. Empty if the page has no picture."""
    said: str = ""
    """The page's status line, which counts a turn's steps while the picture waits for it."""


class Browser:
    """The browser with a DevTools port on this machine. page, waiting: the addresses that it may show."""

    def __init__(self, port: int, page: str, waiting: str) -> None:
        self._port, self._page, self._waiting = port, page, waiting
        self._before = (b"", "")

    def look(self) -> tuple[Picture, Page | None]:
        """How the picture changed since the last call. A page that is not ours is replaced by the waiting one."""
        try:
            page = self._see()
        except BrowserError:
            return Picture.GONE, None
        if not self._is_ours(page.url):
            self.show(self._waiting)
            return Picture.GONE, page
        shown = (page.pixels, page.said)
        before, self._before = self._before, shown
        if not page.pixels:
            return Picture.GONE, page
        levels = np.frombuffer(page.pixels, np.uint8)
        if int(levels.max()) - int(levels.min()) < FLAT:
            return Picture.BLACK, page
        return (Picture.FROZEN if shown == before else Picture.MOVES), page

    def show(self, url: str) -> bool:
        """Go to an address; returns whether the browser did."""
        try:
            with self._connection() as ask:
                ask("Page.navigate", url=url)
        except BrowserError:
            return False
        return True

    def attract(self) -> bool:
        """Show the attract animation until somebody touches it."""
        return self.show(self._waiting + "?hold")

    def reset(self) -> bool:
        """End the visitor's game, wipe the browser's storage and history, and start again with the empty page."""
        origin = self._page.rsplit("/", 1)[0]
        try:
            with self._connection() as ask:
                _evaluate(ask, _END_GAME)
                ask("Page.navigate", url=self._waiting + "?hold")  # another origin, which stores nothing back
                ask("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
                ask("Page.navigate", url=self._page)
        except BrowserError as error:
            log.warning("the page could not be reset: %s", error)
            return False
        self._forget_history()
        return True

    def _forget_history(self) -> None:
        """Clear the history, so that no gesture leads back. Retried, as a page being replaced refuses."""
        for _ in range(HISTORY_TRIES):
            time.sleep(0.3)
            try:
                with self._connection() as ask:
                    ask("Page.resetNavigationHistory")
                    return
            except BrowserError:
                continue

    def _is_ours(self, url: str) -> bool:
        return url.startswith((self._page.partition("?")[0], self._waiting))

    def _see(self) -> Page:
        with self._connection() as ask:
            state = _evaluate(ask, _STATE)
            box, pixels = state.get("box"), b""
            if box and box[2] >= 1 and box[3] >= 1:
                clip = dict(zip(("x", "y", "width", "height"), box, strict=True)) | {"scale": WIDTH / box[2]}
                shot = ask("Page.captureScreenshot", format="png", clip=clip)
                pixels = _grey(base64.b64decode(shot["data"]))
            return Page(state["url"], state["idle"], pixels, state["said"])

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """A function that sends the page one DevTools command. Raises BrowserError for any failure."""
        from websockets.sync.client import connect

        try:
            with open_local(self._port, "/json", TIMEOUT_S) as answer:
                pages = [one for one in json.load(answer) if one["type"] == "page"]
            if not pages:
                raise BrowserError("no page")
            ours = next((one for one in pages if self._is_ours(one["url"])), pages[0])
            for other in pages:
                if other is not ours:  # a visitor with a keyboard opened a tab or a window
                    open_local(self._port, f"/json/close/{other['id']}", TIMEOUT_S).close()
            address = ours["webSocketDebuggerUrl"]
            with connect(address, max_size=None, open_timeout=TIMEOUT_S, close_timeout=1, proxy=None) as socket:
                count = 0

                def ask(method: str, **parameters: Any) -> dict[str, Any]:
                    nonlocal count
                    count += 1
                    socket.send(json.dumps({"id": count, "method": method, "params": parameters}))
                    end = time.monotonic() + TIMEOUT_S
                    while True:
                        message = json.loads(socket.recv(timeout=max(0.0, end - time.monotonic())))
                        if message.get("id") == count:
                            if "error" in message:
                                raise BrowserError(f"{method}: {message['error'].get('message')}")
                            return dict(message["result"])

                yield ask
        except BrowserError:
            raise
        except Exception as error:
            raise BrowserError(str(error)) from error


def _evaluate(ask: Any, script: str) -> Any:
    answer = ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
    if "exceptionDetails" in answer:
        raise BrowserError(str(answer["exceptionDetails"].get("text")))
    return answer["result"].get("value")


def _grey(png: bytes) -> bytes:
    """Grey levels of a picture. Uses the decoder directly: `av.open` leaks 300 bytes per picture, 13 MiB a day."""
    decoder = av.CodecContext.create("png", "r")
    [picture] = [*decoder.decode(av.Packet(png)), *decoder.decode(None)]
    return bytes(picture.to_ndarray(format="gray").tobytes())
