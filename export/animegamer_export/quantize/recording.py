"""Records the inputs of denoiser steps, for calibration and comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from animegamer_export.onnx_io.sessions import Feeds, open_plain
from animegamer_rt.backends.interface import FloatArray
from animegamer_rt.noise import AnyNoise, as_array


@dataclass(slots=True)
class RecordingDenoiser:
    """A DenoiserEngine with its own onnxruntime session; with `record`, it records inputs and x0 of every step."""

    path: Path
    record: bool = True
    session: onnxruntime.InferenceSession = field(init=False)
    steps: list[tuple[Feeds, FloatArray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.session = open_plain(self.path)

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> RecordingDenoiser._Turn:
        """See DenoiserEngine.start."""
        return RecordingDenoiser._Turn(self, as_array(latent), shot, motion_scope)

    class _Turn:
        def __init__(self, part: RecordingDenoiser, latent: FloatArray, shot: FloatArray, scope: float) -> None:
            self.part, self.shot, self.scope = part, shot, scope
            self.state = (latent, np.zeros_like(latent), np.zeros_like(latent))

        def step(self, coefficients: FloatArray, timestep: float, rows: tuple[int, ...], noise: AnyNoise) -> None:
            feeds: dict[str, npt.NDArray[Any]] = {
                **dict(zip(("latent", "x0_prev", "difference"), self.state, strict=True)),
                "noise": as_array(noise),
                "coefficients": coefficients,
                "timestep": np.array([timestep], np.float32),
                "motion_scope": np.array([self.scope], np.float32),
                "shot": self.shot[None],
                "rows": np.array(rows, np.int64),
            }
            self.state = tuple(self.part.session.run(("next_latent", "x0", "next_difference"), feeds))
            if self.part.record:
                self.part.steps.append((feeds, self.state[1]))

        def latent(self) -> FloatArray:
            latent: FloatArray = self.state[0]
            return latent
