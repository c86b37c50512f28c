"""What the kiosk's watch and its update ask of the gateway, as a page would."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_socket import Browser, web
from live_server import LiveServer

from animegamer_rt.errors import ServerError
from animegamer_rt.kiosk.first_turn import first_turn
from animegamer_rt.kiosk.visitor_games import VisitorGames


def test_a_turn_is_played_and_visitors_games_are_saved_and_ended(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LiveServer(bundle, tmp_path / "state", "--web", "0") as server:
        url = web(server.ready())
        port = int(url.rstrip("/").rpartition(":")[2])
        assert "animegamer" in first_turn(port)
        with Browser(url) as visitor:
            visitor.hello()
            game = visitor.ask("open")
            visitor.rest(visitor.begin(game, "one"))
            games = VisitorGames(port)
            games.save([game.fields["token"], "of no game"])
            games.wait()
            assert visitor.ask("open", {"token": game.fields["token"]}).fields["code"] == "session_closed"
    assert [path.name for path in (tmp_path / "state/exports").glob("*/*.mp4")] == ["turn-001.mp4"]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["a visitor's game is not saved"]
    with pytest.raises(ServerError, match="the gateway does not answer"):
        first_turn(port)
