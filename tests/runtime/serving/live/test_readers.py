"""Clients that vanish or stop reading cost nobody but themselves, and lose nothing."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from live_server import FULL_SIZE, LiveServer, frames


def stalled(socket: Any) -> None:
    socket.rcvhwm, socket.rcvbuf = 1, 65536


def test_a_client_that_does_not_read_delays_no_other_and_can_replay(bundle: Path, tmp_path: Path) -> None:
    limits = {"send_queue_mib": 32, "queue": 32, "turns_per_minute": 0}
    with LiveServer(bundle, tmp_path / "state", *FULL_SIZE, device="simulated:0.02", **limits) as server:
        with server.ready().client(configure=stalled) as sleeper, server.client() as reader:
            other = reader.open(seed=1)
            plain = reader.play(other)
            games = [sleeper.open(seed=2) for _ in range(6)]
            turns = [sleeper.begin(game) for game in games]
            mine = [frames(reader.play(reader.open(seed=1))) for _ in range(3)]
            assert mine == [frames(plain)] * 3, "the reader gets all of its frames"
            server.await_status(lambda status: not status["running"] and not status["queue"])
            assert server.status()["turns_done"] >= 10, "and the worker waited for nobody"

            # The sleeper wakes up: some of its frames were dropped, which the numbers tell, and replay brings them.
            received = {turn: sleeper.rest(turn) for turn in turns[:1]}
            for turn in turns[1:]:
                received[turn] = []
            while not all(events and events[-1].type == "done" for events in received.values()):
                message = sleeper.receive()
                assert message.parent is not None
                received[message.parent].append(message)
            gaps = [turn for turn, events in received.items() if len(events) <= (events[-1].seq or 0)]
            assert gaps, "6 turns of 23 MB do not fit into what is kept for a client"
            missed = received[gaps[-1]]
            have = next(n for n, message in enumerate([*missed, missed[-1]]) if message.seq != n) - 1
            game = games[turns.index(gaps[-1])]
            lacks = {"token": game.token, "after_seq": have}
            rest = sleeper.rest(sleeper.send("replay", lacks, session=game.session, turn=1))
            assert len(frames([*missed[: have + 1], *rest])) == 17


def test_many_that_do_not_read_together_stay_within_the_bound_of_all(bundle: Path, tmp_path: Path) -> None:
    limits = {"send_queue_mib": 8, "send_queues_mib": 16, "queue": 32, "turns_per_minute": 0}
    live = LiveServer(bundle, tmp_path / "state", *FULL_SIZE, device="simulated:0.02", **limits)
    with live as server, ExitStack() as held:
        server.ready()
        sleepers = [held.enter_context(server.client(configure=stalled)) for _ in range(12)]
        games = [sleeper.open() for sleeper in sleepers]
        before = psutil.Process(server.process.pid).memory_info().rss
        for sleeper, game in zip(sleepers, games, strict=True):
            sleeper.begin(game)
        server.await_status(lambda status: status["turns_done"] == 12)
        grown_mib = (psutil.Process(server.process.pid).memory_info().rss - before) / 2**20
        in_zeromq_mib = 12 * 5 * 480 * 720 * 3 / 2**20  # 4 waiting, and one being written
        assert grown_mib < 16 + in_zeromq_mib + 48, "the events of the turn that runs, at most"


def test_a_turn_too_large_to_keep_is_rendered_again_after_a_reconnect(bundle: Path, tmp_path: Path) -> None:
    with LiveServer(bundle, tmp_path / "state", "--frame-size", "1280x1280", device="simulated:2") as server:
        with server.ready().client() as first, server.client() as second:
            game = first.open()
            begun = first.begin(game)
            seen = first.until(begun, "frame")
            while seen[-1].fields.get("index") != 8:
                seen.append(first.receive())
            replay = {"token": game.token, "after_seq": seen[-1].seq}
            rest = second.rest(second.send("replay", replay, session=game.session, turn=1))
            assert len(frames([*seen, *rest])) == 17
            assert second.open(token=game.token).opened.fields["turns"] == 1
