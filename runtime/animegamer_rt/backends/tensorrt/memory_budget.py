"""The GPU memory that the engines need, and which weights are streamed from host memory if there is too little.

Weights are streamed where that costs least (STREAM_FIRST). Scratch is memory that an execution uses while it runs: one
for all parts, or a second one for the predictor, which can then run concurrently. Arithmetic only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from animegamer_rt.bundle.roles import DEFAULT_PARTS, DENOISER, ENCODER, PREDICTOR, VAE, PlanParts
from animegamer_rt.errors import BackendError

STREAM_FIRST = (ENCODER, PREDICTOR, VAE, DENOISER)
"""Roles by how often a turn reads their weights: never, at most five times, twice, once per step."""
RESERVE_BYTES = 256 * 2**20
"""Left free for the driver's contexts, kernels and graphs. A guess: no GPU has measured it."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class PartMemory:
    """One part: bytes of all its weights, and of those that may be streamed from host memory."""

    weights_bytes: int
    streamable_bytes: int


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of each part's streamable weights stays on the GPU, in bytes. `str()` gives the printed table.

    scratches: bytes of the one scratch for all parts, or of the shared one and the predictor's.
    """

    resident: Mapping[str, int]
    needs: Mapping[str, PartMemory]
    buffers_bytes: int
    scratches: tuple[int, ...]
    free_bytes: int

    @property
    def on_gpu_bytes(self) -> int:
        """Bytes that the engines use on the GPU."""
        weights = sum(
            need.weights_bytes - need.streamable_bytes + self.resident[part] for part, need in self.needs.items()
        )
        return weights + self.buffers_bytes + sum(self.scratches)

    @property
    def fits(self) -> bool:
        """Whether these bytes and the reserve are free."""
        return self.on_gpu_bytes + RESERVE_BYTES <= self.free_bytes

    @property
    def concurrent_prediction(self) -> bool:
        """Whether the predictor has its own scratch, so that it can run concurrently with the denoiser."""
        return len(self.scratches) > 1

    @property
    def streamed_bytes(self) -> int:
        """Bytes of weights that stay in host memory and are copied at every execution."""
        return sum(need.streamable_bytes - self.resident[part] for part, need in self.needs.items())

    def __str__(self) -> str:
        rows = [
            f"  {part:<18}{need.weights_bytes / MIB:9.0f} MiB of weights"
            + (
                f", {(need.streamable_bytes - self.resident[part]) / MIB:.0f} of them streamed"
                if self.resident[part] < need.streamable_bytes
                else ""
            )
            for part, need in self.needs.items()
        ]
        rows += [
            f"  {'buffers':<18}{self.buffers_bytes / MIB:9.0f} MiB",
            *(
                f"  {name:<18}{size / MIB:9.0f} MiB"
                for name, size in zip(("scratch, shared", "scratch, predictor"), self.scratches, strict=False)
            ),
            f"  {'on the GPU':<18}{self.on_gpu_bytes / MIB:9.0f} MiB of {self.free_bytes / MIB:.0f} free, "
            f"{RESERVE_BYTES / MIB:.0f} reserved for the driver",
            f"  the next turn is predicted {'while' if self.concurrent_prediction else 'after'} one is denoised",
        ]
        return "\n".join(rows)

    def check(self) -> None:
        """Raises BackendError if they do not fit."""
        if not self.fits:
            raise BackendError(
                "the engines do not fit this GPU",
                found=f"{self.free_bytes / MIB:.0f} MiB free",
                expected=f"{(self.on_gpu_bytes + RESERVE_BYTES) / MIB:.0f} MiB with all streamable weights on the host",
                do="close other programs, build with a smaller --longest-prompt, or quantise the predictor further",
            )


def plan(
    needs: Mapping[str, PartMemory],
    buffers_bytes: int,
    scratches: tuple[int, ...],
    free_bytes: int,
    parts: PlanParts = DEFAULT_PARTS,
) -> Budget:
    """Keeps all weights on the GPU if they fit; otherwise streams as few as needed, in the order of STREAM_FIRST."""
    resident = {part: need.streamable_bytes for part, need in needs.items()}
    whole = Budget(resident, needs, buffers_bytes, scratches, free_bytes)
    over = whole.on_gpu_bytes + RESERVE_BYTES - free_bytes
    for graph in (graph for role in STREAM_FIRST for graph in parts.graphs(role)):
        if over > 0 and graph in resident:
            moved = min(over, resident[graph])
            resident[graph] -= moved
            over -= moved
    return Budget(resident, needs, buffers_bytes, scratches, free_bytes)
