"""What a player relies on: a turn's events, the same turn again, branch, cancel, reconnection; what is told and what is
kept agree."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from live_server import LiveServer, RawClient, error_code, frames, refusal

import fakes
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.video import write_clip

STORY = ("Mia waves.", "Tobo runs to the forest.", "Mia sleeps.", "Tobo flies on a kite.")


@pytest.fixture(scope="module")
def slow(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(bundle, tmp_path_factory.mktemp("slow"), device="simulated:2") as server:
        yield server.ready()


def test_a_turn_tells_its_state_first_then_frames_then_done(player: RawClient) -> None:
    game = player.open(seed=5)
    events = player.play(game, "  Mia\twaves\u0007. ", turn_id="first")
    kinds = [event.type for event in events]
    assert kinds == ["accepted", "state", *["progress"] * 3, *["frame"] * 17, "done"]
    assert {event.session for event in events} == {game.session}
    assert {event.turn for event in events} == {1}
    frames(events)
    assert events[0].fields["instruction"] == "Mia waves."
    assert events[0].fields["place"] == 0 and not events[0].fields["replayed"]
    picture = events[5].fields
    assert (picture["pixel_format"], picture["codec"], picture["stride"]) == ("rgba32", "raw", 24 * 4)
    assert events[-1].fields["turns"] == 1
    assert player.open(token=game.token).opened.fields["character"] == events[1].fields["character"]


def test_the_same_turn_id_is_the_same_turn(player: RawClient) -> None:
    game = player.open()
    first = player.play(game, STORY[0], turn_id="once")
    again = player.play(game, "something else", turn_id="once")
    assert frames(again) == frames(first)
    assert again[0].fields["replayed"] and again[0].fields["instruction"] == STORY[0]
    assert again[1].fields == first[1].fields
    assert again[-1].fields["turns"] == 1


def test_replay_sends_what_comes_after_a_sequence_number(player: RawClient) -> None:
    game = player.open()
    first = player.play(game)
    player.play(game, STORY[1])
    rest = player.rest(player.send("replay", {"token": game.token, "after_seq": 10}, session=game.session, turn=1))
    assert [event.seq for event in rest] == list(range(11, 23))
    assert [bytes(event.buffers[0]) for event in rest[:-1]] == frames(first)[6:]
    assert rest[-1].fields["turns"] == 2
    (end,) = player.rest(player.send("replay", {"token": game.token, "after_seq": 99}, session=game.session, turn=1))
    assert (end.type, end.seq) == ("done", 22), "every request is answered"


def test_a_branch_with_a_seed_of_its_own_looks_different_from_there_on(player: RawClient) -> None:
    game = player.open(seed=11)
    played = [frames(player.play(game, text)) for text in STORY[:2]]
    branch = player.ask("branch", {"token": game.token, "turn": 1, "seed": 12}, session=game.session, answer="opened")
    other = player.open(token=branch.fields["token"])
    assert frames(player.play(other, STORY[1])) != played[1]
    again = player.rest(player.send("replay", {"token": other.token}, session=other.session, turn=1))
    assert frames(again) == played[0], "a shared turn looks as it did in the game it comes from"


def test_list_pages_through_a_long_game(player: RawClient) -> None:
    game = player.open()
    for number in range(3):
        player.play(game, f"Mia waves {number}.", turn_id=f"t{number}")
    listed = player.ask("list", {"token": game.token}, session=game.session, answer="listed").fields
    assert [turn["turn_id"] for turn in listed["turns"]] == ["t0", "t1", "t2"] and not listed["more"]
    listed = player.ask("list", {"token": game.token, "before": 3}, session=game.session, answer="listed").fields
    assert [turn["instruction"] for turn in listed["turns"]] == ["Mia waves 0.", "Mia waves 1."]


def test_an_mp4_client_gets_in_pieces_the_file_that_play_writes(server: LiveServer, tmp_path: Path) -> None:
    with server.client() as player:
        sent = frames(player.play(player.open(seed=3)))
        shown = np.stack([np.frombuffer(one, np.uint8).reshape(16, 24, 4)[..., :3] for one in sent])
    write_clip(tmp_path / "turn.mp4", shown, fps=8)
    with server.client(codec="mp4") as player:
        events = player.play(player.open(seed=3))
        pieces = [event for event in events if event.type == "clip"]
        assert not any(event.type == "frame" for event in events)
        assert [piece.fields["last"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
        assert b"".join(bytes(piece.buffers[0]) for piece in pieces) == (tmp_path / "turn.mp4").read_bytes()


def test_cancel_ends_the_turn_and_leaves_the_game_as_it_was(slow: LiveServer) -> None:
    with slow.client() as player:
        game = player.open()
        turn = player.begin(game, turn_id="again")
        player.until(turn, "progress")
        cancel = {"token": game.token}
        assert player.ask("cancel", cancel, session=game.session, control=True).fields == {"running": True}
        ended = player.rest(turn)
        assert error_code(ended) == "cancelled"
        assert sum(event.type == "progress" for event in ended) <= 1, "within a step"
        assert player.ask("cancel", cancel, session=game.session, control=True).fields == {"running": False}
        assert player.open(token=game.token).opened.fields["turns"] == 0
        assert frames(player.play(game, turn_id="again")), "the engine is free again"


def test_a_running_turn_goes_on_at_another_connection(slow: LiveServer) -> None:
    with slow.client() as first, slow.client() as second, slow.client() as third:
        game = first.open()
        begun = first.begin(game, turn_id="moving")
        seen = first.until(begun, "state")
        moved = second.open(token=game.token)
        assert moved.opened.fields["running"] == {"turn": 1, "turn_id": "moving"}
        replay = {"token": game.token, "after_seq": seen[-1].seq}
        seen += second.until(second.send("replay", replay, session=game.session, turn=1), "progress")
        rest = third.rest(third.begin(moved, "ignored", turn_id="moving"))
        assert frames(rest)
        assert [event.seq for event in seen[:3]] == [0, 1, 2]
        assert rest[1].fields == seen[1].fields


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
        there = sorted(path.name for path in folder.iterdir())
        assert folder.is_absolute() and sorted(exported.fields["files"]) == there
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]
        assert (state / "worker.log").stat().st_mode & 0o077 == 0
        folder.parent.rename(state / "away")
        folder.parent.write_text("no folder")
        failed = player.rest(player.send("export", {"token": game.token}, session=game.session))
        assert error_code(failed) == "storage" and str(tmp_path) not in str(failed[-1].fields)
        state.rename(tmp_path / "away")
        failed = player.rest(player.send("export", {"token": game.token}, session=game.session))
        assert error_code(failed) == "storage" and not state.exists(), "or it could not be moved back"
        (tmp_path / "away").rename(state)
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
    with LiveServer(bundle, state, code=int8) as server, server.listening().client() as player:
        early = player.open(token=game.token)  # the worker still loads, so it is refused with its turn
        server.ready()
        last = player.play(early)[-1]
        assert error_code(last) == "engines_mismatch"
        assert "found attention: flash; expected attention: int8" in last.fields["text"]
        refused = player.ask("open", {"token": game.token}, answer="error").fields
        assert refused["code"] == "engines_mismatch" and next(iter(ALLOWED)) in refused["do"]
        assert refused["text"] == last.fields["text"]
        assert player.ask("list", {"token": game.token}, session=game.session, answer="listed").fields["turns"]
        assert frames(player.play(player.open(token=fresh.token))), "nobody has made a turn of it"
    with LiveServer(bundle, state, code=int8, **ALLOWED) as server, server.ready().client() as player:
        assert frames(player.play(player.open(token=game.token)))
    with LiveServer(bundle, state, code=flash) as server, server.ready().client() as player:
        refused = player.ask("open", {"token": game.token}, answer="error").fields
        assert "found attention: int8; expected attention: flash" in refused["text"], "its last turn is marked"
