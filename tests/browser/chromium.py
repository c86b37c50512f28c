"""Chromium without a window, driven by its DevTools protocol over a WebSocket: pages, scripts, keys, screenshots."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import connect

TIMEOUT_S = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome")


class Chromium:
    """One browser with a profile of its own and one page. `console`: errors that the page's console showed."""

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
        self._process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = self._await_port(profile / "DevToolsActivePort")
        with urlopen(f"http://127.0.0.1:{port}/json") as answer:
            page = next(one for one in json.load(answer) if one["type"] == "page")
        self._socket = connect(page["webSocketDebuggerUrl"], max_size=None)
        self._count = 0
        self.console: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(20)
        self._profile.cleanup()

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
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
            )

    def screenshot(self, path: Path) -> None:
        """What the window shows, as PNG or JPEG."""
        kind = {"format": "jpeg", "quality": 88} if path.suffix == ".jpg" else {"format": "png"}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **kind)["data"]))

    def _await_port(self, path: Path) -> int:
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            if path.is_file() and (lines := path.read_text().splitlines()):
                return int(lines[0])
            assert self._process.poll() is None, "Chromium ended at once"
            time.sleep(0.05)
        raise AssertionError("Chromium did not start")
