"""What a client is told and what is kept agree: on a full disk, after a change of the bundle or the engines."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from live_server import LiveServer, error_code, frames, refusal

import fakes
from animegamer_rt.bundle.writer import write_manifest


def test_a_worker_of_another_bundle_plays_nobodys_game(tmp_path: Path) -> None:
    tiny = fakes.write_bundle(tmp_path / "tiny")
    with LiveServer(tiny.folder, tmp_path / "state", device="simulated:0") as server:
        with server.ready().client() as player:
            game = player.open()
            assert frames(player.play(game))
            kept = {path: path.read_bytes() for path in tiny.folder.iterdir() if path.is_file()}
            part = tiny.folder / next(iter(tiny.manifest.parts.values())).file
            part.write_bytes(part.read_bytes() + b"another")
            assert write_manifest(tiny.folder, tiny.manifest).fingerprint != tiny.fingerprint
            os.kill(server.status()["worker"]["pid"], signal.SIGKILL)
            status = server.await_status(lambda status: status["state"] == "degraded")
            last_error = status["worker"]["last_error"]
            assert "bundle" in last_error and "restart the server" in last_error
            assert error_code(player.play(game)) == "degraded"
            for path, content in kept.items():
                path.write_bytes(content)
            server.await_status(lambda status: status["state"] == "ready")
            assert frames(player.play(game))


def test_an_export_is_whole_named_in_full_and_private_or_it_is_storage(bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    half = state / "exports" / ".0123456789abcdef-1.partial"
    half.mkdir(parents=True)
    with LiveServer(bundle, state, device="simulated:0") as server, server.ready().client() as player:
        assert not half.exists(), "what a killed server left is removed"
        game = player.open()
        assert frames(player.play(game))
        *_, exported = player.rest(player.send("export", {"token": game.token}, session=game.session))
        folder = Path(exported.fields["folder"])
        assert folder.is_absolute() and sorted(exported.fields["files"]) == sorted(
            path.name for path in folder.iterdir()
        )
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]
        assert (state / "worker.log").stat().st_mode & 0o077 == 0
        folder.parent.rename(state / "away")
        folder.parent.write_text("no folder")
        failed = player.rest(player.send("export", {"token": game.token}, session=game.session))
        assert error_code(failed) == "storage" and str(tmp_path) not in str(failed[-1].fields)
        assert frames(player.play(game)), "and the game goes on"


def test_a_state_folder_whose_name_is_not_utf8_is_refused(bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / os.fsdecode(b"caf\xe9")
    code, said = refusal(bundle, state)
    assert code == 2 and "state_dir" in said and "UTF-8" in said and "Traceback" not in said


ALLOWED = {"continue_on_other_engines": True}


SITE = """import os
from dataclasses import replace
from animegamer_rt.backends import simulated
plain = simulated.load
simulated.load = lambda *given: replace(plain(*given), attention=os.environ["ATTENTION"])
"""


def with_attention(folder: Path, attention: str) -> str:
    """What a server runs first, so that its workers' engines say that they have this attention."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    return f"import os; os.environ.update(PYTHONPATH={str(folder / 'site')!r}, ATTENTION={attention!r})"


def test_a_restart_with_another_attention_goes_on_only_if_the_operator_says_so(bundle: Path, tmp_path: Path) -> None:
    state, flash, int8 = tmp_path / "state", with_attention(tmp_path, "flash"), with_attention(tmp_path, "int8")
    with LiveServer(bundle, state, code=flash) as server, server.ready().client() as player:
        fresh, game = player.open(), player.open()
        assert frames(player.play(game))
    with LiveServer(bundle, state, code=int8) as server, server.ready().client() as player:
        refused = player.ask("open", {"token": game.token}, answer="error").fields
        assert refused["code"] == "engines_mismatch" and next(iter(ALLOWED)) in refused["do"]
        assert "found attention: flash; expected attention: int8" in refused["text"]
        assert frames(player.play(player.open(token=fresh.token))), "nobody has made a turn of it"
    with LiveServer(bundle, state, code=int8, **ALLOWED) as server, server.ready().client() as player:
        assert frames(player.play(player.open(token=game.token)))
    with LiveServer(bundle, state, code=flash) as server, server.listening().client() as player:
        early = player.open(token=game.token)  # the worker still loads, so it is refused with its turn
        server.ready()
        last = player.play(early)[-1]
        assert error_code(last) == "engines_mismatch"
        assert "found attention: int8; expected attention: flash" in last.fields["text"], "its last turn is marked"
        assert player.ask("list", {"token": game.token}, session=game.session, answer="listed").fields["turns"]
