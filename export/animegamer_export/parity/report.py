"""Runs the check of each fixture set in a folder, and makes a table of the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from animegamer_export.parity import decoding, diffusion, language
from animegamer_export.parity.checks import ROUNDINGS, Check
from animegamer_export.parity.fixtures import WEIGHTS, FixtureFolder, FixtureSet, open_folder
from animegamer_rt.errors import AnimeGamerError

CHECKS: dict[str, Callable[[FixtureFolder, FixtureSet], list[Check]]] = {
    "encoder": diffusion.check_encoder,
    "uncond": diffusion.check_unconditional,
    "dit_step": diffusion.check_step,
    "dit_inter": diffusion.check_inner,
    "sampler": diffusion.check_sampler,
    "sampler_discarded": diffusion.check_discarded,
    "vae": decoding.check_decode,
    "vae_inter": decoding.check_inner,
    "vae_whole": decoding.check_whole,
    "mllm": language.check_predictor,
}


@dataclass(frozen=True, slots=True)
class Result:
    """The checks of one set, or why it could not be checked."""

    name: str
    checks: tuple[Check, ...]
    fault: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the set could be checked and every check is within its tolerance."""
        return self.fault is None and bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def worst(self) -> Check:
        """The failed check furthest beyond its tolerance; if all pass, the one with the largest error."""
        failed = [check for check in self.checks if not check.passed]
        if failed:
            return max(failed, key=lambda check: check.severity)
        return max(self.checks, key=lambda check: (check.error, check.tolerance))


def check_folder(path: Path) -> list[Result]:
    """Every fixture set of the folder, checked on the CPU in float32. Raises CheckpointError when it holds none."""
    folder, exact = open_folder(path), open_folder(path, torch.float64)
    results = []
    for fixture in folder.sets.values():
        if fixture.kind not in WEIGHTS:
            results += _check(folder, exact, fixture)
    return results


def _check(folder: FixtureFolder, exact: FixtureFolder, fixture: FixtureSet) -> list[Result]:
    if fixture.kind not in CHECKS:
        return [Result(fixture.name, (), f"{fixture.where}: recorded tensors, but no check is known for this name")]
    try:
        with torch.no_grad():
            check = CHECKS[fixture.kind]
            checks = check(folder, fixture)
            if not all(one.passed for one in checks):
                # The same check in float64 tells whether it is float32's rounding, which differs between processors.
                checks = [
                    one.with_rounding(other)
                    for one, other in zip(checks, check(exact, exact.sets[fixture.name]), strict=True)
                ]
    except AnimeGamerError as error:
        return [Result(fixture.name, (), str(error))]
    except KeyError as error:
        return [Result(fixture.name, (), f"{fixture.where}: the description or its tensors lack {error}")]
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        # Entries of another type, and tensors and sizes that do not agree with each other.
        return [Result(fixture.name, (), f"{fixture.where}: {type(error).__name__}: {error}")]
    return [
        Result(
            f"{fixture.name} ({variant})" if variant else fixture.name,
            tuple(check for check in checks if check.variant == variant),
        )
        for variant in dict.fromkeys(check.variant for check in checks)
    ]


def table(results: list[Result]) -> str:
    """The results as text: one line per set with its worst check, then the failures."""
    width = max(len(result.name) for result in results)
    lines = [f"{'set':{width}}  {'max error':>10}  {'tolerance':>17}  result  worst of"]
    for result in results:
        word = "pass" if result.passed else "FAIL"
        if result.fault is not None:
            lines.append(f"{result.name:{width}}  {'-':>10}  {'-':>17}  {word}")
            continue
        worst = result.worst
        error, tolerance = f"{worst.error:10.2e}", f"{_tolerance(worst):>17}"
        lines.append(f"{result.name:{width}}  {error}  {tolerance}  {word}    {len(result.checks)}: {worst.what}")
    for result in results:
        if result.fault is not None:
            lines.append(f"FAIL {result.name}: {result.fault}")
        for check in result.checks:
            if not check.passed:
                lines.append(f"FAIL {result.name}: {check.what}: {check.error:.2e} > {_tolerance(check)}")
    if any(check.rounding for result in results for check in result.checks):
        lines.append(
            f"tolerance + r: r is {ROUNDINGS:g} times the smaller distance of ours or the recording from float64"
        )
    passed = sum(result.passed for result in results)
    lines.append(f"{passed} of {len(results)} sets pass (float32, CPU, largest absolute errors)")
    return "\n".join(lines)


def _tolerance(check: Check) -> str:
    return f"{check.tolerance:.0e}" + (f" + {check.granted:.1e}" if check.granted else "")
