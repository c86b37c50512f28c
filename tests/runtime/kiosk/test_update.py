"""An update is tried beside the old version; one that does not play is taken back by itself, and no game is lost."""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from animegamer_rt.cli import main
from animegamer_rt.errors import ConfigError, OutputError, ServerError
from animegamer_rt.kiosk.config import KioskConfig
from animegamer_rt.kiosk.update import Updater
from animegamer_rt.kiosk.update_record import CHECKS, Phase, UpdateRecord, write_record
from animegamer_rt.kiosk.versions import find_wheel
from animegamer_rt.serving.store import Store

NEW = "animegamer-rt 0.2.0"


class Kiosk:
    """A machine in a folder: the version 0.1.0 in use, a wheel of 0.2.0, and commands that are noted.

    A command that has one of `fails` in it fails; `ready` and `server` are what the new server does.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.fails, self.ready, self.server = root, "", True, NEW
        self.done: list[str] = []
        self.state, self.newer_form = "active", False
        assert main(["kiosk", "install", "--yes", "--root", str(root)]) == 0
        self.wheel = root / "stick" / "animegamer_rt-0.2.0-py3-none-any.whl"
        self.wheel.parent.mkdir()
        with zipfile.ZipFile(self.wheel, "w") as packed:
            packed.writestr("animegamer_rt/__init__.py", "")
        self.old = root / "opt/animegamer-versions/0.1.0"
        packages = self.old / "lib/python3/site-packages"
        for name, needs in {
            "animegamer_rt-0.1.0": "Requires-Dist: starlette; extra == 'web'\n",
            "starlette-1.0": "",
        }.items():
            (packages / f"{name}.dist-info").mkdir(parents=True)
            text = f"Metadata-Version: 2.1\nName: {name.partition('-')[0]}\nVersion: 1\n{needs}"
            (packages / f"{name}.dist-info/METADATA").write_text(text)
        self.updater = self.program()
        self.updater.versions.use(self.old)
        with closing(Store(root / "var/lib/animegamer/server")) as store:
            self.token = store.open("pocket", "f" * 64, 7, 4)[1]

    def program(self) -> Updater:
        """The command, as it is started anew."""
        return Updater(
            KioskConfig(), lambda: self.ready, self._turn, self._run, self.root, lambda text: None, lambda seconds: None
        )

    def _turn(self) -> str:
        if not self.server:
            raise ServerError("the turn failed")
        return self.server

    def _run(self, command: Sequence[str]) -> str:
        line = " ".join(command)
        self.done.append(line)
        if self.fails and self.fails in line:
            raise ServerError(f"`{line}` ended with code 1", found="it is broken")
        if "venv" in command:
            (Path(command[-1]) / "lib/python3/site-packages").mkdir(parents=True)
        if self.newer_form and line.endswith("0.2.0/bin/animegamer-rt kiosk install --yes"):
            with closing(sqlite3.connect(self.root / "var/lib/animegamer/server/sessions.sqlite")) as games, games:
                games.execute("UPDATE store SET schema_version = 99")
        if "--version" in command:
            return NEW + "\n"
        return {"--property=NRestarts": "3", "--property=ActiveState": self.state}.get(command[2], "")

    def games_are_there(self) -> bool:
        """Whether this version finds the game that was begun before the update."""
        with closing(Store(self.root / "var/lib/animegamer/server")) as store:
            return store.resume(self.token).seed == 7

    def status(self, capsys: pytest.CaptureFixture[str]) -> str:
        """What `kiosk status` prints."""
        capsys.readouterr()
        main(["kiosk", "status", "--root", str(self.root)])
        return capsys.readouterr().out


@pytest.fixture
def kiosk(tmp_path: Path) -> Kiosk:
    return Kiosk(tmp_path)


def test_a_version_that_plays_is_on_trial_for_a_day_and_the_old_one_stays_until_then(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    kiosk.updater.update(find_wheel(kiosk.wheel.parent))
    new = kiosk.updater.versions.current
    assert new is not None and new.name == "0.2.0"
    assert [line for line in kiosk.done if line.endswith("animegamer_rt-0.2.0-py3-none-any.whl[web]")]
    assert "0.2.0 is on trial, 0 of 144 checks passed; 0.1.0 is kept" in kiosk.status(capsys)
    for _ in range(CHECKS - 1):
        kiosk.program().check()
    kiosk.state, kiosk.ready = "inactive", False  # staff have stopped the game: that says nothing of the version
    kiosk.program().check()
    assert kiosk.old.is_dir()
    kiosk.state, kiosk.ready = "active", True
    kiosk.program().check()
    assert "0.2.0 has run for a day and stays" in kiosk.status(capsys)
    assert not kiosk.old.exists() and kiosk.updater.versions.current == new and kiosk.games_are_there()
    assert kiosk.done[-1] == "systemctl disable --now animegamer-prove.timer"
    assert kiosk.program().check() is None


@pytest.mark.parametrize("fails", ["pip", "selftest", "0.2.0/bin/animegamer-rt --version"])
def test_a_version_that_fails_on_its_own_is_never_in_use(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str], fails: str
) -> None:
    kiosk.fails = fails
    assert kiosk.updater.update(find_wheel(kiosk.wheel)).phase is Phase.REFUSED
    assert kiosk.updater.versions.current == kiosk.old and not (kiosk.old.parent / "0.2.0").exists()
    assert "0.2.0 was not installed: `" in (said := kiosk.status(capsys)) and "it is broken" in said
    assert "systemctl --no-block start animegamer-server.service" in kiosk.done and kiosk.games_are_there()


@pytest.mark.parametrize("newer_form", [False, True], ids=["games of the same form", "games of a newer form"])
@pytest.mark.parametrize(
    ("fails", "ready", "server", "said"),
    [
        ("", False, NEW, "the server ends again and again; found 3 restarts"),
        ("", True, "", "the turn failed"),
        ("", True, "animegamer-rt 0.1.0", "another version answers"),
        ("0.2.0/bin/animegamer-rt kiosk install", True, NEW, "it is broken"),
    ],
)
def test_a_version_that_does_not_play_is_taken_back_by_itself(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str], fails: str, ready: bool, server: str, said: str, newer_form: bool
) -> None:
    kiosk.fails, kiosk.ready, kiosk.server, kiosk.newer_form = fails, ready, server, newer_form
    assert kiosk.updater.update(find_wheel(kiosk.wheel)).phase is Phase.TAKEN_BACK
    assert kiosk.updater.versions.current == kiosk.old and not (kiosk.old.parent / "0.2.0").exists()
    status = kiosk.status(capsys)
    assert "0.2.0 was taken back, 0.1.0 is in use again: " in status and said in status
    assert f"{kiosk.old}/bin/animegamer-rt kiosk install --yes" in kiosk.done and kiosk.games_are_there()


@pytest.mark.parametrize(
    ("phase", "server", "then", "in_use"),
    [
        (Phase.INSTALLING, NEW, Phase.REFUSED, "0.1.0"),
        (Phase.STARTING, NEW, Phase.TRIAL, "0.2.0"),
        (Phase.STARTING, "", Phase.TAKEN_BACK, "0.1.0"),
    ],
)
def test_after_a_power_cut_the_update_goes_on_or_back(
    kiosk: Kiosk, phase: Phase, server: str, then: Phase, in_use: str
) -> None:
    versions = kiosk.updater.versions
    new = versions.new_folder("0.2.0")
    new.mkdir()
    versions.keep(kiosk.old)
    if phase is Phase.STARTING:
        versions.use(new)
    record = UpdateRecord(phase, "0.2.0", "0.1.0", str(new), "")
    write_record(kiosk.root / "var/lib/animegamer-kiosk/update.json", record)
    kiosk.server = server
    went_on = kiosk.program().check()
    assert went_on is not None and went_on.phase is then
    assert versions.current is not None and versions.current.name == in_use


def test_staff_may_go_back_and_the_disk_holds_two_versions(kiosk: Kiosk) -> None:
    with pytest.raises(ConfigError, match="no version is kept"):
        kiosk.updater.take_back("it was asked for")
    kiosk.updater.update(find_wheel(kiosk.wheel))
    kiosk.updater.update(find_wheel(kiosk.wheel))  # the same once more, while it is on trial
    folder = kiosk.old.parent
    assert {path.name for path in folder.iterdir()} == {"0.2.0", "0.2.0-2", "current", "previous"}
    assert kiosk.program().take_back("it was asked for").phase is Phase.TAKEN_BACK
    assert {path.name for path in folder.iterdir()} == {"0.2.0", "current"}


def test_a_dry_run_prints_every_step_and_changes_nothing(kiosk: Kiosk, capsys: pytest.CaptureFixture[str]) -> None:
    unit = (kiosk.root / "etc/systemd/system/animegamer-update.service").read_text()
    words = next(line for line in unit.splitlines() if line.startswith("ExecStart=")).split()[1:]
    updates = str(kiosk.wheel.parent)
    before = sorted(kiosk.root.rglob("*"))
    capsys.readouterr()
    asked = [updates if word == "/var/lib/animegamer-kiosk/updates" else word for word in words]
    assert updates in asked and main([*asked, "--dry-run", "--root", str(kiosk.root)]) == 0
    printed = capsys.readouterr().out
    for step in (
        "-m venv --without-pip",
        "pip",
        "selftest",
        "copy the games",
        "use ",
        "kiosk install --yes",
        "play a turn",
    ):
        assert step in printed
    assert sorted(kiosk.root.rglob("*")) == before


def test_what_is_no_update_is_refused_before_anything_changes(kiosk: Kiosk, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="found none; expected one file named animegamer_rt-VERSION"):
        find_wheel(kiosk.root)
    other = kiosk.wheel.with_name("animegamer_rt-0.3.0-py3-none-any.whl")
    other.write_bytes(kiosk.wheel.read_bytes()[:-30])
    with pytest.raises(ConfigError, match="0.2.0-py3-none-any.whl, animegamer_rt-0.3.0"):
        find_wheel(kiosk.wheel.parent)
    with pytest.raises(ConfigError, match="the update is damaged"):
        find_wheel(other)
    monkeypatch.setattr("animegamer_rt.kiosk.versions.SPARE_BYTES", 2**60)
    record = kiosk.updater.update(find_wheel(kiosk.wheel))
    assert record.phase is Phase.REFUSED and "the disk is too full" in record.reason
    other.unlink()
    with kiosk.updater._lock(), pytest.raises(OutputError, match="another process"):
        kiosk.updater.update(find_wheel(kiosk.wheel))
