"""The jobs of the GPU benchmark as data: variants, peers, and all jobs in order of priority.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

STAGES = ("build", "reference", "turns", "peers", "profile")
LIMITS_S: Mapping[str, float] = {
    "machine": 300,
    "build": 240,
    "reference": 120,
    "turns": 240,
    "peers": 150,
    "profile": 200,
}
"""Time limit of a job by stage, in seconds: several times the expected duration."""
EXPORTED = ("exported-balanced", "exported-fast")
"""Initial coarse plans of an exported bundle, of 18 and 10 steps; `balanced` and `fast` are pocket's."""
TURBO = "turbo"
"""Three unguided rows and the light decoder for full size, in a process of its own."""
PLANS = ("balanced", "fast", "exact", TURBO, *EXPORTED)
"""Short turns first, so that an interrupted run has most of its results."""
PEER_MODES, PEER_PARTS = ("eager", "compiled"), ("denoiser", "vae", "predictor")


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration of PyTorch's engines. graphs: through CUDA graphs. memory_gb: its limit.

    attention: of the denoiser, with the kernels (docs/TORCH.md). int4_predictor: the predictor's layers packed in 4
    bits; only with random weights, as a bundle has its own.
    """

    precision: str
    graphs: bool = True
    kernels: bool = False
    attention: str = "torch"
    int4_predictor: bool = False
    memory_gb: float | None = None

    @property
    def name(self) -> str:
        """The name for `--variants`: the precision, and what differs from the defaults."""
        words = [self.precision, "" if self.graphs else "eager"]
        words += ["kernels" * self.kernels, "" if self.attention == "torch" else f"{self.attention}-attention"]
        words += ["int4-predictor" * self.int4_predictor]
        words += [f"{self.memory_gb:g}gb" if self.memory_gb else ""]
        return "-".join(filter(None, words))


FOR_GOALS = (
    Variant("fp8", kernels=True, attention="wgmma"),
    Variant("bf16", kernels=True, attention="wgmma"),
    Variant("fp8", kernels=True),
    Variant("fp8", kernels=True, int4_predictor=True, memory_gb=12),
    Variant("fp8", kernels=True, int4_predictor=True, memory_gb=8),
    Variant("bf16", kernels=True),
    Variant("bf16"),
)
"""Expected to reach the goals, and plain operators in case the kernels fail."""
VARIANTS = (
    *FOR_GOALS,
    Variant("int8", kernels=True),
    Variant("fp8"),
    Variant("bf16", graphs=False),
    Variant("fp8", kernels=True, int4_predictor=True),
)
"""On a GPU, in order of priority."""
POCKET = ("bf16", "bf16-kernels", "bf16-eager")
"""Also timed with pocket, where launches cost more than arithmetic."""
SMALLEST_GB = 8
CPU_VARIANTS = (
    Variant("fp32", graphs=False),
    Variant("fp8", graphs=False, kernels=True, int4_predictor=True),
    Variant("int8", graphs=False, kernels=True, attention="wgmma"),
)
"""In a dry run, without a GPU: the same code, with the kernels' references."""
PROFILED = (Variant("bf16", graphs=False), Variant("fp8", graphs=False, kernels=True))


@dataclass(frozen=True, slots=True)
class Job:
    """One process. args: its arguments, in addition to the common ones. plans: of turns; each has its own result."""

    stage: str
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    plans: tuple[str, ...] = ()

    @property
    def kernels(self) -> bool:
        """Whether it needs the kernel library."""
        return bool(self.args.get("kernels"))

    @property
    def limit_s(self) -> float:
        """Time limit in seconds."""
        return LIMITS_S[self.stage]


def jobs(device: str, sizes: Sequence[str], plans: Sequence[str], selected: Callable[[Variant], bool]) -> Iterator[Job]:
    """All jobs of the selected variants, without duplicates, in order of priority."""
    on_gpu = device == "cuda"
    profiles = [profile_job(sizes[0], one) for one in (PROFILED if on_gpu else CPU_VARIANTS[:1])]
    variants = [variant for variant in (VARIANTS if on_gpu else CPU_VARIANTS) if selected(variant)]
    first, *others = sizes
    # Profiles guide what to do next: run them right after the first variants.
    profiled_after = next(iter(variants[1:] or variants), None)
    yield Job("build", "library")
    seen: set[str] = set()
    for variant in variants:
        if variant not in FOR_GOALS and "peers" not in seen:
            seen.add("peers")
            yield from peer_jobs(PEER_MODES[0])
        if "reference" not in seen and first != "pocket":
            seen.add("reference")
            yield Job("reference", first, {"size": first})
        if can_play(first, variant):
            yield from turn_jobs(first, variant, plans)
        if variant == profiled_after:
            yield from profiles
    for mode in PEER_MODES["peers" in seen : None if on_gpu else 1]:
        yield from peer_jobs(mode)
    for size in others:
        some = [one for one in variants if size != "pocket" or one.name in POCKET or not on_gpu]
        yield from (job for one in some if can_play(size, one) for job in turn_jobs(size, one, plans))
    if profiled_after is None:
        yield from profiles


def profile_job(size: str, variant: Variant) -> Job:
    """Profiles a turn."""
    return Job(
        "profile", f"{size}-{variant.name}", {"size": size, "variant": asdict(variant), "kernels": variant.kernels}
    )


def can_play(size: str, variant: Variant) -> bool:
    """Whether a variant can play turns of a size: pocket's predictor cannot be packed in 4 bits."""
    return size != "pocket" or not variant.int4_predictor


def turn_jobs(size: str, variant: Variant, plans: Sequence[str]) -> Iterator[Job]:
    """Turns of every plan at a size by a variant. Only the goals' variants play all, and one on a CPU.

    With limited memory, each plan has a process of its own, as in play; the smallest card plays `turbo` alone.
    """
    left_out = {*EXPORTED, TURBO} if size == "pocket" else set()
    left_out |= set() if variant in (*FOR_GOALS, CPU_VARIANTS[0]) else set(EXPORTED)
    limit = variant.memory_gb
    played = [plan for plan in plans if plan not in left_out and (limit != SMALLEST_GB or plan == TURBO)]
    apart = [(plan,) for plan in played if plan == TURBO or limit is not None]
    args = {"size": size, "variant": asdict(variant), "variant_name": variant.name, "kernels": variant.kernels}
    for some in filter(None, (tuple(plan for plan in played if (plan,) not in apart), *apart)):
        name = "-".join([size, variant.name, *(some if some in apart else ())])
        yield Job("turns", name, args, some)


def peer_jobs(mode: str) -> Iterator[Job]:
    """Each part by a peer's library. Compiling the predictor may exhaust the time limit, for 2 % of a turn."""
    parts = [part for part in PEER_PARTS if (mode, part) != ("compiled", "predictor")]
    return (Job("peers", f"{mode}-{part}", {"mode": mode, "part": part}) for part in parts)
