"""What the watch does with what it sees, step by step up its ladder, and the page for staff."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from animegamer_kiosk.browser import Browser, Page
from animegamer_kiosk.config import KioskConfig
from animegamer_kiosk.ladder import Action, Ladder, Picture, Seen
from animegamer_kiosk.loopback import open_local
from animegamer_kiosk.machine import Machine
from animegamer_kiosk.operator_page import OperatorPage, Report
from animegamer_kiosk.watcher import Watcher
from animegamer_rt import __version__

PAGE, WAITING = "http://127.0.0.1:8080/?kiosk", "http://127.0.0.1:8090/waiting"


class FakeBrowser:
    """Shows what `picture` and `idle_s` say; `done` lists what it was told to do."""

    def __init__(self) -> None:
        self.picture = Picture.MOVES
        self.idle_s: float | None = None
        self.done: list[str] = []

    def look(self) -> tuple[Picture, Page | None]:
        return self.picture, Page(PAGE, self.idle_s, b"")

    def reset(self) -> bool:
        self.done.append("reset")
        self.idle_s = None
        return True

    def attract(self) -> bool:
        self.done.append("attract")
        return True


class FakeCommands:
    """Stands in for systemctl and journalctl. `done` lists the commands that change something."""

    def __init__(self, fail: bool = False) -> None:
        self.done: list[str] = []
        self.fail = fail
        self.stopped: set[str] = set()

    def __call__(self, command: Sequence[str]) -> str:
        line = " ".join(command)
        if self.fail:
            raise subprocess.CalledProcessError(1, line)
        if "--property=ActiveState" in line:
            return "inactive\n" if command[-1] in self.stopped else "active\n"
        if "--property=MainPID" in line:
            return "0\n"
        if command[0] == "journalctl":
            return "2026-11-25T12:00:00 host <b>worker died</b>\n"
        self.done.append(line)
        (self.stopped.add if "stop" in command else self.stopped.discard)(command[-1])
        return ""


NOON = datetime(2026, 11, 25, 12)


def _rounds(watcher: Watcher, seconds: int, begin: datetime = NOON) -> None:
    for second in range(0, seconds, 2):
        watcher.round(float(second), begin + timedelta(seconds=second))


def test_a_frozen_picture_restarts_the_browser_and_then_more_although_commands_fail() -> None:
    browser, commands = FakeBrowser(), FakeCommands()
    browser.picture = Picture.FROZEN
    _rounds(Watcher(KioskConfig(), cast(Browser, browser), Machine(commands)), 120)
    restarts = [line.split()[-1] for line in commands.done if "restart" in line]
    assert restarts == ["animegamer-browser.service", "animegamer-server.service"]  # a gateway of no server is gone
    failing = FakeCommands(fail=True)
    _rounds(Watcher(KioskConfig(), cast(Browser, browser), Machine(failing)), 120)


def test_the_screen_goes_off_and_on_by_its_hours_and_a_dark_one_is_left_alone() -> None:
    browser, commands = FakeBrowser(), FakeCommands()
    hours = KioskConfig(hours={"daily": "09:00-12:01"})
    watcher = Watcher(hours, cast(Browser, browser), Machine(commands))
    _rounds(watcher, 3600)
    off = "systemctl --no-block stop animegamer-browser.service"
    assert commands.done == ["systemctl --no-block start animegamer-browser.service", off]
    commands("systemctl restart animegamer-browser.service".split())  # by the page for staff, at night
    _rounds(watcher, 7200, NOON - timedelta(hours=12))
    assert commands.done[-1] == off and len(commands.done) == 4


def test_a_monitor_that_is_off_and_a_still_now_and_then_leave_two_lines_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    there, browser, commands = [True], FakeBrowser(), FakeCommands()
    monkeypatch.setattr("animegamer_kiosk.watcher.monitor_there", lambda: there[0])
    watcher = Watcher(KioskConfig(), cast(Browser, browser), Machine(commands))
    for second in range(2, 4000, 2):
        browser.picture = Picture.BLACK if second > 2000 else Picture.FROZEN if second % 20 == 0 else Picture.MOVES
        there[0] = second <= 2000
        watcher.round(float(second), NOON)
    assert not any("restart" in line for line in commands.done)
    seen = [record.getMessage() for record in caplog.records if record.getMessage().startswith("picture")]
    assert seen == ["picture: moves, in hours, monitor connected", "picture: black, in hours, monitor missing"]


@contextmanager
def _page(tmp_path: Path, key: bool = False, server: str = "ready") -> Iterator[tuple[str, FakeBrowser, FakeCommands]]:
    browser, commands = FakeBrowser(), FakeCommands()
    path = tmp_path / "key"
    path.write_text("a-long-enough-key\n")
    config = KioskConfig(operator_port=0, operator_key=path if key else None)
    parts = config, Report(), cast(Browser, browser), Machine(commands)
    page = OperatorPage(*parts, lambda: server, tmp_path)
    try:
        yield f"http://127.0.0.1:{page.port}", browser, commands
    finally:
        page.close()


def _get(url: str, **headers: str) -> bytes:
    with urlopen(Request(url, headers=headers), timeout=10) as answer:
        return cast(bytes, answer.read())


def _press(url: str, button: str) -> bool:
    request = Request(f"{url}/do/{button}", method="POST", headers={"X-Animegamer": "1"})
    with urlopen(request, timeout=10) as answer:
        return cast(bool, json.load(answer)["done"])


def _refused(url: str, method: str = "GET", **headers: str) -> int:
    with pytest.raises(HTTPError) as error:
        urlopen(Request(url, method=method, headers=headers), timeout=10)
    error.value.close()
    return error.value.code


def test_staff_see_the_state_and_restart_parts(tmp_path: Path) -> None:
    with _page(tmp_path) as (url, browser, commands):
        state = json.loads(_get(url + "/state.json"))
        assert state["units"]["animegamer-server.service"] == "active"
        assert (state["server"], state["server_s"]) == ("ready", 0) and state["free_gib"] > 0
        assert state["errors"] == ["2026-11-25T12:00:00 host <b>worker died</b>"]
        assert state["build"].startswith(__version__)
        assert b"Restart the game" in _get(url + "/") and b"<svg" in _get(url + "/icon.svg")
        assert [_press(url, what) for what in ("server", "reset", "reboot")] == [True] * 3
        assert commands.done == ["systemctl --no-block restart animegamer-server.service", "systemctl reboot"]
        assert browser.done == ["reset"]
        commands.fail = True
        assert [_press(url, what) for what in ("server", "reboot")] == [False] * 2
    with _page(tmp_path, server="degraded") as (url, _browser, _commands):
        assert json.loads(_get(url + "/state.json"))["server"] == "degraded"
        assert json.loads(_get(url + "/waiting.json"))["ready"] is False, "the clip stays while nobody can play"


def test_pages_of_other_sites_and_whoever_lacks_the_key_change_nothing(tmp_path: Path) -> None:
    with _page(tmp_path) as (url, _browser, commands):
        assert _refused(url + "/do/reboot", "POST") == 403
        assert _refused(url + "/state.json", Host="evil.example") == 421
        assert _refused(url + "/state.json", Host="[::1") == 421
        assert _refused(url + "/../../etc/passwd") == 404
        assert commands.done == []
    with _page(tmp_path, key=True) as (url, _browser, commands):
        assert _refused(url + "/do/reboot", "POST", **{"X-Animegamer": "1"}) == 401
        assert json.loads(_get(url + "/waiting.json")) == {"ready": True, "page": "http://127.0.0.1:8080/?kiosk"}
        known = "Basic " + base64.b64encode(b"staff:a-long-enough-key").decode()
        assert b"units" in _get(url + "/state.json", Authorization=known)
        assert commands.done == []


def test_guesses_at_the_key_are_bounded_and_no_site_frames_the_page(tmp_path: Path) -> None:
    with _page(tmp_path, key=True) as (url, _browser, commands):
        keys = (b"staff:a-guess", b"staff:a-long-enough-key")
        wrong, right = ("Basic " + base64.b64encode(key).decode() for key in keys)
        answers = [_refused(url + "/state.json", Authorization=wrong) for _ in range(40)]
        assert answers == [401] * 30 + [429] * 10
        assert _refused(url + "/do/reboot", "POST", Authorization=right, **{"X-Animegamer": "1"}) == 429
        assert commands.done == []
    with _page(tmp_path) as (url, _browser, _commands), urlopen(url + "/") as answer:
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        buttons = [line for line in answer.read().decode().splitlines() if "data-do=" in line]
        assert len(buttons) == 6 and all("data-ask=" in line for line in buttons if "attract" not in line)


def test_a_proxy_is_not_asked_for_this_machines_own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _page(tmp_path) as (url, _browser, _commands):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.delenv("no_proxy", raising=False)
        with open_local(int(url.rpartition(":")[2]), "/waiting.json", 10) as answer:
            assert json.load(answer)["ready"] is True


MOVES, FROZEN, BLACK, GONE = (Seen(picture) for picture in Picture)
NIGHT, UNPLUGGED = Seen(Picture.GONE, wanted=False), Seen(Picture.BLACK, monitor=False)
BROWSER, GATEWAY, SERVER = "browser", "gateway", "server"


def _restarts(seen: Iterable[tuple[int, Seen]]) -> list[tuple[int, str]]:
    """What a ladder of 10 s does: (second, last word of the action), without nothings. seen: seconds, observation."""
    ladder, now, done = Ladder(10), 0, []
    for seconds, one in seen:
        for _ in range(seconds):
            action = ladder.next(one, float(now))
            if action is not Action.NOTHING:
                done.append((now, action.value.split()[-1]))
            now += 1
    return done


@pytest.mark.parametrize(
    ("what", "seen", "expected"),
    [
        ("all is well", [(500, MOVES)], []),
        ("a still shorter than a clip", [(9, MOVES), (9, FROZEN), (9, MOVES), (9, FROZEN), (9, MOVES)], []),
        ("frozen", [(5, MOVES), (12, FROZEN), (50, MOVES)], [(15, BROWSER)]),
        ("black", [(5, MOVES), (12, BLACK), (50, MOVES)], [(15, BROWSER)]),
        ("the browser is killed and systemd starts it", [(5, MOVES), (6, GONE), (50, MOVES)], []),
        ("the browser does not come back", [(5, MOVES), (15, GONE)], [(15, BROWSER)]),
        ("the gateway hangs", [(5, MOVES), (32, FROZEN), (50, MOVES)], [(15, BROWSER), (35, GATEWAY)]),
        ("the server hangs", [(5, MOVES), (60, FROZEN)], [(15, BROWSER), (35, GATEWAY), (55, SERVER)]),
        (
            "nothing helps: it goes on, more and more slowly",
            [(500, BLACK)],
            [(11, BROWSER), (31, GATEWAY), (51, SERVER), (91, BROWSER), (131, GATEWAY), (171, SERVER), (251, BROWSER)]
            + [(331, GATEWAY), (411, SERVER)],
        ),
        ("trouble a minute later is new", [(12, FROZEN), (60, MOVES), (15, FROZEN)], [(11, BROWSER), (82, BROWSER)]),
        ("no monitor", [(5, MOVES), (5000, UNPLUGGED), (5, MOVES)], []),
        ("a monitor comes back to a frozen picture", [(50, UNPLUGGED), (15, FROZEN)], [(60, BROWSER)]),
        ("night", [(5, MOVES), (5000, NIGHT), (50, MOVES)], [(5, "off"), (5005, "on")]),
        ("a black screen at morning", [(5, MOVES), (50, NIGHT), (15, BLACK)], [(5, "off"), (55, "on"), (66, BROWSER)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_restarted(what: str, seen: list[tuple[int, Seen]], expected: list[tuple[int, str]]) -> None:
    assert _restarts(seen)[1:] == expected
    assert _restarts(seen)[0] == (0, "on")
