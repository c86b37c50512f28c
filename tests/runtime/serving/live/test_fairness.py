"""One client's haste is no other client's loss. Places in the queue: test_line.py."""

from __future__ import annotations

from pathlib import Path

from live_server import LiveServer, error_code, frames


def test_programs_that_open_a_game_and_end_shut_nobody_out(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:0", sessions=3) as server:
        server.ready()
        tokens = []
        for played in range(6):
            with server.client() as program:
                game = program.open()
                tokens.append(game.token)
                if played % 2:
                    assert frames(program.play(game))
            server.await_status(lambda status: status["connections"] == 0)
        with server.client() as player:
            assert player.open(token=tokens[1]).opened.fields["turns"] == 1, "and every game is there"
            open_games = [player.open() for _ in range(2)]
            assert error_code(player.ask("open")) == "too_many_sessions", "those of who is there do count"
            assert frames(player.play(open_games[0]))


def test_games_that_a_connection_opens_in_a_minute_are_bounded(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", device="simulated:0", turns_per_minute=3) as server:
        with server.ready().client() as hasty, server.client() as other:
            games = [hasty.open() for _ in range(30)]
            refused = hasty.ask("open")
            assert error_code(refused) == "rate_limited" and "wait" in refused.fields["do"]
            assert frames(hasty.play(games[0])) and other.open()
