"""A game goes on with the engines that began it; with others only if the operator says so."""

from __future__ import annotations

from pathlib import Path

from live_server import LiveServer, error_code, frames

ALLOWED = "--continue-on-other-engines"


def test_a_game_goes_on_with_other_engines_only_if_the_operator_says_so(bundle: Path, tmp_path: Path) -> None:
    state, simulated = tmp_path / "state", "simulated:0"
    with LiveServer(bundle, state, device=simulated) as server, server.ready().client() as player:
        fresh, game = player.open(), player.open()
        assert frames(player.play(game))
    with LiveServer(bundle, state, device="cpu") as server, server.ready().client() as player:
        refused = player.ask("open", {"token": game.token}, answer="error").fields
        assert refused["code"] == "engines_mismatch" and ALLOWED in refused["do"]
        assert "found simulated engines, " in refused["text"] and "expected onnxruntime on the CPU, " in refused["text"]
        assert frames(player.play(player.open(token=fresh.token))), "nobody has made a turn of it"
    with LiveServer(bundle, state, ALLOWED, device="cpu") as server, server.ready().client() as player:
        assert frames(player.play(player.open(token=game.token)))
    with LiveServer(bundle, state, device=simulated) as server, server.listening().client() as player:
        early = player.open(token=game.token)  # the worker still loads, so it is refused with its turn
        server.ready()
        assert error_code(player.play(early)) == "engines_mismatch"
        assert player.ask("list", {"token": game.token}, session=game.session, answer="listed").fields["turns"]


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


def test_a_restart_with_another_attention_does_not_go_on_in_silence(bundle: Path, tmp_path: Path) -> None:
    state, flash, int8 = tmp_path / "state", with_attention(tmp_path, "flash"), with_attention(tmp_path, "int8")
    with LiveServer(bundle, state, code=flash) as server, server.ready().client() as player:
        game = player.open()
        assert frames(player.play(game))
    with LiveServer(bundle, state, code=int8) as server, server.ready().client() as player:
        refused = player.ask("open", {"token": game.token}, answer="error").fields
        assert refused["code"] == "engines_mismatch" and ALLOWED in refused["do"]
        assert "found attention: flash; expected attention: int8" in refused["text"]
    with LiveServer(bundle, state, ALLOWED, code=int8) as server, server.ready().client() as player:
        assert frames(player.play(player.open(token=game.token)))
    with LiveServer(bundle, state, code=flash) as server, server.ready().client() as player:
        refused = player.ask("open", {"token": game.token}, answer="error").fields
        assert "found attention: int8; expected attention: flash" in refused["text"], "its last turn is marked"
