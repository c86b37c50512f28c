"""Sample turns for calibration and comparison: instructions in a bundle's vocabulary, plans and engines."""

from __future__ import annotations

import random
from collections.abc import Callable

from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import EXACT, World
from animegamer_rt.bundle.roles import PlanParts
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import PlanError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.stages.predictor import Prediction
from animegamer_rt.state.game import Instruction

from .fidelity import with_plan

BALANCED = "balanced"

RELEASE_WORLD = World(
    characters=("Qiqi", "Ponyo"),
    motions=("fly on broomstick", "run", "wave", "sit", "read a book", "walk", "turn", "play the violin"),
    adverbs=("slowly", "gently", "smoothly", "quickly", "wildly"),
    places=("sky", "street", "room", "town", "railway", "forest", "beach", "sea"),
    examples=(
        "Character: Qiqi; Motion: quickly fly on broomstick; Background: day sky.",
        "Character: Qiqi; Motion: gently wave; Background: day street.",
        "Character: Qiqi; Motion: read a book; Background: night room.",
    ),
)
"""Words of the published demo's instructions, for bundles without a world of their own."""


def sample_instructions(world: World, count: int, seed: int = 0) -> list[str]:
    """`count` random instructions in the world's vocabulary, reproducible by seed."""
    if not (world.characters and world.motions and world.places):
        world = RELEASE_WORLD
    chance, texts = random.Random(seed), []
    for _ in range(count):
        motion = f"{chance.choice(world.adverbs or ('',))} {chance.choice(world.motions)}".strip()
        place = f"{chance.choice(('day', 'night'))} {chance.choice(world.places)}"
        texts.append(f"Character: {chance.choice(world.characters)}; Motion: {motion}; Background: {place}.")
    return texts


def predict_turn(pipeline: Pipeline, session: Session, instruction: Instruction) -> tuple[Prediction, Instruction]:
    """Plays the session's next turn without drawing it: its prediction, and what the predictor was given to read."""
    prompt, scene = instruction, None
    if pipeline.reader is not None:
        scene = pipeline.reader.read(instruction, session.scene, session.earlier_scene).scene
        prompt = Instruction(scene.caption)
    prediction = pipeline.predictor.predict(session.history, prompt)
    session.commit(instruction, prediction, scene)
    return prediction, prompt


def open_with_plan(bundle: Bundle, engines: Engines, of: Bundle, name: str | None) -> Pipeline:
    """The bundle's default parts with a plan of `of`, even if unmeasured, so that both bundles can play one plan.

    engines: those of the plan `exact`. name: None: `balanced` if `of` has it, as it is faster, else `exact`. Raises
    PlanError for an unknown plan, and for one with parts of its own.
    """
    name = name or (BALANCED if BALANCED in of.manifest.plans else EXACT)
    if of.parts_of(name) != engines.parts:
        raise PlanError(
            f"the plan {name!r} has parts of its own, and the bundles' default parts are compared",
            found=of.parts_of(name),
            expected=engines.parts,
            do=f"compare by {BALANCED} or {EXACT}",
        )
    entry = of.manifest.plans.get(name)
    plan = DenoisePlan.from_dict(of.plan(name) if entry is None else entry.plan)
    return with_plan(Pipeline.open(bundle, engines, EXACT), plan, name)


def plan_engines(bundle: Bundle, config: EngineConfig) -> Callable[[str], Engines]:
    """Plan -> its engines. Plans with the same parts share them; all requested engines stay loaded."""
    opened: dict[PlanParts, Engines] = {}

    def engines_of(plan: str) -> Engines:
        parts = bundle.parts_of(plan)
        if parts not in opened:
            opened[parts] = open_engines(bundle, config, plan)
        return opened[parts]

    return engines_of
