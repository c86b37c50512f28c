"""pocket's readers: of everyday instructions, and of pictures that games start from."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from animegamer_pocket.config import SHORT, PhaseConfig
from animegamer_pocket.language.games import sample_game
from animegamer_pocket.reader.__main__ import main
from animegamer_pocket.reader.accuracy import TrainedReader, bundle_reader, reader_of
from animegamer_pocket.reader.export import LANGUAGE, WORDS, add_readers
from animegamer_pocket.reader.model import HEADS
from animegamer_pocket.reader.nine_motions import NINE, NineMotions
from animegamer_pocket.reader.picture import PictureReader
from animegamer_pocket.reader.samples import NOT_JUDGED, encode_scene, samples_of, vocabulary
from animegamer_pocket.reader.training import train_reader
from animegamer_pocket.world.scene import MOTIONS, SPOTS
from animegamer_rt.bundle.loader import Bundle, open_bundle
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.language.words import split_words, word_features
from animegamer_rt.state.game import Instruction


def test_pieces_of_words_are_those_of_the_shipped_weights() -> None:
    assert split_words("Tofi’s REEEALLY fast\u200b, 2 hops—🦊🏽 café") == [
        *("tofi's", "reeally", "fast", ",", "2", "hops", "—", "🦊", "cafe")
    ]
    row = word_features(["fox"])[0]
    assert row[row > 0].tolist() == word_features(["fox", "foxes"])[0][row > 0].tolist()
    assert int(row.sum()) == 149999 and np.count_nonzero(row) == 13
    shared = set(word_features(["forest"])[0]) & set(word_features(["forset"])[0])
    assert len(shared) > 6


def test_a_turn_is_learned_after_the_scene_that_it_follows() -> None:
    game = sample_game(random.Random(4), turns=6)
    samples = list(samples_of(game))
    assert samples[0].scene.tolist() == encode_scene(None, {}, ()).tolist()
    for before, after in zip(samples, samples[1:], strict=False):
        assert after.scene[15:].tolist() == before.scene[:10].tolist(), "the scene before the last"
        shown = [value // 3 for value in after.scene[:5]]
        assert before.truth[:5].tolist() in (shown, [NOT_JUDGED] * 5)
        gone = [int(value >= 3 and not now) for value, now in zip(before.scene[:5], shown, strict=True)]
        stays = [int(left and not now) for left, now in zip(before.scene[10:15], shown, strict=True)]
        assert after.scene[10:15].tolist() == (gone if any(gone) else stays), "who left last"


def test_the_vocabulary_has_what_pocket_can_draw_and_nothing_else() -> None:
    words = vocabulary(turns=2000).split()
    assert words == sorted(set(words)) and {"mirel", "forest", "the", "walks"} <= set(words)
    assert not {"tanzt", "explode", "привет", "2"} & set(words)


def test_training_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    phase = dataclasses.replace(SHORT.reader_phase, steps=1)
    train_reader(tmp_path / "reader.pt", phase)
    (tmp_path / "reader.pt").unlink()
    train_reader(tmp_path / "reader.pt", dataclasses.replace(phase, steps=3))
    assert torch.load(tmp_path / "reader.state", weights_only=True)["step"] == 3


def test_the_exported_reader_reads_as_the_trained_one(tmp_path: Path, pocket_copy: Bundle) -> None:
    network = train_reader(tmp_path / "reader.pt", PhaseConfig(steps=1, batch=4, learning_rate=1e-3))
    torch.nn.init.constant_(network.notes.bias, -9.0)  # untrained, it would refuse texts at random
    texts = "the fox is having a little dance by the sea", "make it night pls and bixo comes too"
    known = " ".join(sorted(set(" ".join(texts).split())))
    tens = dataclasses.replace(pocket_copy.manifest, reader=WORDS)
    write_manifest(pocket_copy.folder, tens, changed=())
    bundle = add_readers(pocket_copy.folder, network, PictureReader().eval(), known)
    assert bundle.manifest.reader == dataclasses.replace(WORDS, vocabulary=known)
    reader = bundle_reader(bundle)
    trained = reader_of(TrainedReader(network), known)
    for text in texts:
        assert reader.read(Instruction(text), None).scene == trained.read(Instruction(text), None).scene
    record = tmp_path / "read.json"
    games = tmp_path / "one.jsonl"
    games.write_text('{"game": 1, "turn": 1, "say": "Tofi runs", "who": ["Tofi"]}\n', encoding="utf-8")
    assert main(["measure", str(games), "--bundle", str(bundle.folder), "--out", str(record)]) == 0
    measured = json.loads(record.read_text(encoding="utf-8"))
    assert measured["bundle"] == bundle.fingerprint and measured["sets"]["one"]["turns"] == 1


@pytest.fixture
def pocket_copy(tmp_path: Path) -> Bundle:
    import shutil

    from animegamer_rt.bundle.loader import load, open_bundle

    shutil.copytree(open_bundle("pocket").folder, tmp_path / "pocket")
    return load(tmp_path / "pocket")


def test_the_shipped_language_is_that_of_pockets_source() -> None:
    shipped = open_bundle("pocket")
    assert shipped.path(WORDS.language).read_bytes() == LANGUAGE.read_bytes()


def test_pictures_with_nine_motions_get_readers_that_know_nine() -> None:
    class Standing(torch.nn.Module):
        """Sees Mirel stand, in the spot of the scene that it is given."""

        def forward(self, features: torch.Tensor, scene: torch.Tensor) -> tuple[torch.Tensor, ...]:
            seen.append(scene)
            found = {name: torch.zeros(1, *shape) for name, shape in HEADS.items()}
            found["motion"][0, MOTIONS.index("stand")] = 1
            found["position"][0, scene[0, 9] % len(SPOTS)] = 1
            return tuple(found.values())

    seen: list[torch.Tensor] = []
    reader = NineMotions(Standing(), tuple(HEADS))
    waving = torch.tensor([[3, 0, 0, 0, 0, NINE.index("wave"), 0, 2, 0, 2, *[0] * 15]])
    found = dict(zip(HEADS, reader(torch.zeros(1), waving), strict=True))
    assert NINE[int(found["motion"].argmax())] == "wave" and int(found["level"].argmax()) == 0
    assert int(found["position"].argmax()) == 2 and found["position"].shape == (1, 3)
    given = seen[0][0]
    assert MOTIONS[given[5]] == "stand" and SPOTS[given[9]].endswith("left"), "who hardly waves stands"
