"""A scene in words: its caption for the predictor, and what it changes, as codes and as a line for a player."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from animegamer_rt.bundle.manifest import ReaderWords
from animegamer_rt.language.answers import Answer
from animegamer_rt.language.phrases import Language
from animegamer_rt.state.game import HOURS, LEVELS, Scene


class Narrator:
    """A bundle's words and phrases. name: the bundle's."""

    def __init__(self, words: ReaderWords, language: Language, name: str) -> None:
        self._words, self._language, self._name = words, language, name

    def describe(self, scene: Scene) -> str:
        """Tofi in a raincoat runs wildly, city, night. The caption, if the bundle has no phrase for it."""
        described = self._language.say(
            "description",
            people=self._dressed(scene.people, scene.clothes),
            motion=self._does(scene.people, scene.motion),
            manner=self._words.manners[LEVELS.index(scene.level)],
            place=scene.place,
            hour=scene.hour,
        )
        return described or scene.caption

    def captioned(self, **scene: Any) -> Scene:
        """The scene of these fields, with its caption."""
        words = self._words
        caption = self._language.say(
            "caption",
            people=self._dressed(scene["people"], scene["clothes"]),
            position=words.position_words[words.positions.index(scene["position"])],
            manner=words.manners[LEVELS.index(scene["level"])],
            motion=scene["motion"],
            hour=scene["hour"],
            place=scene["place"],
        )
        return Scene(**scene, caption=caption)

    def changes(self, scene: Scene, before: Scene | None) -> tuple[Answer, ...]:
        """What a scene shows that the one before (None: nothing yet) did not."""
        words = self._words
        shown, were = scene.people, () if before is None else before.people
        came = tuple(name for name in shown if name not in were)
        left = tuple(name for name in were if name not in shown)
        found = [Answer(code, who) for code, who in (("came", came), ("left", left)) if who]
        if before is None or scene.motion != before.motion:
            found.append(Answer("motion", shown, scene.motion))
        if scene.level != (LEVELS[len(LEVELS) // 2] if before is None else before.level):
            found.append(Answer("level", shown, words.manners[LEVELS.index(scene.level)]))
        if before is None or scene.place != before.place:
            found.append(Answer("place", value=scene.place))
        if before is None or scene.hour != before.hour:
            found.append(Answer("hour", value=scene.hour))
        worn = dict.fromkeys(shown, words.clothes[0]) if before is None else before.clothes
        for clothes in words.clothes:
            if who := tuple(name for name in shown if scene.clothes[name] == clothes != worn[name]):
                found.append(Answer("clothes", who, clothes))
        return tuple(found)

    def line(self, answer: Iterable[Answer]) -> str:
        """The answer in the bundle's language; empty if it has no phrases."""
        return "; ".join(filter(None, map(self._said, answer)))

    def example(self) -> str:
        """Advice to somebody who was not understood: a sentence that is."""
        words, said = self._words, self._language.said
        about = {"motion": said(words.motions[0]), "place": said(words.places[0]), "hour": said(HOURS[0])}
        sentence = self._language.say("suggestion", name=words.people[0], **about)
        return sentence and self._language.say("advice", value=sentence)

    def _said(self, answer: Answer) -> str:
        value = self._clothes(answer.value)
        if answer.value in self._words.motions:
            value = self._does(answer.people, value)
        elif answer.value in self._words.places:
            value = self._language.said(value)
        words, people = ", ".join(f'"{word}"' for word in answer.words), self._language.say("and").join(answer.people)
        return self._language.say(answer.code, people=people, value=value, words=words, bundle=self._name)

    def _does(self, people: Sequence[str], motion: str) -> str:
        return motion if len(people) > 1 else self._language.said(motion)

    def _clothes(self, name: str) -> str:
        words = self._words
        return words.clothes_words[words.clothes.index(name)] if name in words.clothes else name

    def _dressed(self, people: Sequence[str], clothes: Mapping[str, str]) -> str:
        """Tofi in everyday clothes and Mirel in a raincoat."""
        say = self._language.say
        return say("and").join(say("dressed", name=name, clothes=self._clothes(clothes[name])) for name in people)
