"""An update is tried beside the version in use; one that does not play is taken back, and no game is lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from browser_socket import web
from live_server import LiveServer

import fakes
from animegamer_kiosk.config import KioskConfig
from animegamer_kiosk.first_turn import first_turn
from animegamer_kiosk.update import Updater
from animegamer_rt.cli import main
from animegamer_rt.errors import ConfigError, ServerError
from animegamer_rt.serving.store import Store

NEW = "animegamer-rt 0.2.0"


class Kiosk:
    """A machine in a folder: environments 0.1.0, which is in use, and 0.2.0; commands are noted.

    A command that has one of `fails` in it fails; `ready` and `server` are what the new server does.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.fails, self.ready, self.server = root, "", True, NEW
        self.done: list[str] = []
        self.newer_form = False
        assert main(["kiosk", "install", "--yes", "--root", str(root)]) == 0
        self.old, self.new = (root / "opt/animegamer" / version for version in ("0.1.0", "0.2.0"))
        for environment in (self.old, self.new):
            (environment / "bin").mkdir(parents=True)
            (environment / "bin/animegamer-rt").touch()
        self.updater = Updater(KioskConfig(), lambda: self.ready, self._turn, self._run, root, lambda seconds: None)
        self.updater.versions.use(self.old)
        with closing(Store(root / "var/lib/animegamer/server")) as store:
            self.token = store.open("pocket", "f" * 64, 7, 4)[1]

    def _turn(self) -> str:
        if not self.server:
            raise ServerError("the turn failed")
        return self.server

    def _run(self, command: Sequence[str]) -> str:
        line = " ".join(command)
        self.done.append(line)
        if self.fails and self.fails in line:
            raise ServerError(f"`{line}` ended with code 1", found="it is broken")
        if line.endswith("kiosk install --yes"):
            self.updater.versions.use(Path(command[0]).parents[1])
            if self.newer_form and "0.2.0" in line:
                with closing(sqlite3.connect(self.root / "var/lib/animegamer/server/sessions.sqlite")) as games, games:
                    games.execute("UPDATE store SET schema_version = 99")
        return NEW + "\n" if "--version" in command else "3\n" if "--property=NRestarts" in command else ""

    def games_are_there(self) -> bool:
        """Whether the version in use finds the game that was begun before the update."""
        with closing(Store(self.root / "var/lib/animegamer/server")) as store:
            return store.resume(self.token).seed == 7


@pytest.fixture
def kiosk(tmp_path: Path) -> Kiosk:
    return Kiosk(tmp_path)


def test_a_version_that_plays_is_kept_and_staff_may_go_back_and_forth(kiosk: Kiosk) -> None:
    assert kiosk.updater.update(kiosk.new)
    assert (kiosk.updater.versions.current, kiosk.updater.versions.previous) == (kiosk.new, kiosk.old)
    assert kiosk.updater.go_back(kiosk.old) and kiosk.games_are_there()
    assert (kiosk.updater.versions.current, kiosk.updater.versions.previous) == (kiosk.old, kiosk.new)


@pytest.mark.parametrize("newer_form", [False, True], ids=["games of the same form", "games of a newer form"])
@pytest.mark.parametrize(
    ("fails", "ready", "server", "why"),
    [
        ("selftest", True, NEW, "it is broken"),
        ("0.2.0/bin/animegamer-rt kiosk install", True, NEW, "it is broken"),
        ("", False, NEW, "the server keeps restarting; found 3 restarts"),
        ("", True, "", "the turn failed"),
        ("", True, "animegamer-rt 0.1.0", "another version is running"),
    ],
)
def test_a_version_that_does_not_play_is_taken_back_and_the_reason_printed(
    kiosk: Kiosk, fails: str, ready: bool, server: str, why: str, newer_form: bool
) -> None:
    kiosk.fails, kiosk.ready, kiosk.server, kiosk.newer_form = fails, ready, server, newer_form
    lines: list[str] = []
    assert not kiosk.updater.update(kiosk.new, lines.append)
    assert any(line.startswith("failed: ") and why in line for line in lines)
    assert kiosk.done[-1] == f"{kiosk.old}/bin/animegamer-rt kiosk install --yes"
    assert kiosk.updater.versions.current == kiosk.old and kiosk.games_are_there()


def test_a_dry_run_prints_every_step_and_changes_nothing(kiosk: Kiosk, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(kiosk.root.rglob("*"))
    capsys.readouterr()
    assert main(["kiosk", "update", "--dry-run", "--root", str(kiosk.root), str(kiosk.new)]) == 0
    printed = capsys.readouterr().out
    for step in ("stop animegamer-server", "selftest", "copy the games", "kiosk install --yes", "play a turn"):
        assert step in printed
    assert sorted(kiosk.root.rglob("*")) == before


def test_what_is_no_update_is_refused_before_anything_changes(kiosk: Kiosk, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="not an environment with animegamer-rt"):
        kiosk.updater.update(kiosk.root)
    with pytest.raises(ConfigError, match="nothing to update"):
        kiosk.updater.update(kiosk.old)
    assert kiosk.done == []
    (kiosk.root / "opt/animegamer/previous").unlink(missing_ok=True)
    assert main(["kiosk", "update", "--back", "--root", str(kiosk.root)]) == 2
    assert "there is no previous environment" in capsys.readouterr().err


def test_a_turn_is_played_and_a_gateway_that_is_gone_is_an_error(tmp_path: Path) -> None:
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    with LiveServer(bundle, tmp_path / "state", "--web", "0") as server:
        port = int(web(server.ready()).rstrip("/").rpartition(":")[2])
        assert "animegamer" in first_turn(port)
    with pytest.raises(ServerError, match="the gateway does not respond"):
        first_turn(port)
