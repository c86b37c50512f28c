"""The subcommands that this package adds to `animegamer-rt`; pyproject.toml names them as entry points.

Each takes its arguments and returns an exit code. Libraries are imported when a command is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from animegamer_export.evaluate.command import OneOfEach
    from animegamer_export.evaluate.fidelity import ClipScorer
    from animegamer_export.evaluate.metrics import Clip
    from animegamer_rt.bundle.loader import Bundle


def export(argv: Sequence[str]) -> int:
    """`animegamer-rt export`: checkpoints to a bundle; `export tensorrt`: a bundle to TensorRT engines."""
    if list(argv[:1]) == ["tensorrt"]:
        from .tensorrt import command as tensorrt

        return tensorrt.main(argv[1:])
    from .build import command

    return command.main(argv)


def fetch(argv: Sequence[str]) -> int:
    """`animegamer-rt fetch`: the published checkpoints from Hugging Face's hub."""
    from .fetch import command

    return command.main(argv)


def quantize(argv: Sequence[str]) -> int:
    """`animegamer-rt quantize`: a bundle to a bundle with parts of another precision."""
    from .quantize import command

    return command.main(argv)


def verify(argv: Sequence[str]) -> int:
    """`animegamer-rt verify`: a bundle's parts compared with torch, or with another bundle's."""
    from .verify import command

    return command.main(argv)


def parity(argv: Sequence[str]) -> int:
    """`animegamer-rt parity`: our networks compared with recorded numbers of the reference."""
    from .parity import report

    return report.main(argv)


def evaluate(argv: Sequence[str]) -> int:
    """`animegamer-rt evaluate`: measures of any bundle that need no labels."""
    from .evaluate import command

    return command.main(argv, _one_of_each_judge)


def search_plans(argv: Sequence[str]) -> int:
    """`animegamer-rt search-plans`: cheaper denoise plans for a bundle, measured and written into it."""
    from .plan_search import command

    return command.main(argv, _pocket_scorer)


def _one_of_each_judge(bundle: Bundle) -> OneOfEach | None:
    """The judge of the pocket world, for a bundle of it; no other world has one."""
    import numpy as np

    from .pocket.judge.reading import Judge
    from .pocket.world.scene import CHARACTERS, HEIGHT, WIDTH

    geometry = bundle.manifest.geometry
    if bundle.manifest.world.characters != CHARACTERS or (geometry.height, geometry.width) != (HEIGHT, WIDTH):
        return None
    judge = Judge()

    def one_of_each(clips: Sequence[Clip]) -> list[bool]:
        return [reading.one_of_each for reading in judge.read(np.stack(clips))]

    return one_of_each


def _pocket_scorer() -> ClipScorer:
    """The judge of the pocket world, for a search of plans."""
    from .pocket.judge.reading import Judge
    from .pocket.judge.scorer import JudgeScorer

    return JudgeScorer(Judge())
