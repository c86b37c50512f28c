"""A power cut at any write leaves every turn that was done: the disk loses, tears and reorders what was not synced."""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from animegamer_rt.errors import StoreError
from animegamer_rt.serving.store import database, store
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.store.turns import StoredTurn
from animegamer_rt.state.game import GameState

apsw: Any = pytest.importorskip("apsw", reason="records the writes of SQLite: pip install apsw")

CRASHES, SECTOR_BYTES, SHOT = 1000, 512, bytes(3000)
SESSIONS, TURNS = 3, 12
SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """In memory where there is such a disk: a real one would take minutes."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as folder:
        yield Path(folder)


class Write(NamedTuple):
    """data: written at `offset`; None: the file was truncated to that size."""

    offset: int
    data: bytes | None

    def apply(self, content: bytearray, size: int | None = None) -> None:
        """Do it, or only its first bytes."""
        if self.data is None:
            del content[self.offset :]
            return
        data = self.data[:size]
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(data)] = data


class Disk:
    """on_disk: what is sure to be there, by file. unsure: what was written since the file's last sync.

    events: what happened, in order, as functions that make it happen to another Disk. done: session -> turns.
    """

    def __init__(self) -> None:
        self.on_disk: dict[str, bytearray] = defaultdict(bytearray)
        self.unsure: dict[str, list[Write]] = defaultdict(list)
        self.done: dict[str, int] = {}
        self.events: list[Callable[[Disk], None]] = []

    def sync(self, file: str) -> None:
        for write in self.unsure.pop(file, []):
            write.apply(self.on_disk[file])

    def delete(self, file: str) -> None:
        self.on_disk.pop(file, None)
        self.unsure.pop(file, None)

    def after_a_power_cut(self, folder: Path, chance: random.Random) -> None:
        """Write the files: of what is unsure, any part may have reached the disk."""
        folder.mkdir()
        for file in {*self.on_disk, *self.unsure}:
            content = bytearray(self.on_disk[file])
            for write in self.unsure.get(file, []):
                fate = chance.choice(("whole", "lost", "torn"))
                if fate == "whole" or (fate == "torn" and write.data is None):
                    write.apply(content)
                elif fate == "torn" and write.data is not None:
                    write.apply(content, SECTOR_BYTES * chance.randrange(len(write.data) // SECTOR_BYTES + 1))
            (folder / file).write_bytes(content)


def record(disk: Disk, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play some turns in a store whose writes are recorded."""

    class File(apsw.VFSFile):  # type: ignore[misc]
        def __init__(self, name: Any, flags: list[int]) -> None:
            super().__init__("", name, flags)
            self.name = Path(name if isinstance(name, str) else name.filename()).name

        def xWrite(self, data: bytes, offset: int) -> None:
            super().xWrite(data, offset)
            name, write = self.name, Write(offset, bytes(data))
            disk.events.append(lambda other: other.unsure[name].append(write))

        def xTruncate(self, size: int) -> None:
            super().xTruncate(size)
            name, write = self.name, Write(size, None)
            disk.events.append(lambda other: other.unsure[name].append(write))

        def xSync(self, flags: int) -> None:
            super().xSync(flags)
            name = self.name
            disk.events.append(lambda other: other.sync(name))

    class Recorder(apsw.VFS):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("recorder", "")

        def xOpen(self, name: Any, flags: list[int]) -> File:
            return File(name, flags)

        def xDelete(self, name: str, sync: bool) -> None:
            super().xDelete(name, sync)
            disk.events.append(lambda other: other.delete(Path(name).name))

    class Sqlite:
        """The module `sqlite3` as the store uses it."""

        Error = apsw.Error

        @staticmethod
        def connect(path: Path, **_: object) -> Any:
            connection = apsw.Connection(str(path), vfs="recorder")
            connection.execute("PRAGMA wal_autocheckpoint = 20")
            return connection

    recorder = Recorder()
    with monkeypatch.context() as patched:
        patched.setattr(database, "sqlite3", Sqlite)
        patched.setattr(store, "boot_id", lambda: "before")
        with Store(folder) as opened:
            sessions = [opened.open("tiny", "f", 7, 2)[0].id for _ in range(SESSIONS)]
            for turn in range(1, TURNS + 1):
                for session in sessions:
                    state = GameState(1, 0, -1, 2)
                    played = StoredTurn(turn, f"id-{turn}", "say", 7, state, opened.get(session).character.after(state))
                    opened.finish_turn(session, played, {turn: SHOT}, done=False)
                    opened.confirm_turn(session, turn)
                    disk.events.append(lambda other, session=session, turn=turn: other.done.update({session: turn}))  # type: ignore[misc]
    del recorder


def crashes(events: list[Callable[[Disk], None]], chance: random.Random) -> Iterator[Disk]:
    """The disk at CRASHES moments of the recording, some of them the same."""
    at = sorted(chance.randrange(len(events) + 1) for _ in range(CRASHES))
    disk, happened = Disk(), 0
    for moment in at:
        for event in events[happened:moment]:
            event(disk)
        happened = moment
        yield disk


def lost_turns(disk: Disk, folder: Path, chance: random.Random) -> int:
    """How many turns that were done are gone after a power cut now; what is there is whole."""
    disk.after_a_power_cut(folder, chance)
    lost = 0
    with Store(folder) as opened:
        assert opened.database.rows("PRAGMA integrity_check") == [("ok",)]
        ids = {session for (session,) in opened.database.rows("SELECT id FROM sessions")}
        for session, turns in disk.done.items():
            found = opened.get(session).turns if session in ids else 0
            assert found <= turns + 1
            ids_there = [turn.turn_id for turn in opened.turns(session, 1, found)]
            assert ids_there == [f"id-{n}" for n in range(1, found + 1)]
            lost += max(0, turns - found)
    return lost


def test_a_power_cut_at_any_write_loses_no_done_turn(memory_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, chance = Disk(), random.Random(3)
    record(disk, memory_folder / "recorded", monkeypatch)
    monkeypatch.setattr(store, "boot_id", lambda: "after")
    for number, crashed in enumerate(crashes(disk.events, chance)):
        assert lost_turns(crashed, memory_folder / f"{number}", chance) == 0, f"crash {number}"
    monkeypatch.setattr(Disk, "sync", lambda self, file: None)
    last = list(crashes(disk.events, chance))[-1]
    with pytest.raises((AssertionError, StoreError)):  # a disk that does not sync would be noticed
        assert lost_turns(last, memory_folder / "lying", chance) == 0
