"""What gpu.py measures, as data: the ways to run a turn, the peers, and the jobs in the order of their worth.

Knows names and time limits; it imports no torch, and nothing of how anything is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

STAGES = ("build", "checks", "rates", "kernels", "turns", "peers", "queue", "tests", "profile")
LIMITS_S: Mapping[str, float] = {
    "machine": 300,
    "build": 400,
    "checks": 150,
    "rates": 120,
    "kernels": 200,
    "turns": 300,
    "peers": 540,
    "queue": 200,
    "tests": 240,
    "profile": 200,
}
"""Seconds after which a job of that stage is ended: several times what it should take."""
SKIPPING = "balanced-skipping"
"""No plan of the bundle's, but made of its balanced one: gpu_turns.skipping_plan."""
PLANS = ("exact", "balanced", "fast", SKIPPING)
KERNEL_FAMILIES = ("rows", "products", "step", "vae", "packed", "attention")
"""Of gpu_kernel_cases.FAMILIES; one that dies or hangs takes none of the others along."""
RATES: Mapping[str, bool] = {"products": False, "attention": False, "attention-int8": True}
"""Kind -> whether it needs the kernels' library."""
PEER_MODES, PEER_PARTS = ("eager", "compiled"), ("denoiser", "vae", "predictor")


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the parts. graphs: what one CUDA graph holds (`off`: none); memory_gb: what it may take.

    attention: the denoiser's, with the kernels, as in docs/TORCH.md. int4_predictor: its layers packed in 4 bits; of
    random weights only, a bundle has its own.
    """

    precision: str
    graphs: str = "step"
    kernels: bool = False
    compiled: bool = False
    attention: str = "torch"
    int4_predictor: bool = False
    memory_gb: float | None = None

    @property
    def name(self) -> str:
        """As `--variants` takes it: what differs from graphs of steps over plain operators."""
        words = [self.precision, {"step": "", "turn": "turn", "off": "eager"}[self.graphs]]
        words += ["kernels" * self.kernels, self._attention, "compiled" * self.compiled]
        words += ["int4-predictor" * self.int4_predictor]
        words += [f"{self.memory_gb:g}gb" if self.memory_gb else ""]
        return "-".join(filter(None, words))

    @property
    def check(self) -> str:
        """The check that its answers are right."""
        return "-".join(filter(None, [self.precision, "kernels" * self.kernels, self._attention]))

    @property
    def _attention(self) -> str:
        return "" if self.attention == "torch" else f"{self.attention}-attention"


FOR_GOALS = (
    Variant("bf16"),
    Variant("bf16", kernels=True),
    Variant("fp8", kernels=True),
    Variant("fp8", kernels=True, int4_predictor=True, memory_gb=12),
    Variant("fp8", kernels=True, attention="int8"),
)
"""What the goals of gpu_goals are expected to be reached by, and plain operators in case kernels fail."""
VARIANTS = (
    *FOR_GOALS,
    Variant("fp8", "turn", kernels=True),
    Variant("fp8", kernels=True, attention="fastest"),
    Variant("bf16", kernels=True, attention="fastest"),
    Variant("int8", kernels=True),
    Variant("fp16", kernels=True),
    Variant("fp8"),
    Variant("bf16", compiled=True),
    Variant("fp8", compiled=True),
    Variant("int8", compiled=True),
    Variant("fp8", kernels=True, compiled=True),
    Variant("int8"),
    Variant("bf16", "turn"),
    Variant("bf16", "off"),
    Variant("fp8", kernels=True, int4_predictor=True),
    Variant("bf16", "off", kernels=True),
    Variant("fp8", "off", kernels=True),
)
"""On a GPU, the most telling first."""
POCKET = ("bf16", "bf16-kernels", "bf16-turn", "bf16-eager")
"""Of these at pocket's size, where launches weigh more than arithmetic."""
CPU_VARIANTS = (
    Variant("fp32", "off"),
    Variant("fp32", "off", kernels=True),
    Variant("fp8", "off"),
    Variant("int8", "off", kernels=True),
    Variant("bf16", "off", kernels=True, attention="int8"),
    Variant("bf16", "off", kernels=True, attention="fastest"),
    Variant("fp8", "off", int4_predictor=True),
    Variant("fp32", "off", compiled=True),
)
"""Without a GPU: the same code, emulated; kernels are their references."""
QUEUED = Variant("fp8", kernels=True)
"""Plays the queue of turns, in `balanced`."""
TESTED: Mapping[str, str] = {"parts": "tests/gpu", "kernels": "tests/kernels"}
"""Job -> the folder whose tests that need a GPU it runs."""
PROFILED = (Variant("bf16", "off"), Variant("fp8", "off", kernels=True))
FURTHER_CHECKS = (
    Variant("fp32"),
    Variant("fp16"),
    Variant("fp32", kernels=True),
    Variant("bf16", kernels=True, attention="int8"),
    Variant("fp16", kernels=True, attention="int8"),
)
"""Of what no turn is timed by."""


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
        if variant not in FOR_GOALS and "peers" not in began:
            began.add("peers")
            yield from peers(PEER_MODES[0])
            yield from queue_and_tests(first, on_gpu)
        if variant.kernels and "kernels" not in began:
            began.add("kernels")
            for family in KERNEL_FAMILIES:
                yield Job("checks", f"kernels-{family}", {"family": family, "kernels": True})
        if variant.compiled and "timings" not in began:
            began.add("timings")
            yield from kernel_timings(on_gpu)
        if variant.check not in began:
            began.add(variant.check)
            yield check(variant)
        if played(first, variant):
            yield turns(first, variant, plans)
        if number == 0:
            yield from (Job("rates", kind, {"kernels": kernels}) for kind, kernels in RATES.items())
    if "timings" not in began:
        yield from kernel_timings(on_gpu)
    if "peers" not in began:
        yield from queue_and_tests(first, on_gpu)
    for mode in PEER_MODES["peers" in began : None if on_gpu else 1]:
        yield from peers(mode)
    for size in others:
        some = [one for one in variants if size != "pocket" or one.name in POCKET or not on_gpu]
        yield from (turns(size, one, plans) for one in some if played(size, one))
    if on_gpu:
        yield from (check(one) for one in FURTHER_CHECKS if one.check not in began)
    for variant in PROFILED if on_gpu else CPU_VARIANTS[:1]:
        asks = {"size": first, "variant": asdict(variant), "kernels": variant.kernels}
        yield Job("profile", f"{first}-{variant.name}", asks)


def check(variant: Variant) -> Job:
    """The check of a variant's precision, with the kernels or without, and of its attention."""
    asks = {"precision": variant.precision, "kernels": variant.kernels, "attention": variant.attention}
    return Job("checks", variant.check, asks)


def played(size: str, variant: Variant) -> bool:
    """Whether there are turns of that size by the variant: pocket's predictor is as its bundle has it."""
    return size != "pocket" or not variant.int4_predictor


def turns(size: str, variant: Variant, plans: Sequence[str]) -> Job:
    """Turns of every plan at a size, by a variant; the one that skips by those of the goals alone, and one of a CPU."""
    skips = variant in (*FOR_GOALS, CPU_VARIANTS[0])
    asks = {"size": size, "variant": asdict(variant), "variant_name": variant.name, "kernels": variant.kernels}
    return Job("turns", f"{size}-{variant.name}", asks, tuple(plan for plan in plans if skips or plan != SKIPPING))


def peers(mode: str) -> Iterator[Job]:
    """Each part by another library."""
    return (Job("peers", f"{mode}-{part}", {"mode": mode, "part": part}) for part in PEER_PARTS)


def queue_and_tests(size: str, on_gpu: bool) -> Iterator[Job]:
    """Turns in a queue, and the tests that need a GPU: without one the same code runs, and finds no test."""
    variant = QUEUED if on_gpu else CPU_VARIANTS[0]
    asks = {"size": size, "variant": asdict(variant), "kernels": variant.kernels, "plan": "balanced"}
    yield Job("queue", f"{size}-{variant.name}", asks)
    for name, folder in TESTED.items():
        yield Job("tests", name, {"folder": folder, "kernels": name == "kernels"})


def kernel_timings(on_gpu: bool) -> Iterator[Job]:
    """Each kernel beside what it replaces; on a GPU first by the library's own program, which no Python slows."""
    if on_gpu:
        yield Job("kernels", "program", {"kernels": True})
    yield from (Job("kernels", family, {"family": family, "kernels": True}) for family in KERNEL_FAMILIES)
