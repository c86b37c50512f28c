"""The server starts or says what to do about it, ends without cutting a turn short, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live_server import LiveServer, error_code, frames, gone, refusal, until_timeout

from animegamer_rt.errors import TRY_AGAIN
from animegamer_rt.serving.server.curve_keys import load, new
from animegamer_rt.serving.store import database
from animegamer_rt.serving.store.store import Store

NO_RIGHTS = """
import ctypes, os
if hasattr(os, "geteuid") and os.geteuid() == 0:  # root may write anywhere, until it gives that up
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0
"""
SMALL_DISK = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))"


def test_the_server_imports_no_engine() -> None:
    code = """
import sys
import animegamer_rt.serving.server.server, animegamer_rt.cli
banned = {"onnxruntime", "torch", "av", "sentencepiece", "onnx"}
ours = ("pipeline", "session", "stages", "backends", "models", "serving.worker")
banned |= {f"animegamer_rt.{name}" for name in ours}
print(sorted(name for name in sys.modules if any(name == b or name.startswith(b + ".") for b in banned)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_until_the_worker_is_warm_only_turns_are_refused(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:2") as server, server.listening().client() as player:
        assert server.status()["state"] == "starting"
        game = player.open()
        assert error_code(player.play(game)) == "starting"
        assert player.ask("ping").type == "pong"
        assert not any(line.startswith("ready ") for line in server.said)
        server.ready()
        assert server.status()["state"] == "ready"


def test_sigterm_lets_accepted_turns_finish_and_refuses_new_ones(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:1") as server:
        with server.ready().client() as one, server.client() as two, server.client() as three:
            first, second, third = one.open(), two.open(), three.open()
            runs = one.begin(first)
            events = one.until(runs, "state")
            waits = two.begin(second)
            waited = two.until(waits, "accepted")
            worker = server.status()["worker"]["pid"]
            server.process.send_signal(signal.SIGTERM)
            server.await_status(lambda status: status["state"] == "draining")
            assert error_code(three.play(third)) == "draining"
            assert frames([*events, *one.rest(runs)])
            assert frames([*waited, *two.rest(waits)])
        assert server.process.wait(60) == 0
        assert gone(worker)
    with Store(tmp_path / "state") as store:
        assert [store.get(game.session).turns for game in (first, second, third)] == [1, 1, 0]


def test_a_second_ctrl_c_ends_at_once(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:60") as server:
        server.listening()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0, "nothing runs, so the first is enough"
    with LiveServer(bundle, tmp_path / "state", device="simulated:1.5") as server, server.ready().client() as player:
        game = player.open()
        turn = player.begin(game)
        player.until(turn, "state")
        server.process.send_signal(signal.SIGINT)
        server.await_status(lambda status: status["state"] == "draining")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 130
    with Store(tmp_path / "state") as store:
        assert store.get(game.session).turns == 0


def test_a_worker_does_not_outlive_a_front_that_was_killed(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state") as server:
        worker = server.ready().status()["worker"]["pid"]
        server.process.kill()
        for _ in until_timeout():
            if gone(worker):
                return
        raise AssertionError("the worker still runs")


def test_other_addresses_need_keys_and_a_list_of_players(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, keys = tmp_path / "state", tmp_path / "keys"
    code, said = refusal(bundle, state, "--host", "0.0.0.0")
    assert code == 2 and "animegamer-rt keys new server" in said and "--authorized-keys" in said
    new("server", keys)
    code, said = refusal(
        bundle, state, "--host", "0.0.0.0", "--keys", str(keys), "--authorized-keys", str(tmp_path / "none")
    )
    assert code == 2 and "--authorized-keys" in said
    (keys / "server.key_secret").chmod(0o644)
    new("mia", tmp_path / "allow")
    allow = ("--authorized-keys", str(tmp_path / "allow"))
    code, said = refusal(bundle, state, "--host", "0.0.0.0", "--keys", str(keys), *allow)
    assert code == 2 and "chmod 600" in said
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(keys))  # systemd's, which may show as readable by the group
    assert len(load(keys, tmp_path / "allow", "0.0.0.0").authorized) == 1


@pytest.mark.parametrize("played", [True, False])
def test_a_state_folder_that_cannot_be_written_is_named(bundle: Path, tmp_path: Path, played: bool) -> None:
    state = tmp_path / "state"
    state.mkdir()
    if played:
        Store(state).close()
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    for path in (*state.iterdir(), state):
        path.chmod(0o500)
    code, said = refusal(bundle, state, code=NO_RIGHTS)
    assert code == 2 and str(state) in said and "writable" in said and "Traceback" not in said
    assert {path.name: path.read_bytes() for path in state.iterdir()} == before


def test_a_log_that_is_a_link_is_refused_and_its_target_kept(bundle: Path, tmp_path: Path) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    state.mkdir()
    other.write_text("precious", encoding="utf-8")
    (state / "worker.log").symlink_to(other)
    code, said = refusal(bundle, state)
    assert code == 2 and "worker.log: the worker's log cannot be written; found a link" in said
    assert other.read_text(encoding="utf-8") == "precious"


def test_a_full_disk_costs_the_turn_and_nothing_that_was_kept(bundle: Path, tmp_path: Path) -> None:
    played: list[list[bytes]] = []
    with LiveServer(bundle, tmp_path / "state", device="simulated:0", code=SMALL_DISK, turns_per_minute=0) as server:
        with server.ready().client() as player:
            game = player.open()
            while (events := player.play(game, f"Mia waves {len(played)}."))[-1].type == "done":
                played.append(frames(events))
            assert error_code(events) == "storage" and played
            assert "do" in events[-1].fields and str(tmp_path) not in str(events[-1].fields), "no path of the server"
            status = server.status()
            assert status["state"] == "ready" and status["worker"]["restarts"] == 0
    with LiveServer(bundle, tmp_path / "state", device="simulated:0") as server, server.ready().client() as player:
        assert player.open(token=game.token).opened.fields["turns"] == len(played)
        last = player.send("replay", {"token": game.token}, session=game.session, turn=len(played))
        assert frames(player.rest(last)) == played[-1]
        assert frames(player.play(game))


def test_a_terminal_that_is_closed_lets_the_running_turn_finish(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:1") as server, server.ready().client() as player:
        turn = player.begin(player.open())
        events = player.until(turn, "state")
        for _ in range(2):  # the terminal's, and its shell's
            server.process.send_signal(signal.SIGHUP)
            server.await_status(lambda status: status["state"] == "draining")
        assert frames([*events, *player.rest(turn)])
        assert server.process.wait(60) == 0


def test_a_disk_that_is_full_at_the_start_may_have_room_later(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "SCRIPTS", (("PRAGMA max_page_count = 1", *database.SCRIPTS[0]),))
    code, said = refusal(bundle, tmp_path / "state")
    assert code == TRY_AGAIN and "the disk is full" in said and "free disk space" in said and "Traceback" not in said
