"""The subcommands that this package adds to `animegamer-rt`; pyproject.toml names them as entry points.

Each takes its arguments and returns an exit code. Libraries are imported when a command is called.
"""

from __future__ import annotations

from collections.abc import Sequence


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

    return command.main(argv)


def search_plans(argv: Sequence[str]) -> int:
    """`animegamer-rt search-plans`: cheaper denoise plans for a bundle, measured and written into it."""
    from .plan_search import command

    return command.main(argv)
