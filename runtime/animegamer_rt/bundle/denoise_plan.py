"""A denoise plan as data: the steps of a turn, each with its timestep, guidance, branch and coefficients.

It does not know the network, tensors of latents or what runs the steps. NumPy only. Source: MODEL.md section 5.

SDE-DPM++ injects noise along lambda, so the noise of a long step is a weighted sum of the noises of the short steps it
spans: a coarse plan draws the clip of the reference's 50 steps, less sharply, and not another clip.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from animegamer_rt.errors import ConfigError, PlanError

from .config import read_record
from .noise_schedule import (
    TRAINING_TIMESTEPS,
    Coefficients,
    even_timesteps,
    half_log_snr,
    signal_levels,
    solver_coefficients,
    wave_guidance,
)

Branch = Literal["pair", "conditional", "reuse"]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One network execution.

    `branch`: "pair" runs the unconditional and the conditional row; "conditional" runs the latter alone, unguided;
    "reuse" runs it alone and guides by the difference of the last pair.
    """

    timestep: int
    guidance: float
    branch: Branch
    coefficients: Coefficients

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the batch: 0 is the unconditional constant, 1 the conditional row."""
        return (0, 1) if self.branch == "pair" else (1,)


@dataclass(frozen=True, slots=True)
class DenoisePlan:
    """All steps of a turn, in order. Made by `build_plan` or `DenoisePlan.from_dict`.

    `noise_steps`: each step sums the noise of an even plan with this many steps; 0: it draws its own.
    """

    steps: tuple[PlanStep, ...]
    stochastic: bool = True
    noise_steps: int = 0

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[PlanStep]:
        return iter(self.steps)

    @property
    def network_evaluations(self) -> int:
        """Network evaluations over all steps, 2 per CFG pair: the plan's cost."""
        return sum(len(step.rows) for step in self.steps)

    def coefficients(self) -> NDArray[np.float32]:
        """The eight coefficients of every step, float32 [steps, 8]."""
        return np.array([step.coefficients for step in self.steps], dtype=np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a manifest, without the coefficients, which follow from the rest."""
        steps = [{"timestep": step.timestep, "guidance": step.guidance, "branch": step.branch} for step in self.steps]
        plan: dict[str, Any] = {"stochastic": self.stochastic, "steps": steps}
        return {**plan, "noise_steps": self.noise_steps} if self.noise_steps else plan

    @classmethod
    def from_dict(cls, data: object) -> DenoisePlan:
        """The inverse of `to_dict`. Raises PlanError for unknown or missing keys and for impossible steps."""
        try:
            plan = read_record(_Plan, data, "plan")
        except ConfigError as error:
            what, found, expected = error.what, error.found, error.expected
            raise PlanError(what, where=error.where, found=found, expected=expected, do=error.do) from error
        return build_plan(
            [step.timestep for step in plan.steps],
            guidance=[step.guidance for step in plan.steps],
            branches=[step.branch for step in plan.steps],
            stochastic=plan.stochastic,
            noise_steps=plan.noise_steps,
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of `to_dict`."""

    timestep: int
    guidance: float
    branch: Any


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan of `to_dict`."""

    steps: tuple[_Step, ...]
    stochastic: bool = True
    noise_steps: int = 0


def build_plan(
    timesteps: Sequence[int],
    *,
    guidance: Sequence[float] | None = None,
    branches: Sequence[Branch] | None = None,
    stochastic: bool = True,
    noise_steps: int = 0,
) -> DenoisePlan:
    """A plan over descending training timesteps (at least two).

    `guidance` defaults to the wave of 50 steps at the same timesteps, `branches` to CFG pairs.
    `stochastic` is SDE-DPM++ 2M, the reference's solver; without it, DPM++ 2M as an ODE: no noise after the first
    latent. `noise_steps` as in DenoisePlan; the timesteps are then some of that even plan's. Raises PlanError, naming
    the step, for impossible values.
    """
    if len(timesteps) < 2:
        raise PlanError("too few steps", found=len(timesteps), expected="at least 2")
    for k, t in enumerate(timesteps):
        below = timesteps[k - 1] if k else TRAINING_TIMESTEPS
        if not 0 <= t < below:
            raise PlanError("impossible timestep", where=f"step {k}", found=t, expected=f"an integer in 0..{below - 1}")
    if noise_steps and not set(timesteps) <= set(even_timesteps(noise_steps)):
        expected = "a number of even steps whose timesteps include the plan's"
        raise PlanError("impossible noise", where="plan: noise_steps", found=repr(noise_steps), expected=expected)
    if guidance is None:
        guidance = [wave_guidance(t) for t in timesteps]
    if branches is None:
        branches = ["pair"] * len(timesteps)
    for name, values in (("guidance", guidance), ("branches", branches)):
        if len(values) != len(timesteps):
            raise PlanError(f"{name} has the wrong length", found=len(values), expected=len(timesteps))
    solver = solver_coefficients(timesteps, stochastic)
    steps: list[PlanStep] = []
    for k, t in enumerate(timesteps):
        scale = float(guidance[k])
        if not math.isfinite(scale):
            raise PlanError("impossible guidance", where=f"step {k}", found=scale, expected="a finite number")
        branch = _checked_branch(branches[k], k, any(step.branch == "pair" for step in steps))
        # An unguided step keeps the last pair's difference for a later reuse.
        coefficients = solver[k]._replace(
            guidance_minus_one=0.0 if branch == "conditional" else scale - 1.0,
            reuse=0.0 if branch == "pair" else 1.0,
        )
        steps.append(PlanStep(int(t), scale, branch, coefficients))
    return DenoisePlan(tuple(steps), stochastic, noise_steps)


def noise_weights(plan: DenoisePlan) -> list[NDArray[np.float32]]:
    """For each step but the last: weights of the next draws, whose weighted sum is its noise, of unit variance.

    One draw a step if the plan has its own noise; else one for each fine step that the step spans.
    """
    if not plan.noise_steps:
        return [np.ones(1, np.float32)] * (len(plan) - 1)
    fine = even_timesteps(plan.noise_steps)
    indices = [fine.index(step.timestep) for step in plan]
    return [_noise_weights(fine, start, end) for start, end in zip(indices, indices[1:], strict=False)]


def _noise_weights(fine: Sequence[int], start: int, end: int) -> NDArray[np.float32]:
    levels = signal_levels(fine)
    snr = [half_log_snr(float(level)) for level in levels[start : end + 1]]
    weights = np.array(
        [
            math.exp(after - snr[-1]) * math.sqrt(-math.expm1(2.0 * (before - after)))
            for before, after in zip(snr, snr[1:], strict=False)
        ]
    )
    unit: NDArray[np.float32] = (weights / np.linalg.norm(weights)).astype(np.float32)
    return unit


def _checked_branch(value: Branch, step: int, has_pair: bool) -> Branch:
    if value not in get_args(Branch):
        raise PlanError("unknown branch", where=f"step {step}", found=repr(value), expected=", ".join(get_args(Branch)))
    if value == "reuse" and not has_pair:
        raise PlanError("reuse before any pair: there is no difference yet", where=f"step {step}", expected="a pair")
    return value
