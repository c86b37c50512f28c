"""What gpu.py measures, as data: the ways to run a turn, the peers, and the jobs in the order of their worth.

Knows names and time limits; it imports no torch, and nothing of how anything is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

STAGES = ("build", "checks", "rates", "kernels", "turns", "peers", "profile")
LIMITS_S: Mapping[str, float] = {
    "machine": 120,
    "build": 400,
    "checks": 150,
    "rates": 120,
    "kernels": 200,
    "turns": 300,
    "peers": 300,
    "profile": 200,
}
"""Seconds after which a job of that stage is ended: several times what it should take."""
KERNEL_FAMILIES = ("rows", "step", "vae")
"""Of gpu_kernels.FAMILIES; one that dies or hangs takes none of the others along."""
RATES = ("products", "attention")
PEER_MODES, PEER_PARTS = ("eager", "compiled"), ("denoiser", "vae", "predictor")


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the parts. graphs: what one CUDA graph holds (`off`: none); memory_gb: what torch may take."""

    precision: str
    graphs: str = "step"
    kernels: bool = False
    compiled: bool = False
    memory_gb: float | None = None

    @property
    def name(self) -> str:
        """As `--variants` takes it: what differs from graphs of steps over plain operators."""
        words = [self.precision, {"step": "", "turn": "turn", "off": "eager"}[self.graphs]]
        words += ["kernels" * self.kernels, "compiled" * self.compiled]
        words += [f"{self.memory_gb:g}gb" if self.memory_gb else ""]
        return "-".join(filter(None, words))

    @property
    def check(self) -> str:
        """The check that its answers are right."""
        return f"{self.precision}-kernels" if self.kernels else self.precision


VARIANTS = (
    Variant("bf16"),
    Variant("fp8"),
    Variant("bf16", kernels=True),
    Variant("fp8", kernels=True),
    Variant("int8", kernels=True),
    Variant("int8"),
    Variant("bf16", compiled=True),
    Variant("fp8", compiled=True),
    Variant("int8", compiled=True),
    Variant("fp8", kernels=True, compiled=True),
    Variant("bf16", "turn"),
    Variant("bf16", "off"),
    Variant("fp8", kernels=True, memory_gb=12),
)
"""On a GPU, the most telling first."""
POCKET = ("bf16", "bf16-kernels", "bf16-turn", "bf16-eager")
"""Of these at pocket's size, where launches weigh more than arithmetic."""
CPU_VARIANTS = (
    Variant("fp32", "off"),
    Variant("fp32", "off", kernels=True),
    Variant("fp8", "off"),
    Variant("int8", "off", kernels=True),
    Variant("fp32", "off", compiled=True),
)
"""Without a GPU: the same code, emulated; kernels are their references."""
PROFILED = (Variant("bf16", "off"), Variant("fp8", "off", kernels=True))
FURTHER_CHECKS = ("fp32", "fp16", "fp32-kernels", "fp16-kernels")


@dataclass(frozen=True, slots=True)
class Job:
    """One process. asks: what it is told, beside what all are; plans: a part of its answer each, for a turn's."""

    stage: str
    name: str
    asks: Mapping[str, Any] = field(default_factory=dict)
    plans: tuple[str, ...] = ()

    @property
    def kernels(self) -> bool:
        """Whether it cannot be done without the kernels' library."""
        return bool(self.asks.get("kernels"))


def jobs(device: str, sizes: Sequence[str], plans: Sequence[str], chosen: Callable[[Variant], bool]) -> Iterator[Job]:
    """All jobs, the most valuable first, of the variants chosen; each once."""
    on_gpu = device == "cuda"
    variants = [variant for variant in (VARIANTS if on_gpu else CPU_VARIANTS) if chosen(variant)]
    first, *others = sizes
    yield Job("build", "library")
    began: set[str] = set()
    for number, variant in enumerate(variants):
        if variant.kernels and "kernels" not in began:
            began.add("kernels")
            for family in KERNEL_FAMILIES:
                yield Job("checks", f"kernels-{family}", {"family": family, "kernels": True})
        if variant.compiled and "timings" not in began:
            began.add("timings")
            yield from kernel_timings(on_gpu)
        if variant.check not in began:
            began.add(variant.check)
            yield check(variant.check)
        yield turns(first, variant, plans)
        if number == 0:
            yield from (Job("rates", kind) for kind in RATES)
    if "timings" not in began:
        yield from kernel_timings(on_gpu)
    for mode in PEER_MODES if on_gpu else PEER_MODES[:1]:
        yield from (Job("peers", f"{mode}-{part}", {"mode": mode, "part": part}) for part in PEER_PARTS)
    for size in others:
        yield from (turns(size, one, plans) for one in variants if size != "pocket" or one.name in POCKET or not on_gpu)
    if on_gpu:
        yield from (check(name) for name in FURTHER_CHECKS if name not in began)
    for variant in PROFILED if on_gpu else CPU_VARIANTS[:1]:
        asks = {"size": first, "variant": asdict(variant), "kernels": variant.kernels}
        yield Job("profile", f"{first}-{variant.name}", asks)


def check(name: str) -> Job:
    """The check of a precision, with the kernels or without."""
    precision, _, kernels = name.partition("-")
    return Job("checks", name, {"precision": precision, "kernels": bool(kernels)})


def turns(size: str, variant: Variant, plans: Sequence[str]) -> Job:
    """Turns of every plan at a size, by a variant."""
    asks = {"size": size, "variant": asdict(variant), "variant_name": variant.name, "kernels": variant.kernels}
    return Job("turns", f"{size}-{variant.name}", asks, tuple(plans))


def kernel_timings(on_gpu: bool) -> Iterator[Job]:
    """Each kernel beside what it replaces; on a GPU first by the library's own program, which no Python slows."""
    if on_gpu:
        yield Job("kernels", "program", {"kernels": True})
    yield from (Job("kernels", family, {"family": family, "kernels": True}) for family in KERNEL_FAMILIES)
