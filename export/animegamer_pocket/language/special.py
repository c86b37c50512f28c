"""Forms other than sentences: the reference caption, complete or loosely typed, and emoji."""

from __future__ import annotations

import random

from animegamer_pocket.world.captions import OUTFIT_WORDS
from animegamer_pocket.world.scene import ADVERBS, DEFAULT_OUTFIT, Scene

from .lexicon import load
from .plan import Plan


def caption_form(rng: random.Random, after: Scene, plan: Plan) -> str | None:
    """`Character: A in a raincoat and B; Motion: wildly run; Background: night city.`, sometimes carelessly typed."""
    names = []
    for name, outfit in zip(after.characters, after.outfits, strict=True):
        dressed = name in plan.outfits or (outfit != DEFAULT_OUTFIT and rng.random() < 0.6)
        names.append(f"{name} in {OUTFIT_WORDS[outfit]}" if dressed else name)
    spot = {"left": " on the left", "centre": " in the middle", "right": " on the right", "": ""}[plan.spot]
    who = " and ".join(names) + spot
    motion = f"{ADVERBS[after.level - 1]} {after.motion}"
    where = f"{'night' if after.night else 'day'} {after.place}"
    if rng.random() < 0.6:
        return f"Character: {who}; Motion: {motion}; Background: {where}."
    return rng.choice(
        (
            f"character: {who}; motion: {motion}; background: {where}",
            f"Character: {who}. Motion: {motion}. Background: {where}.",
            f"Characters: {who}; Motion: {motion}; Background: {where}",
            f"{who}; {motion}; {where}",
            f"{who}, {motion}, {where}",
            f"Background: {where}; Character: {who}; Motion: {motion}.",
            f"Motion: {motion}; Character: {who}; Background: {where}.",
            f"character {who} motion {motion} background {where}",
            f"who: {who} / what: {motion} / where: {where}",
        )
    )


def emoji_form(rng: random.Random, after: Scene, plan: Plan) -> str | None:
    """Emoji alone: characters, motion, and what must be stated. None if something has no emoji."""
    if plan.said & {"level", "position"} or len(set(plan.outfits.values())) > 1:
        return None
    if plan.outfits and len(plan.outfits) < len(after.characters):
        return None
    emoji = load("emoji")
    people = [emoji[name].text(rng) for name in after.characters]
    rest = [emoji[after.motion].text(rng)]
    if "place" in plan.said:
        rest.append(emoji[after.place].text(rng))
    if "night" in plan.said:
        rest.append(emoji["night" if after.night else "day"].text(rng))
    rest.extend(emoji[outfit].text(rng) for outfit in set(plan.outfits.values()))
    if rng.random() < 0.4:
        people = list(after.characters)
    return rng.choice(("", " ", " ")).join(["+".join(people) if rng.random() < 0.3 else "".join(people), *rest])
