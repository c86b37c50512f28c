"""A day of a kiosk's attract loop, as the gateway and the server live it, in seconds."""

from __future__ import annotations

from pathlib import Path

from browser_socket import Browser, gateway_pid, resident_mib, web
from live_server import LiveServer, frames

HOURS, PINGS_AN_HOUR = 24, 180
"""The page pings every 20 s; once an hour a visitor plays a turn."""
WARM_UP_HOURS = 6
MOST_MIB = 1.5


def test_a_days_pings_and_visitors_leave_gateway_and_server_as_they_were(bundle: Path, tmp_path: Path) -> None:
    settings = {"web": "0", "sessions": 0, "turns_per_minute": 0, "ahead": 1}
    with LiveServer(bundle, tmp_path / "state", device="simulated:0.001", **settings) as server:
        url = web(server.ready())
        processes = (gateway_pid(server), server.process.pid)
        with Browser(url) as page:
            page.hello()
            for hour in range(HOURS):
                if hour == WARM_UP_HOURS:
                    early = [resident_mib(process) for process in processes]
                with Browser(url) as visitor:
                    visitor.hello()
                    game = visitor.ask("open")
                    assert len(frames(visitor.rest(visitor.begin(game, "only")))) == 17
                    visitor.ask("close", {"token": game.fields["token"]}, session=game.session)
                sent = [page.send("ping", {}) for _ in range(PINGS_AN_HOUR)]
                assert [page.receive().parent for _ in sent] == sent
        grown = [resident_mib(process) - before for process, before in zip(processes, early, strict=True)]
        assert max(grown) < MOST_MIB, f"gateway {grown[0]:.2f} MiB, server {grown[1]:.2f} MiB"
