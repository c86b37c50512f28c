"""`animegamer-rt play` that also keeps what the denoiser is given and the latent after each step, in a folder of .npy.

`python benchmarks/full_size/kept.py FOLDER play ..`; `accuracy` computes some of it again and compares.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from animegamer_rt import cli
from animegamer_rt.backends.interface import DenoiserEngine, DenoiseRun, Engines, FloatArray, PartCache
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.denoise_plan import BlockCache
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import DEFAULT_CONFIG, EngineConfig
from animegamer_rt.play import command

SHOT, SCOPE, LATENT = "shot.npy", "motion-scope.npy", "latent-{}.npy"


@dataclass(slots=True)
class KeptRun:
    """Implements interface.DenoiseRun."""

    run: DenoiseRun
    folder: Path
    steps: int = field(default=0)

    def step(
        self,
        coefficients: FloatArray,
        timestep: float,
        rows: tuple[int, ...],
        noise: FloatArray,
        blocks: BlockCache | None = None,
    ) -> None:
        """See interface.DenoiseRun."""
        self.run.step(coefficients, timestep, rows, noise, blocks)
        self.steps += 1
        np.save(self.folder / LATENT.format(self.steps), self.run.latent())

    def latent(self) -> FloatArray:
        """See interface.DenoiseRun."""
        return self.run.latent()


@dataclass(slots=True)
class KeptDenoiser:
    """Implements interface.DenoiserEngine."""

    engine: DenoiserEngine
    folder: Path
    skippable_blocks: int

    def start(self, latent: FloatArray, shot: FloatArray, motion_scope: float) -> DenoiseRun:
        """See interface.DenoiserEngine."""
        for name, value in ((SHOT, shot), (SCOPE, np.float32(motion_scope)), (LATENT.format(0), latent)):
            np.save(self.folder / name, value)
        return KeptRun(self.engine.start(latent, shot, motion_scope), self.folder)


def main(folder: Path, arguments: Sequence[str]) -> int:
    """Plays; returns the exit code."""

    def open_kept(bundle: Bundle, config: EngineConfig = DEFAULT_CONFIG, cache: PartCache | None = None) -> Engines:
        engines = open_engines(bundle, config, cache)
        return replace(engines, denoiser=KeptDenoiser(engines.denoiser, folder, engines.denoiser.skippable_blocks))

    folder.mkdir(exist_ok=True)
    command.open_engines = open_kept  # type: ignore[attr-defined]
    return cli.main(list(arguments))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
