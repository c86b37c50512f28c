"""Who plays next, at which worker, what a job counts for, and when it is told to expect its turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_server import SHOT, Game, Listener, SimulatedServer

from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.wire.codec import Message


@pytest.fixture
def two(store: Store, tmp_path: Path) -> SimulatedServer:
    return SimulatedServer(store, tmp_path, workers=2)


def test_a_second_game_on_a_connection_does_not_wait_for_the_first_to_go_on(server: SimulatedServer) -> None:
    client = Listener()
    one, second, third = (server.played(client=client) for _ in range(3))
    one.turn("one")
    second.turn("two")
    server.finish()
    one.turn("again")
    third.turn("three")
    assert client.heard[-1].fields["place"] == 1, "a first turn goes before a second one"
    server.finish()
    assert server.worker.instructions == ["three", "again"]


def test_the_place_in_accepted_counts_the_turns_that_go_before(server: SimulatedServer) -> None:
    client, polite = Listener(), server.played()
    greedy = [server.played(client=client) for _ in range(5)]
    places = [client.heard[-1].fields["place"] for game in greedy if game.turn("greedy")]
    assert places == [0, 1, 2, 3, 4]
    polite.turn("polite")
    assert polite.client.heard[-1].fields["place"] == 1, "only what runs now"
    assert server.worker.instructions == ["greedy", "polite"], "and not what the worker was given before"


def test_a_connection_has_half_the_queue_and_always_a_place(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, queue=4)
    client = Listener()
    for _ in range(4):
        server.played(client=client).turn()
    assert client.kinds()[-1] == "busy", "one runs, two wait"
    other = server.played()
    other.turn()
    assert other.client.kinds()[-1] == "accepted"


def test_an_export_and_a_long_prediction_wait_for_others_after_each_part(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, export_turns=0, turns_per_minute=0)
    exported, replayed, polite = server.played(30), server.played(140), server.played()
    store.database.rows("DELETE FROM checkpoints")  # as in a store of an earlier version
    exported.ask("export")
    replayed.ask("replay", of_turn=120)
    order = list[str]()
    while server.worker.given:
        job = server.worker.job
        assert job.turn is not None
        kind = str(job.fields["kind"])
        names = {exported.session: "export", replayed.session: kind, polite.session: "polite"}
        order.append(names[str(job.session)])
        if kind == "predict":
            first = job.fields["omitted_turns"] + len(job.fields["shots"]) + 1
            server.says("shots", shots={str(turn): SHOT for turn in range(first, job.turn)[-2:]})
        elif kind == "export":
            Path(job.fields["folder"]).mkdir(exist_ok=True)
            server.says("shots", shots={str(job.turn): SHOT})
        last = kind == "turn" or (kind == "export" and job.turn == 30)
        ended = {"files": [], "seconds": {"total": 1.0, "predictor": 0.2}}
        server.says("finished" if last else "part", **(ended if last else {}))
        if server.job(polite) is None and len(order) < 20:
            polite.ask("replay", of_turn=1)
    assert all("polite" in order[start : start + 3] for start in range(2, 20)), "nobody waits for more than two parts"
    assert order.count("predict") == 23 and order.count("turn") == 1 and order.count("export") == 30
    kinds = [game.client.kinds()[-1] for game in (exported, replayed)]
    assert kinds == ["exported", "done"]
    assert store.missing_shots(replayed.session, 101) == 0, "the checkpoint is there again"
    assert store.missing_shots(replayed.session, 116) == 0, "and what a replay predicted is kept for the next"


def test_replays_exports_and_predictions_are_charged_and_estimated_by_their_cost(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, turns_per_minute=12, export_turns=40)
    game, other = server.played(60), server.played()
    other.turn()
    server.result()
    server.says("finished", seconds={"total": 1.0, "predictor": 0.25})
    game.ask("replay", of_turn=30)
    accepted = game.client.heard[-1].fields
    assert accepted["estimate_s"] == 1.0 + 29 * 0.25, "it predicts 29 turns first"
    other.turn()
    assert other.client.heard[-1].fields["estimate_s"] == 2.0, "but lets who comes later by"
    game.ask("cancel")
    server.stopped()
    server.finish()
    assert game.answer("export").fields["code"] == "too_large"
    assert game.answer("replay", of_turn=60).type == "accepted", "9 of 12 turns were charged"
    server.says("finished", seconds={"total": 1.0, "predictor": 0.25})
    server.now += 30.0
    game.ask("replay", of_turn=40)
    server.says("finished", seconds={"total": 1.0, "predictor": 0.25})
    refused = game.answer("replay", of_turn=60).fields
    assert refused["code"] == "rate_limited" and refused["do"] == "wait 15 s"


def test_a_session_has_so_many_turns_a_minute(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, turns_per_minute=1)
    game = server.open()
    game.turn()
    assert game.answer("turn", instruction="a", turn_id="b").fields["code"] == "turn_running"
    server.finish()
    server.now = 59.7
    again = game.answer("turn", instruction="a", turn_id="b").fields
    assert again["code"] == "rate_limited" and again["do"] == "wait 1 s"
    server.now = 60.7
    assert game.answer("turn", instruction="a", turn_id="b").type == "accepted", "who waits as long as told is let in"


def test_games_that_a_connection_opens_in_a_minute_are_bounded(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, turns_per_minute=3)
    hasty = server.open()
    for _ in range(29):
        server.open(hasty.client)
    server.ask(hasty.client, Message("open", {"seed": 1}, "open"))
    assert hasty.client.kinds()[-1] == "rate_limited" and server.open()


# Several workers


def given(server: SimulatedServer) -> list[list[str]]:
    return [worker.instructions for worker in server.workers]


def play(server: SimulatedServer, *texts: str) -> list[Game]:
    """A new game for each turn."""
    games = [server.played() for _ in texts]
    for game, text in zip(games, texts, strict=True):
        game.turn(text)
    return games


def test_turns_are_spread_and_a_game_goes_on_where_it_is_warm(two: SimulatedServer) -> None:
    one, other = play(two, "one", "two")
    assert given(two) == [["one"], ["two"]]
    for worker in two.workers:
        two.finish(worker)
    other.turn("two again")
    one.turn("one again")
    assert given(two) == [["one again"], ["two again"]]


def test_places_and_estimates_count_all_workers(two: SimulatedServer) -> None:
    play(two, "first")
    two.finish()
    told = [game.client.heard[-1].fields for game in play(two, *"abcde")]
    assert [fields["place"] for fields in told] == [0, 0, 2, 3, 4]
    assert [fields["estimate_s"] for fields in told] == [1.0, 1.0, 2.0, 2.0, 3.0]
    two.dies(two.workers[0], back=False)
    (last,) = play(two, "last")
    assert last.client.heard[-1].fields["estimate_s"] == 6.0, "all six, one after the other"


def test_a_turn_that_takes_far_too_long_holds_up_nobody(two: SimulatedServer) -> None:
    play(two, "first")
    two.finish()
    play(two, "stuck")
    two.now = 0.5
    play(two, "runs", "waits", "last")
    stuck, other = sorted(two.workers, key=lambda worker: worker.instructions[0] != "stuck")
    assert (stuck.instructions, other.instructions) == (["stuck", "waits"], ["runs", "last"])
    two.tick(1.7)
    assert (stuck.instructions, other.instructions) == (["stuck"], ["runs", "waits"])
    two.finish(other)
    assert (stuck.instructions, other.instructions) == (["stuck"], ["waits", "last"])
