"""What the shipped pocket understands of everyday English, and what it keeps of a picture."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

import animegamer_rt
from animegamer_pocket.reader.nine_motions import nearest
from animegamer_pocket.world.captions import POSITION_WORDS, SPOT_WORDS, complete_caption
from animegamer_pocket.world.render import render
from animegamer_pocket.world.sampling import sample_scenes
from animegamer_pocket.world.scene import ADVERBS
from animegamer_pocket.world.scene import Scene as Shown
from animegamer_rt.backends.onnxruntime.loader import load_picture_reader, load_reader
from animegamer_rt.bundle.loader import open_bundle
from animegamer_rt.errors import InstructionError, PictureError
from animegamer_rt.events import Understood
from animegamer_rt.stages.reader import InstructionReader
from animegamer_rt.state.game import Instruction, Scene

LANGUAGE = Path(__file__).parents[2] / "benchmarks" / "language"


@pytest.fixture(scope="module")
def reader() -> InstructionReader:
    bundle = open_bundle("pocket")
    return InstructionReader.from_bundle(bundle, load_reader(bundle), load_picture_reader(bundle))


def test_nine_of_ten_everyday_turns_are_understood(reader: InstructionReader) -> None:
    lines = [json.loads(line) for line in (LANGUAGE / "development.jsonl").read_text(encoding="utf-8").splitlines()]
    right = 0
    scene: Scene | None = None
    earlier: Scene | None = None
    for line in lines:
        before = None if line["turn"] == 1 else scene
        try:
            scene, earlier = reader.read(Instruction(line["say"]), before, earlier).scene, before
        except InstructionError:  # the picture stays
            assert before is not None
        assert scene is not None
        said = {"who", "motion", "place", "night"} & line.keys()
        right += all(_agrees(line[field], field, scene) for field in said)
    assert right / len(lines) >= 0.88


def test_four_of_five_sentences_that_it_cannot_draw_get_a_notice_and_few_others_do(reader: InstructionReader) -> None:
    counts: dict[bool, list[bool]] = {True: [], False: []}
    for name in ("undrawable", "plain"):
        scene = None
        for line in map(json.loads, (LANGUAGE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()):
            scene = None if line["turn"] == 1 else scene
            try:
                reading = reader.read(Instruction(line["say"]), scene)
            except InstructionError:  # it says why, and the picture stays
                counts[line.get("notice", False)].append(True)
                continue
            scene = reading.scene
            counts[line.get("notice", False)].append(reading.notice is not None)
    assert sum(counts[True]) / len(counts[True]) >= 0.8 and sum(counts[False]) / len(counts[False]) <= 0.05


def _agrees(asked: object, field: str, scene: Scene) -> bool:
    if field == "who":
        return sorted(asked) == sorted(scene.people)  # type: ignore[call-overload, no-any-return]
    return asked == {"motion": scene.motion, "place": scene.place, "night": scene.hour == "night"}[field]


@pytest.mark.parametrize(
    ("before", "text", "people", "motion", "place", "hour"),
    [
        ("", "the fox is having a little dance by the sea", ("Tofi",), "dance", "beach", "day"),
        ("Tofi dances at sea", "make it night pls, and bixo comes too", ("Tofi", "Bixo"), "dance", "beach", "night"),
        ("Mirel walks in the forest", "stop walking, take a nap", ("Mirel",), "lie down", "forest", "day"),
        ("Dovan and Tofi run in the city", "the fox goes home", ("Dovan",), "run", "city", "day"),
        ("", "ZELKI FLIES ON A BROOM OVER THE DUNES!!!", ("Zelki",), "fly", "desert", "day"),
        ("", "bixo rnus in the forset at nigth", ("Bixo",), "run", "forest", "night"),
        ("", "dovna wlaks in the foerst", ("Dovan",), "walk", "forest", "day"),
        ("", "Character: Mirel; Motion: gently wave; Background: night city.", ("Mirel",), "wave", "city", "night"),
    ],
)
def test_a_sentence_changes_what_it_says(
    reader: InstructionReader, before: str, text: str, people: tuple[str, ...], motion: str, place: str, hour: str
) -> None:
    scene = reader.read(Instruction(before), None).scene if before else None
    found = reader.read(Instruction(text), scene).scene
    assert (found.people, found.motion, found.place, found.hour) == (people, motion, place, hour)


def test_the_predictor_gets_captions_in_the_form_that_it_learned(reader: InstructionReader) -> None:
    for scene in sample_scenes(12, seed=3):
        position = [*POSITION_WORDS.values()][nearest(scene.start_x)]
        learned = complete_caption(scene).replace(SPOT_WORDS[scene.spot], position)
        learned = learned.replace(f"{ADVERBS[scene.level - 1]} stand", "barely wave")
        assert reader.read(Instruction(learned), None).scene.caption == learned


@pytest.mark.parametrize(
    ("turns", "shown"),
    {
        # Who left last comes back without a name.
        "Mirel and Dovan wave / Mirel leaves / she comes back": "Mirel, Dovan",
        "Mirel and Dovan wave / he goes home / he is back": "Mirel, Dovan",
        "Tofi and Zelki sit / without Zelki, please / bring the other one back": "Tofi, Zelki",
        "Bixo walks / Tofi instead of Bixo / swap back": "Bixo",
        # Who is named as company comes along, and a thing adds nobody.
        "a fox plays football in the rain with the robot": "Tofi, Bixo",
        "Mirel dances with her friend the wizard in the room": "Mirel, Zelki",
        "the fox waves to a girl": "Tofi, Mirel",
        "Mirel walks / she sits beside Dovan": "Mirel, Dovan",
        "the fox runs at night without the robot": "Tofi",
        "the boy walks to the beach with Kevin": "Dovan",
        "Tofi and Bixo run / Tofi says goodbye to the robot and Bixo leaves": "Tofi",
        # They wear what the sentence means.
        "Mirel walks in a raincoat / here comes Tofi, also in a raincoat": "Mirel in raincoat, Tofi in raincoat",
        "Mirel walks in a raincoat / here comes Tofi, no coat on him": "Mirel in raincoat, Tofi in everyday",
        "Dovan walks in a raincoat / he doesn't need it any more": "Dovan in everyday",
        "Dovan walks in a raincoat / Zelki in place of Dovan": "Zelki in everyday",
        "Dovan walks / Tofi wants in": "Dovan in everyday, Tofi in everyday",
        "Dovan walks / Tofi comes along, no, not Tofi, Bixo": "Dovan in everyday, Bixo in everyday",
    }.items(),
)
def test_who_is_shown_and_in_what_is_what_the_sentences_mean(reader: InstructionReader, turns: str, shown: str) -> None:
    scene: Scene | None = None
    earlier: Scene | None = None
    for text in turns.split(" / "):
        scene, earlier = reader.read(Instruction(text), scene, earlier).scene, scene
    assert scene is not None
    people = [f"{name} in {scene.clothes[name]}" if " in " in shown else name for name in scene.people]
    assert set(people) == set(shown.split(", "))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("now he multiplies", "reads English, Chinese and Japanese"),
        ("Tofi tanzt im Wald", "reads English, Chinese and Japanese"),
        ("je voudrais un café", "reads English, Chinese and Japanese"),
        ("привет", "reads English, Chinese and Japanese"),
        ("!!!", "reads English, Chinese and Japanese"),
        ("Tofi explodes", 'not understood: "explodes"'),
        ("Mirel leaves", "nothing changes"),
        ("not in the desert", "nothing changes"),
        ("Thank you very much, it was lovely.", "nothing changes"),
    ],
)
def test_no_turn_is_drawn_of_what_it_cannot_read_or_in_vain(reader: InstructionReader, text: str, why: str) -> None:
    before = reader.read(Instruction("Tofi walks on the beach"), None).scene
    with pytest.raises(InstructionError, match=rf"{why}.*try: "):
        reader.read(Instruction(text), before)


def test_a_game_goes_on_from_what_a_picture_shows(tmp_path: Path) -> None:
    from animegamer_rt.video import write_png

    with animegamer_rt.open("pocket", plan="turbo", threads=1) as player:
        clip = player.start(seed=5).turn("Zelki in a raincoat walks in the snowfield at night")
        write_png(tmp_path / "start.png", np.asarray(clip.frames[0]))
        game = player.start(seed=6, image=tmp_path / "start.png", motion="walk")
        understood = game.turn("now jump").understood
    assert understood is not None
    scene = understood.scene
    assert (scene.people, scene.motion, scene.place, scene.hour) == (("Zelki",), "jump", "snowfield", "night")
    assert scene.clothes["Zelki"] == "raincoat"


def test_every_picture_gets_a_scene_or_a_clear_answer(tmp_path: Path) -> None:
    shown = render(Shown(("Zelki", "Tofi"), "wave", 3, "snowfield", True, ("raincoat", "party"), 56), 1)[0]
    height, width = shown.shape[:2]
    opaque = np.full((height, width, 1), 255, np.uint8)
    known = {
        "twenty megapixels": cv2.resize(shown, (5480, 3653)),
        "alpha": np.concatenate([shown, opaque], axis=2),
        "another shape": cv2.resize(shown, (640, 640)),
        "a part": shown[16:, 24:],
        "grey": cv2.cvtColor(shown, cv2.COLOR_RGB2GRAY),
    }
    nobody = {"a corner": shown[:16, :16], "white": np.full_like(shown, 255), "clear": np.dstack([shown, 0 * opaque])}
    start = tmp_path / "start.png"
    with animegamer_rt.open("pocket", plan="turbo", threads=1) as player:

        def understood(picture: np.ndarray) -> Understood:
            cv2.imwrite(str(start), picture[..., [2, 1, 0, 3][: picture.shape[2]]] if picture.ndim == 3 else picture)
            return next(player.start(seed=1, image=start, motion="wave").stream("now jump"))  # type: ignore[return-value]

        for name, picture in known.items():
            found = understood(picture)
            scene, grey = found.scene, name == "grey"  # without colours, foxes and robots look alike
            assert (scene.place, scene.hour, scene.motion) == ("snowfield", "night", "jump"), name
            assert len(scene.people) == 2 and scene.people[0] == "Zelki" and found.notice is None, name
            assert grey or (scene.people[1], scene.clothes["Tofi"]) == ("Tofi", "party"), name
        for name, picture in nobody.items():
            assert "shows nobody whom pocket knows: Mirel" in (understood(picture).notice or ""), name
        with pytest.raises(PictureError, match=r"too small; found 1 x 1; expected 16 x 16 pixels or more"):
            understood(shown[:1, :1])
        start.write_bytes(b"hello")
        with pytest.raises(PictureError, match=r"start\.png: not a readable picture"):
            player.start(seed=1, image=start, motion="wave")
