"""A server whose bundle reads everyday words, and one without a model: errors and pictures of any size on request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer, RawClient, frames, refusal
from tiny_reader import CAPTIONS, GAME, LANGUAGE, add_reader

import fakes
from animegamer_client import Client, Frame, Restarting, ServerRefused, Understood
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.serving.server.rehearsal import ENDED, REFUSED
from animegamer_rt.serving.wire.codec import Message


@pytest.fixture(scope="module")
def words(reading: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with LiveServer(reading, tmp_path_factory.mktemp("state")) as server:
        yield server.ready()


@pytest.fixture
def newer(words: LiveServer) -> Iterator[RawClient]:
    with words.client(minor=1) as client:
        yield client


def captions(events: list[Message]) -> list[str]:
    return [event.fields["caption"] for event in events if event.type == "understood"]


@pytest.mark.parametrize("window", [0, 2])
def test_each_turn_goes_on_from_the_scene_before_it(newer: RawClient, window: int) -> None:
    game = newer.open(history_turns=window)
    turns = [newer.play(game, text) for text in GAME]
    assert [captions(turn) for turn in turns] == [[caption] for caption in CAPTIONS]
    assert [event.type for event in turns[0][:3]] == ["accepted", "understood", "state"]
    assert turns[0][0].fields["instruction"] == GAME[0]
    for turn in turns:
        frames(turn)
    branch = newer.ask("branch", {"token": game.token, "turn": 2}, session=game.session, answer="opened")
    other = newer.open(token=branch.fields["token"])
    assert captions(newer.play(other, "party, please")) == [CAPTIONS[1].replace("a raincoat", "party clothes")]
    newer.ask("rewind", {"token": game.token, "turn": 2}, session=game.session, answer="rewound")
    assert frames(newer.play(game, GAME[2])) == frames(turns[2])


def test_a_client_of_version_1_0_is_sent_its_own_messages_only(words: LiveServer, newer: RawClient) -> None:
    game = newer.open()
    first = newer.play(game, GAME[0])
    with words.client() as older:
        assert older.open(token=game.token).session == game.session
        again = older.rest(older.send("replay", {"token": game.token}, session=game.session, turn=1))
    assert frames(again) == frames(first) and not captions(again)
    assert [event.type for event in again] == [event.type for event in first if event.type != "understood"]


def test_a_replay_tells_again_what_was_understood(newer: RawClient) -> None:
    game = newer.open()
    turns = [newer.play(game, text) for text in (*GAME[:2], "she explodes, and runs")]
    told = [event.fields for event in turns[2] if event.type == "understood"]
    assert told[0]["unknown"] == ["explodes"] and told[0]["notice"].startswith('not understood: "explodes"')
    rest = newer.rest(newer.send("replay", {"token": game.token, "after_seq": 10}, session=game.session, turn=3))
    assert [event.fields for event in rest if event.type == "understood"] == told


def test_text_that_it_cannot_read_is_answered_and_loses_nothing(newer: RawClient) -> None:
    game = newer.open()
    accepted = newer.play(game, "\u202e" + GAME[0] + "\x00\u202c")[0]
    assert accepted.fields["instruction"] == GAME[0], "control characters are left out"
    for text in ("x" * 10_000, "", "\u202e\x07"):
        assert newer.play(game, text)[-1].fields["code"] == "instruction"
    for text in ("hello", "123"):
        refused = newer.play(game, text)[-1].fields
        assert refused["code"] == "not_understood" and refused["answer"] == [{"code": "nothing_understood"}]
    newer.play(game, GAME[0])
    assert newer.play(game, "undo")[-1].fields["code"] == "undo"
    assert captions(newer.play(game, GAME[1])) == [CAPTIONS[1]], "the game goes on from what it showed"


def test_replays_and_exports_show_what_was_understood_whatever_the_rules_are_now(tmp_path: Path) -> None:
    bundle, state = add_reader(fakes.write_bundle(tmp_path / "tiny")), tmp_path / "state"
    with LiveServer(bundle.folder, state) as server, server.ready().client(minor=1) as player:
        game = player.open(seed=7)
        first = player.play(game, "Tobo waves")
        player.play(game, GAME[1])
    language = {**LANGUAGE, "phrases": {**LANGUAGE["phrases"], "dressed": "{name} wearing {clothes}"}}
    (bundle.folder / "language.json").write_text(json.dumps(language), encoding="utf-8")
    write_manifest(bundle.folder, bundle.manifest)
    with LiveServer(bundle.folder, state) as server, server.ready().client(minor=1) as player:
        game = player.open(token=game.token)
        again = player.rest(player.send("replay", {"token": game.token}, session=game.session, turn=1))
        assert captions(again) == captions(first) and captions(first)[0].startswith("Character: Tobo in ")
        assert frames(again) == frames(first)
        exported = player.rest(player.send("export", {"token": game.token}, session=game.session))[-1].fields
        turns = json.loads((Path(exported["folder"]) / "game.json").read_text())["turns"]
        assert turns[0]["caption"] == captions(first)[0]
        assert "Mia wearing " in captions(player.play(game, "Mia waves, no wait, not Mia"))[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The bundle pocket, of another size."""
    folder = tmp_path_factory.mktemp("rehearsal")
    with LiveServer(Path("pocket"), folder, "--frame-size", "200x120", device="simulated:0.05") as server:
        yield server.ready()


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with Client(f"tcp://127.0.0.1:{server.port}", timeout_s=60) as client:
        yield client


def test_pictures_have_the_size_that_was_asked_for(client: Client) -> None:
    bundle = client.connect().bundle
    assert (bundle.width, bundle.height) == (200, 120)
    frames = [event for event in client.open(seed=3).turn("Mirel waves.") if isinstance(event, Frame)]
    assert [frame.pixels.shape for frame in frames] == [(120, 200, 3)] * 17


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--frame-size", "720"), "--frame-size: not a frame size; found '720'; expected WIDTHxHEIGHT"),
        (("--frame-size", "8192x16"), "16 to 4096 each"),
        (("--frame-size", "720x480", "--device", "cpu"), "only simulated engines have frames of any size"),
    ],
)
def test_a_size_that_cannot_be_is_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    code, text = refusal(Path("pocket"), tmp_path / "state", *options)
    assert code == 2 and said in text


def test_each_error_comes_when_a_sentence_asks_for_it_and_costs_no_turn(client: Client) -> None:
    game = client.open(seed=3)
    for code in (*REFUSED, *ENDED):
        with pytest.raises(ServerRefused) as refused:
            list(game.turn(f"Mirel waves. Fail: {code}"))
        assert refused.value.code == code and game.turns == 0
    with pytest.raises(
        ServerRefused, match="no such fault can be rehearsed; found weather; expected worker_lost, busy"
    ):
        list(game.turn("Mirel waves. fail: weather"))
    assert list(game.turn("Mirel waves.")) and game.turns == 1


def test_a_lost_worker_and_a_notice_are_those_of_any_game(client: Client, server: LiveServer) -> None:
    game = client.open(seed=3)
    events = list(game.turn("Mirel waves. fail: worker_lost"))
    assert [event.attempt for event in events if isinstance(event, Restarting)] == [1]
    assert len([event for event in events if isinstance(event, Frame)]) == 17 and game.turns == 1
    assert server.status()["worker"]["restarts"] == 1
    notices = [event.notice for event in game.turn("Mirel rides a unicorn.") if isinstance(event, Understood)]
    assert notices and "unicorn" in str(notices[0])
