"""Chromium without a window, driven by its DevTools protocol over a WebSocket: pages, scripts, keys, screenshots."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import Request, urlopen

from websockets.sync.client import connect

TIMEOUT_S = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {"Enter": (13, "\r"), "ArrowRight": (39, "")}
"""Key -> its code on Windows, by which Chromium knows it, and what it types."""


class Page:
    """One tab. `console`: errors that its console showed, and requests that would leave the machine."""

    def __init__(self, address: str) -> None:
        self._socket = connect(address, max_size=None, ping_interval=None)  # a browser that is frozen answers none
        self._count = 0
        self.console: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol and its result."""
        self._count += 1
        self._socket.send(json.dumps({"id": self._count, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=TIMEOUT_S))
            if message.get("id") == self._count:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.console.append(str(parameters["exceptionDetails"].get("exception", parameters["exceptionDetails"])))
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.console.append(parameters["entry"]["text"])
        elif message.get("method") == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            if not url.startswith(("http://127.0.0.1:", "data:", "blob:")):
                self.console.append(f"asked for {url}")

    def size(self, width: int, height: int, *, scale: float = 1, mobile: bool = False) -> None:
        """The size of the window, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def open(self, url: str) -> None:
        """Go to a page, or load it again."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (script, answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, script: str, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait until an expression is true; returns its value."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            try:
                if value := self.evaluate(script):
                    return value
            except AssertionError:
                pass  # between two pages there is no document
            time.sleep(0.05)
        raise AssertionError(f"never true: {script}\n{self.evaluate('document.body.innerText')}\n{self.console}")

    def type(self, text: str) -> None:
        """Text into the element that has the focus, then Enter."""
        self.call("Input.insertText", text=text)
        self.press("Enter")

    def press(self, key: str) -> None:
        """Press a key and let it go: one of KEYS."""
        code, text = KEYS[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG or JPEG."""
        kind = {"format": "jpeg", "quality": 88} if path.suffix == ".jpg" else {"format": "png"}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **kind)["data"]))


class Chromium(Page):
    """One browser with a profile of its own and its first page."""

    def __init__(self) -> None:
        program = next((path for name in NAMES if (path := shutil.which(name))), None)
        if program is None:
            sys.exit("error: there is no Chromium; on Debian run: apt-get install chromium")
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        profile = Path(self._profile.name)
        options = ["--headless=new", "--no-sandbox", "--remote-debugging-port=0", "--disable-gpu", "--hide-scrollbars"]
        options += [
            f"--user-data-dir={profile}",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--lang=en-US",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            [program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._port = self._await_port(profile / "DevToolsActivePort")
        with urlopen(f"http://127.0.0.1:{self._port}/json") as answer:
            page = next(one for one in json.load(answer) if one["type"] == "page")
        super().__init__(page["webSocketDebuggerUrl"])

    def tab(self) -> Page:
        """A second page beside the first, of the same profile."""
        with urlopen(Request(f"http://127.0.0.1:{self._port}/json/new", method="PUT")) as answer:
            return Page(json.load(answer)["webSocketDebuggerUrl"])

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within, no process of the browser runs."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(20)
        self._profile.cleanup()

    def _await_port(self, path: Path) -> int:
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            if path.is_file() and (lines := path.read_text().splitlines()):
                return int(lines[0])
            assert self._process.poll() is None, "Chromium ended at once"
            time.sleep(0.05)
        raise AssertionError("Chromium did not start")
