"""What the engines need on the GPU, and which weights stay in host memory when that is too much: arithmetic only.

Weights are streamed where it costs least: first the predictor's (read at most five times a turn, and mostly idle), then
the vae's (twice), the denoiser's last (once a step). Scratch is what an execution needs while it runs: one for all, or
one more for the predictor alone, which may then run while the others do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from animegamer_rt.errors import BackendError

STREAM_FIRST = ("encoder", "predictor", "vae_first", "vae_next", "denoiser")
RESERVE_BYTES = 256 * 2**20
"""Left free: the driver's own memory for contexts, kernels and graphs. A guess until it was measured on a card."""
MIB = 2**20


@dataclass(frozen=True, slots=True)
class PartMemory:
    """One part: all its weights, and how many of them may be streamed."""

    weights_bytes: int
    streamable_bytes: int


@dataclass(frozen=True, slots=True)
class Budget:
    """What each part keeps on the GPU of its streamable weights, and the sums. `str()` is the printed table.

    scratches: the one for all, or the one of all others and the predictor's own.
    """

    kept: Mapping[str, int]
    needs: Mapping[str, PartMemory]
    buffers_bytes: int
    scratches: tuple[int, ...]
    free_bytes: int

    @property
    def on_gpu_bytes(self) -> int:
        """All that will lie on the GPU."""
        weights = sum(need.weights_bytes - need.streamable_bytes + self.kept[part] for part, need in self.needs.items())
        return weights + self.buffers_bytes + sum(self.scratches)

    @property
    def fits(self) -> bool:
        """Whether that is there, with the reserve."""
        return self.on_gpu_bytes + RESERVE_BYTES <= self.free_bytes

    @property
    def concurrent_prediction(self) -> bool:
        """Whether the predictor has a scratch of its own."""
        return len(self.scratches) > 1

    @property
    def streamed_bytes(self) -> int:
        """Weights that stay in host memory and are copied at every execution."""
        return sum(need.streamable_bytes - self.kept[part] for part, need in self.needs.items())

    def __str__(self) -> str:
        rows = [
            f"  {part:<18}{need.weights_bytes / MIB:9.0f} MiB of weights"
            + (
                f", {(need.streamable_bytes - self.kept[part]) / MIB:.0f} of them streamed"
                if self.kept[part] < need.streamable_bytes
                else ""
            )
            for part, need in self.needs.items()
        ]
        rows += [
            f"  {'buffers':<18}{self.buffers_bytes / MIB:9.0f} MiB",
            *(
                f"  {name:<18}{size / MIB:9.0f} MiB"
                for name, size in zip(("scratch, shared", "of the predictor"), self.scratches, strict=False)
            ),
            f"  {'on the GPU':<18}{self.on_gpu_bytes / MIB:9.0f} MiB of {self.free_bytes / MIB:.0f} free, "
            f"{RESERVE_BYTES / MIB:.0f} left over for the driver",
            f"  a turn is predicted {'while' if self.concurrent_prediction else 'after'} another one is denoised",
        ]
        return "\n".join(rows)

    def check(self) -> None:
        """Raises BackendError when it does not fit."""
        if not self.fits:
            raise BackendError(
                "the engines do not fit this GPU",
                found=f"{self.free_bytes / MIB:.0f} MiB free",
                expected=f"{(self.on_gpu_bytes + RESERVE_BYTES) / MIB:.0f} MiB with all streamable weights on the host",
                do="close other programs, build with a smaller --longest-prompt, or quantise the predictor further",
            )


def plan(needs: Mapping[str, PartMemory], buffers_bytes: int, scratches: tuple[int, ...], free_bytes: int) -> Budget:
    """Keeps all weights on the GPU if they fit, else streams in the order of STREAM_FIRST, no more than is needed."""
    kept = {part: need.streamable_bytes for part, need in needs.items()}
    whole = Budget(kept, needs, buffers_bytes, scratches, free_bytes)
    over = whole.on_gpu_bytes + RESERVE_BYTES - free_bytes
    for part in STREAM_FIRST:
        if over > 0 and part in kept:
            moved = min(over, kept[part])
            kept[part] -= moved
            over -= moved
    return Budget(kept, needs, buffers_bytes, scratches, free_bytes)
