"""The sentences to measure with: their labels are words of pocket's world, and no training corpus holds them."""

from __future__ import annotations

import json

from project import ROOT

from animegamer_pocket.language.games import json_lines
from animegamer_pocket.world.scene import ADVERBS, CHARACTERS, MOTIONS, OUTFITS, PLACES

LINES = (ROOT / "benchmarks" / "language" / "development.jsonl").read_text(encoding="utf-8").splitlines()
TURNS = [json.loads(line) for line in LINES]
SHORT = 24
"""Characters below which many people say the same: "night", "Pick up the pace."."""


def test_labels_are_words_of_the_world() -> None:
    for turn in TURNS:
        who, outfits = turn["who"], turn.get("outfits", [OUTFITS[0]] * len(turn["who"]))
        assert 1 <= len(who) <= 2 and set(who) <= set(CHARACTERS), turn
        assert turn.get("motion", MOTIONS[0]) in MOTIONS and turn.get("place", PLACES[0]) in PLACES, turn
        assert turn.get("level", 1) in range(1, len(ADVERBS) + 1), turn
        assert len(outfits) == len(who) and set(outfits) <= set(OUTFITS), turn


def test_no_training_sentence_is_among_them() -> None:
    asked = {turn["say"].lower() for turn in TURNS if len(turn["say"]) >= SHORT}
    assert not asked & {str(line["say"]).lower() for line in json_lines(1000, 5)}
