"""`kiosk watch`: checks the screen every two seconds, restarts what is frozen, and wipes what visitors left.

Connects the browser, the ladder, the machine and the staff page.
"""

from __future__ import annotations

import json
import logging
import random
import signal
import threading
import time
from datetime import datetime
from pathlib import Path
from types import FrameType
from urllib.error import HTTPError

from animegamer_rt.profiling.process_memory import release_free
from animegamer_rt.serving.server.supervisor import Supervisor

from .browser import Browser
from .config import KioskConfig
from .display import monitor_there
from .ladder import Action, Ladder, Picture, Seen
from .loopback import open_local
from .machine import BROWSER, Machine
from .operator_page import UNREACHABLE, OperatorPage, Report

LOOK_S, MINUTE_S, READY_TIMEOUT_S = 2.0, 60.0, 3.0
STEADY_ROUNDS = 3
"""Problems are reported after this many checks: a looping clip shows the same picture twice now and then."""
UNEVEN = 0.25
"""Checks vary randomly by up to this share, or they would fall in step with a clip of 17 frames at 8 fps."""
STATE_DIR = Path("/var/lib/animegamer/server")

log = logging.getLogger(__name__)


class Watcher:
    """The watch over one screen. `round` is one check."""

    def __init__(self, config: KioskConfig, browser: Browser, machine: Machine) -> None:
        self.config, self.browser, self.machine = config, browser, machine
        self.report = Report()
        self._ladder = Ladder(config.frozen_seconds)
        self._minute_at = 0.0
        self._seen, self._rounds_seen = (Picture.GONE, True, True), 0

    def round(self, now: float, clock: datetime) -> None:
        """Check once and act on it. now: seconds, monotonic; clock: local time."""
        wanted, monitor = self.config.screen_on(clock), monitor_there()
        picture, page = self.browser.look() if wanted else (Picture.GONE, None)
        self._note(picture, wanted, monitor)
        action = self._ladder.next(Seen(picture, wanted, monitor), now)
        if action is not Action.NOTHING:
            self.report.action, self.report.acted_at = action.value, clock.isoformat(" ", "seconds")
            self.machine.act(action)
        idle_s, limit_s = page.idle_s if page else None, self.config.idle_seconds
        if limit_s and idle_s is not None and idle_s >= limit_s and self.browser.reset():
            self.report.resets += 1
        if now >= self._minute_at:
            self._minute_at = now + MINUTE_S
            if not wanted and self.machine.states()[BROWSER] == "active":  # somebody started it
                self.machine.act(Action.SCREEN_OFF)
            release_free()

    def _note(self, picture: Picture, wanted: bool, monitor: bool) -> None:
        """Update the staff page and the log. Problems are only reported once they have lasted a little."""
        seen = (picture, wanted, monitor)
        self._rounds_seen = self._rounds_seen + 1 if seen == self._seen else 1
        self._seen, report = seen, self.report
        well = picture is Picture.MOVES and wanted and monitor
        if (self._rounds_seen < STEADY_ROUNDS and not well) or seen == (report.picture, report.wanted, report.monitor):
            return
        report.picture, report.wanted, report.monitor = seen
        hours = "in" if wanted else "out of"
        log.info("picture: %s, %s hours, monitor %s", picture.value, hours, "connected" if monitor else "missing")


def server_state(config: KioskConfig) -> str:
    """`ready`, `starting`, `degraded` or `draining`, from the gateway; `unreachable` if it does not answer."""
    try:
        try:
            answer = open_local(config.page_port, "/readyz", READY_TIMEOUT_S)
        except HTTPError as not_ready:
            with not_ready:
                return str(json.load(not_ready)["server"])
        with answer:
            return str(json.load(answer)["server"])
    except (OSError, ValueError, KeyError):
        return UNREACHABLE


def watch(config: KioskConfig) -> int:
    """Watch until SIGTERM or Ctrl-C; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    browser = Browser(config.devtools_port, config.page_url, config.waiting_url)
    watcher = Watcher(config, browser, Machine())
    page = OperatorPage(config, watcher.report, browser, watcher.machine, lambda: server_state(config), STATE_DIR)
    systemd = Supervisor()
    systemd.ready()
    while not stop.wait(LOOK_S * random.uniform(1 - UNEVEN, 1 + UNEVEN)):
        watcher.round(time.monotonic(), datetime.now())
        systemd.alive(time.monotonic())
    page.close()
    return 0
