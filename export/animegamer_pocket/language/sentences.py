"""What a person types to move a game from one scene to the next: `say`.

The text states every field that differs from its default, and sometimes one that stays. The defaults:
- people, place, hour and motion stay as they were; a first turn has the meadow, day and no motion of its own;
- clothes are the character's last in the game, everyday clothes if it is new;
- the level is 3 if the turn names a motion, and stays if it names none, repeats ("again", "keep dancing") or changes
  only who is present; "faster" and its kin change it by one, "much faster" by two;
- a position is that of `follow`.
Nobody leaves unless the sentence says so: "Bixo dances" after a turn with two keeps both. A newcomer stands behind
those who stay. Two named characters stand in the order of their names. A label is omitted if text and game do not
determine it: the level where only a verb like "sprint" or "tiptoe" implies it or where a motion that had another level
is named again. A first turn that names no motion is one of standing.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence

from animegamer_pocket.world.scene import Scene

from .change import shows_the_same
from .dialects import DIALECTS, spoken
from .noise import learned, texted, untidy
from .plan import plan_of
from .special import caption_form, emoji_form
from .state import Override
from .voices import VOICE_BY_NAME, Voice
from .writer import Writer

Labels = dict[str, "str | int | bool | list[str]"]

FIELDS = ("who", "motion", "place", "night", "outfits", "level", "position")
"""The fields that a text may state. `Utterance.said` lists some of them."""

MAX_CHARACTERS = 500

_WITH_DIALECT = frozenset(("plain", "polite", "child", "tale", "sports", "teacher", "old", "film"))
_DIALECT_SHARE = 0.06


@dataclasses.dataclass(frozen=True, slots=True)
class Utterance:
    """One turn's text. labels: the fields that text and game determine. said: the FIELDS that the text states.

    notes: the reader's `NOTES` that hold. refused: characters whom the text asks for and the scene lacks.
    """

    text: str
    labels: Labels
    said: frozenset[str]
    notes: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


def say(
    rng: random.Random,
    before: Scene | None,
    after: Scene,
    voice: Voice | str = "plain",
    worn: Mapping[str, str] | None = None,
    override: Override | None = None,
    left: Sequence[str] = (),
) -> Utterance:
    """A text that moves a game from `before` (None: its first turn) to `after`.

    worn: last outfits of characters who are not in `before`. left: who left last before that. override: unknown words
    for the motion or the place.
    """
    voice = VOICE_BY_NAME[voice] if isinstance(voice, str) else voice
    while True:
        utterance = _say_once(rng, before, after, voice, worn or {}, override or Override(), left)
        if utterance is not None and len(utterance.text) <= MAX_CHARACTERS:
            return utterance


def _say_once(
    rng: random.Random,
    before: Scene | None,
    after: Scene,
    voice: Voice,
    worn: Mapping[str, str],
    override: Override,
    left: Sequence[str] = (),
) -> Utterance | None:
    plan = plan_of(rng, before, after, worn, left)
    if override.place:
        plan = dataclasses.replace(plan, said=plan.said | {"place"})
    if override.motion is not None:
        plan = dataclasses.replace(plan, names_motion=True)
    if voice.name in ("caption", "emoji"):
        form = caption_form if voice.name == "caption" else emoji_form
        plan = dataclasses.replace(plan, names_motion=True)
        text = form(rng, after, plan)
        if text is None:
            return _say_once(rng, before, after, VOICE_BY_NAME["plain"], worn, override, left)
        said, level_known = frozenset(FIELDS[:6]), True
        if voice.name == "emoji":
            said, level_known = frozenset(plan.said | {"who", "motion"}), after.level == 3
    else:
        writer = Writer(rng, before, after, voice, plan, override)
        written = writer.write()
        if written is None:
            return None
        text, said, level_known = written, frozenset(writer.said), writer.level_known
        text = _in_voice(rng, text, voice)
    labels = labels_of(after)
    if not level_known:
        del labels["level"]
    first = ("no_motion",) if before is None and "motion" not in said else ()
    notes = frozenset(("goes_on",) if shows_the_same(before, after) else first)
    return Utterance(text, labels, said, notes)


def _in_voice(rng: random.Random, text: str, voice: Voice) -> str:
    if voice.name == "learner":
        text = learned(rng, text)
    if voice.name == "texting":
        text = texted(rng, text)
    if voice.name in _WITH_DIALECT and rng.random() < _DIALECT_SHARE:
        text = spoken(rng, text, rng.choice(DIALECTS))
    return untidy(rng, text, voice.noise) if voice.name != "console" else text


def labels_of(scene: Scene) -> Labels:
    """Every label of a scene, as in a line of an evaluation file."""
    return {
        "who": list(scene.characters),
        "motion": scene.motion,
        "place": scene.place,
        "night": scene.night,
        "outfits": list(scene.outfits),
        "level": scene.level,
    }
