"""Everyday words become a scene and its caption; what they leave out stays, through rewinds and branches too."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import tiny_reader
from tiny_reader import CAPTIONS, GAME

import animegamer_rt
import fakes
from animegamer_rt.api import Game, Player
from animegamer_rt.backends.interface import IntArray, ReaderEngine, ReaderLogits
from animegamer_rt.backends.onnxruntime.loader import load_reader
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.language_file import bundle_language
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.errors import BackendError, BundleFileError, ConfigError, InstructionError
from animegamer_rt.events import StatePredicted, Understood
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.stages.prompt import PromptBuilder
from animegamer_rt.stages.reader import InstructionReader, encode_scene
from animegamer_rt.state.game import Instruction


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return tiny_reader.add_reader(fakes.write_bundle(tmp_path / "tiny"))


@pytest.fixture
def player(bundle: Bundle) -> Player:
    return animegamer_rt.open(bundle)


def caption(game: Game, text: str) -> str:
    understood = game.turn(text).understood
    assert understood is not None
    return understood.scene.caption


NUMBERS = tiny_reader.SCENE_NUMBERS


@dataclass
class FixedReader:
    """Answers with these logits."""

    logits: ReaderLogits
    scene_numbers: int = NUMBERS
    told: IntArray | None = None

    def read(self, features: IntArray, scene: IntArray) -> ReaderLogits:
        self.told = scene
        return self.logits


def reader(bundle: Bundle, engine: ReaderEngine | None = None) -> InstructionReader:
    return InstructionReader.from_bundle(bundle, engine or load_reader(bundle))


def test_predictor_sees_captions_and_the_game_keeps_what_was_typed(bundle: Bundle) -> None:
    predictor = fakes.FakePredictor()
    pipeline = Pipeline.open(bundle, replace(fakes.fake_engines(predictor), reader=load_reader(bundle)))
    session, prompts = Session.start(bundle, seed=7), PromptBuilder.from_bundle(bundle)
    for turn, text in enumerate(GAME[:3]):
        history, events = session.history, list(pipeline.run_turn(session, Instruction(text)))
        assert [type(event) for event in events[:2]] == [Understood, StatePredicted]
        assert predictor.read[-1].same_as(prompts.build(CAPTIONS[turn], history).turn)
        assert session.history[-1].text == CAPTIONS[turn]
    assert tuple(record.text for record in session.log) == GAME[:3]


@pytest.mark.parametrize("window", [0, 2])
def test_rewound_and_branched_games_remember_the_scene_of_their_last_turn(player: Player, window: int) -> None:
    game, straight = player.start(seed=7, history_turns=window), player.start(seed=7, history_turns=window)
    for text in GAME:
        game.turn(text)
    for text in GAME[:2]:
        straight.turn(text)
    expected, branch = straight.turn("both"), game.branch(2)
    game.rewind(2)
    for other in (game, branch):
        np.testing.assert_array_equal(other.turn("both").frames, expected.frames)
    game.rewind(0)
    assert caption(game, GAME[0]) == CAPTIONS[0]


def test_a_turn_predicted_ahead_is_the_turn_itself(player: Player) -> None:
    pipeline, game = player.pipeline, player.start(seed=7)
    game.turn(GAME[0])
    events = game.session, Instruction(GAME[1])
    ahead = pipeline.predict(*events)
    predicted = next(event for event in pipeline.run_turn(*events) if isinstance(event, StatePredicted))
    np.testing.assert_array_equal(predicted.shot, ahead.shot)


def test_understood_says_the_scene_in_a_line_and_what_it_cannot_draw(bundle: Bundle) -> None:
    reading = reader(bundle).read(Instruction("Mia in a raincoat flies; a dragon explodes by the dragon"), None)
    assert reading.text == "Mia in a raincoat flies on a kite barely, town, day"
    assert reading.unknown == ("dragon", "explodes")
    assert reading.notice == 'not understood: "dragon", "explodes"'
    assert [answer.code for answer in reading.answer] == "came motion level place hour clothes not_understood".split()
    later = reader(bundle).read(Instruction("Tobo runs, night"), reading.scene)
    assert later.text == "Tobo came; Mia left; Tobo runs now; it is night" and later.notice is None
    assert reader(bundle).read(Instruction("both run"), None).text.endswith("wave barely, town, day")
    either = reader(bundle).read(Instruction("Mia flies runs"), None)
    assert either.notice == "not sure that this is what was meant"


@pytest.mark.parametrize("text", ["ミアが走る。", "миа бежит", "١٢٣", "123 456", "^ ^"])
def test_a_text_in_another_script_changes_nothing_and_is_answered_with_what_is_read(bundle: Bundle, text: str) -> None:
    reads = knowing(bundle, "tobo flies")
    for before in (None, reads.read(Instruction("Tobo flies"), None).scene):
        with pytest.raises(InstructionError, match="nothing understood; tiny reads English.*try: Mia waves") as refused:
            reads.read(Instruction(text), before)
        assert (refused.value.code, refused.value.answer) == ("not_understood", [{"code": "nothing_understood"}])


def test_only_the_first_words_of_a_long_text_are_read_and_that_is_said(bundle: Bundle) -> None:
    reading = reader(bundle).read(Instruction("Mia waves " + "so " * 94 + "Tobo"), None)
    assert reading.scene.people == ("Mia",) and reading.notice == "only the first 96 words are read"


def knowing(bundle: Bundle, vocabulary: str, undrawable: str = "") -> InstructionReader:
    words = replace(tiny_reader.WORDS, vocabulary=vocabulary, undrawable=undrawable)
    return InstructionReader(load_reader(bundle), None, words, bundle_language(bundle), "tiny")


def test_a_text_that_changes_nothing_is_answered_unless_it_asks_for_that(bundle: Bundle) -> None:
    reads = knowing(bundle, "mia waves hello hundreds again do it to the 🔥")
    before = reads.read(Instruction("Mia waves"), None).scene

    def problem(text: str) -> str | None:
        try:
            reading = reads.read(Instruction(text), before)
        except InstructionError as error:
            return f"refused: {error.what}".split(";")[0]
        assert reading.scene.shows_the_same(before)
        return reading.notice

    assert problem("do it") == problem("Mia waves") == "nothing changes"
    assert problem("hello") == problem("123") == problem("🍕🍕") == "refused: nothing understood"
    assert problem("a lightsaber to it") == 'refused: not understood: "lightsaber"'
    assert problem("hundreds") == "refused: a picture has room for two, one of each"
    assert problem("again") is None


def test_a_text_is_told_what_it_cannot_have(bundle: Bundle) -> None:
    reads = reader(bundle)
    before = reads.read(Instruction("Mia waves"), None).scene
    answers = {"Mia runs then": "a picture has one motion: runs", "Mia runs swims": 'runs, for: "swims"'}
    for text, told in answers.items():
        assert (reads.read(Instruction(text), before).notice or "").startswith(told), text


def test_a_word_for_what_cannot_be_drawn_is_told_and_not_guessed_at(bundle: Bundle) -> None:
    before = reader(bundle).read(Instruction("Mia waves"), None).scene
    guessed = knowing(bundle, "night runs").read(Instruction("night runs"), before)
    assert (guessed.scene.hour, guessed.notice) == ("night", None)
    told = knowing(bundle, "night runs", undrawable="night").read(Instruction("nihgt runs"), before)
    assert (told.scene.motion, told.scene.hour, told.unknown) == ("run", "day", ("nihgt",))


def test_who_finds_no_room_beside_two_others_is_told(bundle: Bundle) -> None:
    words = replace(tiny_reader.WORDS, people=("Mia", "Tobo", "Zed"))
    some = load_reader(bundle).read(np.zeros((1, 1, 48), np.int64), np.zeros((1, NUMBERS), np.int64))
    people, clothes = np.array([[0, 9, 0], [0, 0, 9], [9, 0, 0]], np.float32), np.zeros((3, 3), np.float32)
    refused = np.array([-9, 9, 9], np.float32)
    engine = FixedReader(replace(some, people=people, clothes=clothes, refused=refused), scene_numbers=11)
    reads = InstructionReader(engine, None, words, bundle_language(bundle), "tiny")
    notice = reads.read(Instruction("Mia, Tobo and Zed run"), None).notice or ""
    assert notice.startswith("a picture has room for two, so not for Zed")


@pytest.mark.parametrize(("lead", "changes"), [(1.5, False), (2.5, True)])
def test_place_hour_and_clothes_stay_unless_clearly_changed(bundle: Bundle, lead: float, changes: bool) -> None:
    some = load_reader(bundle).read(np.zeros((1, 1, 48), np.int64), np.zeros((1, NUMBERS), np.int64))
    second = np.array([0, lead], np.float32)
    clothes = np.array([[0, lead, 0]] * 2, np.float32)
    asked = replace(some, place=second, night=second, clothes=clothes, motion=np.array([0, lead, 0], np.float32))
    before = reader(bundle).read(Instruction("Mia waves"), None).scene
    scene = reader(bundle, FixedReader(asked)).read(Instruction("so be it"), before).scene
    assert (scene.place, scene.hour) == (("forest", "night") if changes else ("town", "day"))
    assert scene.clothes["Mia"] == ("raincoat" if changes else "everyday") and scene.motion == "run"
    doubtful = replace(asked, unknown=np.ones(3, np.float32))
    replayed = reader(bundle, FixedReader(doubtful)).read(
        Instruction("so be it"), before, shown=None if changes else before
    )
    scene = replayed.scene
    assert scene.motion == ("run" if changes else "wave"), "beside a word that it cannot draw, the motion stays too"
    people = np.array([[0, 0, 0], [0, 2 * lead, 0]], np.float32)
    scene = (
        reader(bundle, FixedReader(replace(doubtful, people=people)))
        .read(Instruction("so be it"), before, shown=None if changes else before)
        .scene
    )
    assert scene.people == (("Tobo",) if changes else ("Mia",)), "and who is there"
    first = reader(bundle, FixedReader(asked)).read(Instruction("so be it"), None).scene
    assert (first.place, first.hour) == ("forest", "night"), "a first scene has nothing to keep"


def test_people_are_the_likeliest_choice_of_one_named_first_and_at_most_one_second(bundle: Bundle) -> None:
    engine = load_reader(bundle)
    some = engine.read(np.zeros((1, 1, 48), np.int64), np.zeros((1, NUMBERS), np.int64))

    def who(*people: list[float]) -> tuple[str, ...]:
        logits = replace(some, people=np.array(people, np.float32))
        return reader(bundle, FixedReader(logits)).read(Instruction("so"), None).scene.people

    assert who([9, 0, 0], [9, 1, 0]) == ("Tobo",)  # each alone would be absent
    assert who([0, 5, 4], [0, 6, 0]) == ("Tobo", "Mia")  # each alone would be first
    assert who([0, 5, 4], [0, 0, -9]) == ("Mia",)


def test_logits_that_are_not_numbers_are_an_error(bundle: Bundle) -> None:
    some = load_reader(bundle).read(np.zeros((1, 1, 48), np.int64), np.zeros((1, NUMBERS), np.int64))
    broken = FixedReader(replace(some, place=np.full_like(some.place, np.nan)))
    with pytest.raises(BackendError, match="not finite.*selftest"):
        reader(bundle, broken).read(Instruction("so"), None)


@pytest.mark.parametrize(("numbers", "told"), [(7, []), (9, [0, 1]), (16, [0, 1, 1, 2, 0, 4, 0, 0, 0])])
def test_a_part_is_told_who_left_last_and_the_scene_before(bundle: Bundle, numbers: int, told: list[int]) -> None:
    reads = reader(bundle)
    both = reads.read(Instruction("both wave"), None).scene
    alone = reads.read(Instruction("Mia"), both).scene
    some = load_reader(bundle).read(np.zeros((1, 1, 48), np.int64), np.zeros((1, NUMBERS), np.int64))
    engine = FixedReader(some, numbers)
    reader(bundle, engine).read(Instruction("she comes back"), alone, both)
    assert engine.told is not None and len(engine.told[0]) == numbers
    assert engine.told[0, 7:9].tolist() == told[:2]
    assert numbers < 16 or engine.told[0, 9:].tolist() == encode_scene(both, tiny_reader.WORDS, 7)[0].tolist()
    reader(bundle, engine).read(Instruction("Mia"), None)
    assert engine.told.shape == (1, numbers)


def test_words_that_do_not_fit_the_part_are_refused(bundle: Bundle) -> None:
    words = replace(tiny_reader.WORDS, places=("town", "forest", "moon"))
    with pytest.raises(BackendError, match="outputs do not match its words"):
        open_engines(tiny_reader.add_reader(bundle, words))


def test_part_and_words_go_together(bundle: Bundle) -> None:
    with pytest.raises(ConfigError, match="a part `reader` and its words go together.*only the part"):
        replace(bundle.manifest, reader=None)
    with pytest.raises(ConfigError, match="manners.*wrong length"):
        replace(tiny_reader.WORDS, manners=("gently",))
    with pytest.raises(ConfigError, match="positions.*at least one word"):
        replace(tiny_reader.WORDS, positions=(), position_words=())


def test_only_a_bundle_with_a_reader_has_the_newer_format(bundle: Bundle) -> None:
    assert load(bundle.folder).manifest == bundle.manifest
    assert bundle.manifest.format_version == 3
    parts = {name: part for name, part in bundle.manifest.parts.items() if name != "reader"}
    plain = write_manifest(bundle.folder, replace(bundle.manifest, parts=parts, reader=None))
    assert plain.manifest.format_version == 2 and '"reader"' not in (bundle.folder / "manifest.json").read_text()


def test_a_bundle_without_a_language_file_reads_by_its_network_alone(tmp_path: Path) -> None:
    bundle = tiny_reader.add_reader(fakes.write_bundle(tmp_path / "mute"), replace(tiny_reader.WORDS, language=""))
    reads = reader(bundle)
    first = reads.read(Instruction(GAME[0]), None)
    assert (first.scene.caption, first.text, first.notice) == (CAPTIONS[0], CAPTIONS[0], None)
    with pytest.raises(InstructionError, match="nothing understood; say who does what"):
        reads.read(Instruction("a dragon explodes"), first.scene)


def test_other_phrases_leave_stored_games_as_they_are_but_are_verified(bundle: Bundle) -> None:
    file = bundle.folder / "language.json"
    file.write_text(json.dumps({**tiny_reader.LANGUAGE, "articles": []}), encoding="utf-8")
    with pytest.raises(BundleFileError, match="language.json: the bundle's file"):
        load(bundle.folder)
    assert write_manifest(bundle.folder, bundle.manifest).fingerprint == bundle.fingerprint
    file.write_text('{"phrases": {"crowds": ""}}', encoding="utf-8")
    broken = write_manifest(bundle.folder, bundle.manifest)
    with pytest.raises(BundleFileError, match=r"language.json: .*phrases: crowds: unknown key"):
        reader(broken)
