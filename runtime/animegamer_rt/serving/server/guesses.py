"""Guesses a player's next instruction from the game's habits and the bundle's words. Deterministic per game."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest

from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.errors import AnimeGamerError
from animegamer_rt.language.phrases import Language
from animegamer_rt.serving.store.turns import StoredTurn
from animegamer_rt.state.game import HOURS

from .instruction_filter import InstructionFilter

REMEMBERED_TURNS = 100
"""Turns of a game from which habits are read."""


class Guesser:
    """Guesses for one bundle: habits only, if it lists no words or has no `suggestion` phrase."""

    def __init__(self, words: ReaderWords | None, language: Language, instruction_filter: InstructionFilter) -> None:
        self._words, self._language, self._filter = words, language, instruction_filter

    def likeliest(self, played: Sequence[StoredTurn], seed: int, count: int) -> list[str]:
        """At most `count` playable instructions, likeliest first."""
        return list(
            islice((text for text in guesses(self._words, self._language, played, seed) if self._allowed(text)), count)
        )

    def _allowed(self, text: str) -> bool:
        try:
            return self._filter.read(text).text == text
        except AnimeGamerError:
            return False


def guesses(words: ReaderWords | None, language: Language, played: Sequence[StoredTurn], seed: int) -> Iterator[str]:
    """Distinct instructions, likeliest first, alternating habits and sentences. played: oldest first."""
    habits = _habits([turn.instruction for turn in played])
    sentences = [] if words is None else _sentences(words, language, played, seed)
    seen: set[str] = set()
    for text in (text for pair in zip_longest(habits, sentences) for text in pair if text is not None):
        if text not in seen:
            seen.add(text)
            yield text


def _habits(texts: list[str]) -> list[str]:
    """What followed the last instruction earlier, then the most frequent; newest first among equals."""
    if not texts:
        return []
    newest_first = texts[::-1]
    followed = Counter(
        after for after, before in zip(newest_first, newest_first[1:], strict=False) if before == texts[-1]
    )
    return [text for counted in (followed, Counter(newest_first)) for text, _ in counted.most_common()]


def _sentences(words: ReaderWords, language: Language, played: Sequence[StoredTurn], seed: int) -> list[str]:
    """A sentence for each motion but the last one, mostly with the current person and place."""
    draw = random.Random(f"{seed} {len(played)}")
    scene = played[-1].scene if played else None
    motions = [motion for motion in words.motions if scene is None or motion != scene.motion]
    draw.shuffle(motions)
    sentences = []
    for number, motion in enumerate(motions):
        stays = scene is not None and number % 3 < 2
        person = scene.people[0] if scene is not None and stays else draw.choice(words.people)
        place = scene.place if scene is not None and stays else draw.choice(words.places)
        hour = scene.hour if scene is not None else HOURS[0]
        said = {"motion": language.said(motion), "place": language.said(place), "hour": language.said(hour)}
        sentences.append(language.say("suggestion", name=person, **said))
    return list(filter(None, sentences))
