"""Stories of jobs, from a client's request to its last message, told with the server's core and simulated workers."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from simulated_server import SHOT, STATE, Game, Listener, SimulatedServer

from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import StoreError
from animegamer_rt.noise import VERSION
from animegamer_rt.serving.server.ahead import MAX_BEGUN
from animegamer_rt.serving.server.dispatch import PREDICT_AGAIN_S
from animegamer_rt.serving.server.effects import Counted
from animegamer_rt.serving.server.storage import EXPORTS_KEPT
from animegamer_rt.serving.store.database import Quota
from animegamer_rt.serving.store.store import Store
from animegamer_rt.serving.store.turns import StoredTurn
from animegamer_rt.serving.wire.codec import Message
from animegamer_rt.serving.wire.worker_messages import FrameOptions, GameStarted
from animegamer_rt.state.game import CharacterState


def test_the_worker_has_the_next_turn_before_the_running_one_ends(server: SimulatedServer) -> None:
    first, second, third = server.open(), server.open(), server.open()
    for game, text in ((first, "one"), (second, "two"), (third, "three")):
        game.turn(text)
    assert server.worker.instructions == ["one", "two"], "one ahead, and not the whole queue"
    assert [game.client.heard[-1].fields["place"] for game in (first, second, third)] == [0, 1, 2]
    server.now = 3.0
    server.finish()
    assert first.turns == 1 and server.worker.instructions == ["two", "three"]
    server.says("state", seq=1)
    assert second.client.kinds() == ["opened", "accepted", "state"]
    server.finish()
    done = second.client.heard[-1]
    assert done.type == "done" and done.seq == 2 and done.fields["seconds"]["queue"] == 3.0
    server.finish()
    assert server.core.queue.idle and not server.worker.given


def test_a_turn_that_came_in_the_middle_of_a_round_has_not_waited_less_than_nothing(server: SimulatedServer) -> None:
    first, second = server.open(), server.open()
    first.turn()
    server.now = 3.004
    second.turn()
    server.now = 3.0  # the round began before the turn came
    server.finish()
    server.finish()
    assert second.client.heard[-1].fields["seconds"]["queue"] == 0.0


def test_an_overdue_turn_that_waits_ends_at_once_one_that_runs_when_its_worker_says(server: SimulatedServer) -> None:
    first, hasty, third = server.open(), server.open(), server.open()
    first.turn("one")
    hasty.turn("two", deadline_s=2.0)
    third.turn("three")
    late = server.worker.given[1].id
    assert late is not None
    server.tick(2.5)
    assert hasty.client.kinds()[1:] == ["accepted", "deadline"] and server.worker.cancelled == [late]
    assert server.worker.instructions == ["one", "three"]
    server.says("state", job=late, seq=1)  # the worker had begun it before it heard
    server.finish()
    third.ask("cancel")
    assert third.client.kinds()[1:] == ["accepted", "cancelling"], "a running one ends when the worker says so"
    server.stopped()
    assert third.client.kinds()[-1] == "cancelled" and third.turns == 0 and server.core.queue.idle
    assert hasty.turns == 0 and "state" not in hasty.client.kinds()


def test_a_turn_that_cannot_be_handed_over_lets_the_one_behind_it_by(server: SimulatedServer) -> None:
    first, lost, third = server.open(), server.open(), server.open()
    for game, text in ((first, "one"), (lost, "two"), (third, "three")):
        game.turn(text)
    server.store.finish_turn(lost.session, StoredTurn(1, "another", "Tobo runs.", 7, STATE, CharacterState()), {})
    server.dies()
    assert lost.client.kinds()[1:] == ["accepted", "no_such_turn"], "the session went on without it"
    assert server.worker.instructions == ["three"]
    server.finish()
    assert server.worker.instructions == ["one"], "it may kill the next worker too, so it comes last"


def resumed_game(server: SimulatedServer) -> Game:
    """A game whose eighth turn needs shots of earlier turns that have to be predicted again."""
    game = server.played(10)
    server.store.rewind(game.session, 7)
    return game


def test_a_turn_that_has_shots_to_predict_again_has_the_time_for_it_once(server: SimulatedServer) -> None:
    patient, hasty = resumed_game(server), resumed_game(server)
    deadline = server.options.turn_deadline_s
    patient.turn()
    server.dies()
    server.tick(deadline + 7 * PREDICT_AGAIN_S - 0.1)
    assert patient.client.kinds()[-1] == "restarting"
    server.tick(0.2)
    server.stopped()
    assert patient.client.kinds()[-1] == "deadline"
    hasty.turn(deadline_s=5.0)
    server.tick(5.1)
    server.stopped()
    assert hasty.client.kinds()[-1] == "deadline", "the client's own deadline is not extended"


def test_shots_that_were_predicted_again_stay_though_the_turn_fails(server: SimulatedServer) -> None:
    game = resumed_game(server)
    game.turn()
    server.says("shots", shots={"6": b"6", "7": b"7"})
    game.ask("cancel")
    server.stopped()
    history = server.store.turn_context(game.session, 8)
    assert (history.first, dict(history.shots)) == (5, {6: b"6", 7: b"7"}) and game.turns == 7


def test_who_comes_back_gets_the_events_that_it_lacks(server: SimulatedServer) -> None:
    game = server.open()
    game.turn(turn_id="a")
    for seq in (1, 2):
        server.says("frame", seq=seq)
    server.vanishes(game.client)
    again, other = Listener(), Listener(FrameOptions(codec="mp4"))
    game.client = again
    game.ask("replay", of_turn=1, after_seq=1)
    assert [message.seq for message in again.heard] == [2]
    game.client = other
    game.turn(turn_id="a")
    server.says("frame", seq=3)
    server.finish()
    assert other.kinds() == ["accepted"], "it wants frames in another form, so the turn is rendered again"
    assert server.worker.job.fields["frames"]["codec"] == "mp4" and game.turns == 1
    server.says("finished", seconds={})
    assert other.kinds() == ["accepted", "done"] and game.turns == 1


def test_a_fault_in_what_a_worker_says_ends_that_job_alone(server: SimulatedServer) -> None:
    game, other = server.open(), server.open()
    game.turn()
    other.turn()
    server.says("turn_result", shots=[1])
    server.stopped()
    server.finish()
    assert game.client.kinds()[-1] == "internal" and other.client.kinds()[-1] == "done"


def test_a_stored_turn_is_not_seen_before_it_is_done(server: SimulatedServer) -> None:
    game = server.open()
    game.turn(turn_id="one")
    server.finish()
    before = game.answer("open").fields
    game.turn(turn_id="two")
    server.result()
    assert game.turns == 2
    opened = game.answer("open").fields
    assert opened == {**before, "running": {"turn": 2, "turn_id": "two"}} and opened["turns"] == 1
    assert [turn["turn_id"] for turn in game.answer("list").fields["turns"]] == ["one"]
    assert game.answer("branch", turn=2).fields["code"] == "no_such_turn"
    server.says("finished", seconds={})
    opened = game.answer("open").fields
    assert opened["turns"] == 2 and opened["character"] != before["character"]


# Exports and starts from a picture


def export(server: SimulatedServer, game: Game, end: str = "finished", **fields: Any) -> Path:
    """Where a worker wrote a game, which it has ended."""
    game.ask("export")
    folder = Path(server.worker.job.fields["folder"])
    folder.mkdir()
    (folder / "game.json").write_text("{}")
    for _ in range(1, game.turns):
        server.says("part")
    server.says(end, **(fields or {"files": ["game.json"]}))
    return folder


def test_a_sweep_empties_our_logs_that_are_long(server: SimulatedServer, tmp_path: Path) -> None:
    sizes = {"worker.log": 2**24, "worker-2.log": 2**24 + 1, "ray.log": 2**24 + 1, "mine.log": 2**24 + 1}
    for name, size in sizes.items():
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, size)
    server.storage.sweep([], server.now)
    assert [(tmp_path / name).stat().st_size for name in sizes] == [2**24, 0, 0, 2**24 + 1]


def test_a_game_keeps_its_newest_exports_as_long_as_it_is_there(
    server: SimulatedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = server.played()
    for _ in range(EXPORTS_KEPT + 2):
        assert not export(server, game).exists(), "it is renamed when it is complete"
    told = [Path(message.fields["folder"]) for message in game.client.heard if message.type == "exported"]
    assert len({*told}) == len(told) and [folder for folder in told if folder.is_dir()] == told[-EXPORTS_KEPT:]
    with monkeypatch.context() as no_descriptors:
        no_descriptors.setattr(Path, "glob", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        server.storage.sweep([], server.now)
    half = export(server, game, "failed", code="cancelled", text="stopped")
    assert not half.exists() and len(list((tmp_path / "exports").iterdir())) == EXPORTS_KEPT
    server.store.close_session(game.session)
    server.store.quota = Quota(max_bytes=0, recent_s=-1)
    server.storage.sweep([], server.now)
    assert server.store.count() == 0 and not list((tmp_path / "exports").iterdir())


def test_each_turn_keeps_the_noise_it_was_played_with(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path)
    game = server.played(2)
    store.database.rows("UPDATE turns SET noise_version = 1")  # played before there was another
    branch, token = store.branch(game.session, 1)
    for of in (game, Game(server, game.client, branch.id, token)):
        last = of.turns
        of.ask("replay", of_turn=last)
        assert server.worker.job.fields["noise_version"] == 1
        server.says("finished", seconds={"total": 1.0})
        of.turn("Tobo runs.")
        assert server.worker.job.fields["noise_version"] == VERSION
        server.finish()
        of.ask("export")
        for version in [1] * last + [VERSION]:
            assert server.worker.job.fields["noise_version"] == version
            server.says("part" if version == 1 else "finished", files=[])


def test_exports_count_like_turns(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, turns_per_minute=2)
    game = server.open()
    game.turn()
    server.finish()
    export(server, game)
    assert game.answer("export").fields["code"] == "rate_limited"


def start(server: SimulatedServer, client: Any) -> None:
    fields = {"seed": 7, "history_turns": 2, "motion": "gently wave"}
    server.ask(client, Message("open", fields, "open", buffers=(b"picture",)))


def test_a_game_that_starts_from_a_picture_opens_when_a_worker_has_made_its_turn_0(server: SimulatedServer) -> None:
    client, gone = Listener(), Listener()
    start(server, client)
    start(server, gone)
    assert client.heard == [] and server.worker.job.fields["picture"] == b"picture"
    made = GameStarted("Mia waves.", SHOT)
    server.says("finished", **made.to_fields())
    (opened,) = client.heard
    assert opened.parent == "open" and opened.fields["turns"] == 0 and server.store.count() == 1
    assert server.store.turn_context(str(opened.session), 1).start is not None
    server.vanishes(gone)
    server.says("finished", **made.to_fields())
    assert gone.heard == [] and server.store.count() == 1, "nobody would have its token"


# Speculative turns


def ahead(store: Store, folder: Path, **options: Any) -> tuple[SimulatedServer, Game]:
    """A server that plays ahead, and a game whose next turn it has just begun: the same as the last."""
    server = SimulatedServer(store, folder, **{"ahead": 1, **options})
    game = server.open()
    game.turn()
    server.finish()
    server.tick(0.05)
    assert not server.worker.given, "not before a player had time to answer"
    server.tick(0.5)
    assert server.worker.instructions == ["Mia waves."] and server.core.queue.idle
    return server, game


def play_ahead(server: SimulatedServer) -> None:
    server.says("state", seq=1)
    server.result()
    server.says("frame", seq=2)
    server.says("finished", seconds={"total": 1.0})


def test_a_ready_turn_is_answered_at_once_and_its_pictures_wait_for_no_disk(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, game = ahead(store, tmp_path)
    play_ahead(server)
    offer = game.client.heard[-1]
    assert offer.type == "offer" and offer.fields == {"instructions": ["Mia waves."]} and offer.turn == 2
    assert game.turns == 1
    store_turn, seen = server.storage.store_turn, list[list[str]]()

    def notes_what_was_heard(*given: Any) -> None:
        seen.append(game.client.kinds()[-3:])
        store_turn(*given)

    monkeypatch.setattr(server.storage, "store_turn", notes_what_was_heard)
    asked = game.turn("Mia waves.")
    assert seen == [["accepted", "state", "frame"]]
    assert game.client.kinds(asked) == ["accepted", "state", "frame", "done"] and game.turns == 2
    assert Counted("ahead_used") in server.noted


def test_a_turn_that_is_asked_for_while_it_is_played_ahead_goes_on(store: Store, tmp_path: Path) -> None:
    server, game = ahead(store, tmp_path)
    server.says("state", seq=1)
    asked = game.turn("Mia waves.")
    assert game.client.kinds(asked) == ["accepted", "state"] and server.worker.cancelled == []
    server.finish()
    assert game.client.kinds(asked) == ["accepted", "state", "done"] and game.turns == 2


def test_a_speculative_turn_stops_as_soon_as_a_real_one_comes(store: Store, tmp_path: Path) -> None:
    server, game = ahead(store, tmp_path)
    other, job = server.open(), server.worker.job.id
    other.turn("Tobo runs.")
    assert server.worker.cancelled == [job] and server.worker.instructions == ["Mia waves.", "Tobo runs."]
    server.stopped()
    server.finish()
    assert other.client.kinds()[-1] == "done" and "offer" not in game.client.kinds()
    assert any(isinstance(note, Counted) and note.what == "ahead_wasted_seconds" for note in server.noted)


def test_a_ready_turn_that_ends_in_an_error_ends_there(store: Store, tmp_path: Path) -> None:
    server, game = ahead(store, tmp_path, engines=EngineConfig("simulated:1"))
    game.ask("wish", instructions=["Mia runs."])
    server.stopped()
    play_ahead(server)
    asked = game.turn("Mia runs. fail: deadline")
    assert game.client.kinds(asked) == ["accepted", "state", "deadline"] and game.turns == 1
    real = SimulatedServer(store, tmp_path).open()
    real.turn("Mia runs. fail: busy")
    real.server.finish()
    assert real.client.kinds()[-1] == "done", "real engines play such a sentence like any other"


def test_a_rewound_game_has_no_ready_turn(store: Store, tmp_path: Path) -> None:
    server, game = ahead(store, tmp_path)
    play_ahead(server)
    game.ask("rewind", turn=0)
    asked = game.turn("Mia waves.")
    assert game.client.kinds(asked) == ["accepted"] and server.worker.job.turn == 1


def test_a_game_wishes_for_lines_and_each_is_ready_before_any_guess(store: Store, tmp_path: Path) -> None:
    server, game = ahead(store, tmp_path, ahead=2)
    guessed = server.worker.job.id
    wished = game.answer("wish", instructions=["  Mia  runs. ", "Mia sits.", "Mia runs.", "Mia sleeps."])
    assert wished.type == "wished" and wished.turn == 2
    assert wished.fields["instructions"] == ["Mia runs.", "Mia sits."], "as they are played, each once, as many as fit"
    assert server.worker.cancelled == [guessed], "a guess makes way"
    server.stopped()
    for text in ("Mia runs.", "Mia sits."):
        assert server.worker.instructions == [text]
        play_ahead(server)
    assert game.client.heard[-1].fields == {"instructions": ["Mia runs.", "Mia sits."]}
    game.ask("wish", instructions=["Mia sits.", "Mia jumps."])
    server.tick(0.5)
    assert server.worker.instructions == ["Mia jumps."], "what is ready is not made again"
    play_ahead(server)
    assert game.client.heard[-1].fields == {"instructions": ["Mia sits.", "Mia jumps."]}
    asked = game.turn("Mia jumps.")
    assert game.client.kinds(asked) == ["accepted", "state", "frame", "done"] and game.turns == 2


def test_a_wish_during_a_turn_is_for_the_turn_after_it(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path, ahead=1)
    game = server.open()
    asked = game.turn()
    assert game.answer("wish", instructions=["Mia sits."]).turn == 2
    server.finish()
    server.tick(0.5)
    assert game.client.kinds(asked)[-1] == "done" and server.worker.instructions == ["Mia sits."]
    other = server.open()
    other.turn("Tobo runs.")
    server.stopped()
    server.finish()
    server.tick(0.5)
    assert server.worker.instructions == ["Mia sits."], "another player's turn was in its way: it is begun again"


def test_a_game_that_wishes_without_end_gets_its_share(store: Store, tmp_path: Path) -> None:
    server, game = ahead(store, tmp_path)
    server.stopped()
    begun = 0
    for number in range(20):
        game.ask("wish", instructions=[f"Mia waves {number} times."])
        server.tick(0.5)
        if server.worker.given:
            begun += 1
            play_ahead(server)
    assert begun + 1 == MAX_BEGUN
    refused = game.answer("wish", instructions=["  "])
    assert refused.fields["code"] == "instruction"
    game.ask("rewind", turn=0)
    server.tick(0.5)
    assert not server.worker.given, "a wish does not outlive a rewind"


def test_instructions_that_are_only_read_are_counted_too(store: Store, tmp_path: Path) -> None:
    server, game = ahead(store, tmp_path, turns_per_minute=15)
    answers = [game.answer("wish", instructions=[f"Mia waves {number} times."]) for number in range(320)]
    assert answers[250].type == "wished" and answers[-1].fields["code"] == "rate_limited"
    codes = [game.client.heard[-1].fields["code"] for _ in range(16) if game.turn("  ")]
    assert codes == [*["instruction"] * 14, "rate_limited", "rate_limited"], "one turn was played"


def test_a_server_that_plays_nothing_ahead_says_so(store: Store, tmp_path: Path) -> None:
    server = SimulatedServer(store, tmp_path)
    game = server.open()
    assert game.answer("wish", instructions=["Mia sits."]).fields == {"instructions": []}
    server.tick(5.0)
    assert not server.worker.given


def test_a_worker_that_dies_ahead_of_a_turn_costs_nobody_anything(store: Store, tmp_path: Path) -> None:
    server, game = ahead(store, tmp_path)
    server.dies()
    server.tick(5.0)
    assert not server.worker.given, "nothing is played ahead until a real turn was done"
    asked = game.turn("Mia runs.")
    server.finish()
    assert game.client.kinds(asked) == ["accepted", "done"]
    server.tick(5.0)
    assert server.worker.given


@pytest.mark.parametrize("error", [StoreError("disk I/O error"), TypeError("a number that is none")])
def test_a_session_that_cannot_be_read_is_not_played_ahead_and_ends_no_server(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    server = SimulatedServer(store, tmp_path, ahead=1)
    game = server.open()
    game.turn()
    server.finish()

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(server.storage, "job_message", fail)
        for _ in range(3):
            server.tick(1.0)
    assert not server.worker.given
    game.turn()
    assert server.worker.given, "real turns are played"
