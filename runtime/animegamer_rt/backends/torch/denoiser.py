"""The denoiser engine: buffers with fixed addresses, a table of modulations, and a CUDA graph of a step.

It runs the steps that it is given and does not know how plans are made. Within a turn the host waits for the device
only before it refills a staging slot, two steps later, and in `latent()`.
Source: backends/interface.py; MODEL.md section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from animegamer_rt.backends.interface import FloatArray
from animegamer_rt.errors import BackendError
from animegamer_rt.noise import AnyNoise

from .attention import SDPA_LOCK
from .device import GraphCache, TorchDevice
from .kernels import Kernels
from .noise import NoiseSource
from .transformer import Transformer

PAIR, SINGLE = (0, 1), (1,)
"""Rows of a step. A step that reuses the guidance difference is SINGLE with other coefficients: the same graph."""
SLOTS = 2
"""Pinned staging slots for a step's host values: the host fills one while the other's step runs, and so is at most two
steps ahead of the device."""
COEFFICIENTS = 8
"""Number of fields of bundle.noise_schedule.Coefficients."""

Rows = tuple[int, ...]


class Denoiser:
    """Implements interface.DenoiserEngine. One turn at a time, because all turns share the buffers.

    timesteps: those in the modulation table; any other timestep is computed into a spare row.
    """

    def __init__(
        self,
        torch_device: TorchDevice,
        network: Transformer,
        unconditional: Tensor,
        timesteps: Sequence[int],
        kernels: Kernels | None = None,
    ) -> None:
        self.torch_device, self.network, self.turn = torch_device, network, 0
        size = network.size
        self.shape = (1, size.latent_frames, size.latent_channels, size.latent_height, size.latent_width)
        with torch_device.use():
            self.table_rows = {float(timestep): row for row, timestep in enumerate(sorted(set(timesteps)))}
            self.spare_row = len(self.table_rows)
            self.table = torch_device.zeros((self.spare_row + 1, network.modulation_width), network.table_dtype)
            self.timesteps = torch_device.zeros((self.spare_row + 1,), torch.float32)
            self.timesteps[: self.spare_row] = torch_device.to_device(np.array(list(self.table_rows), np.float32))
            self.motion_scope = torch_device.zeros((1,), torch.float32)
            self.state = [torch_device.zeros(self.shape, torch.float32) for _ in range(3)]
            self.shots = torch_device.zeros((2, size.shot_tokens, size.hidden))
            self.shots[0].copy_(unconditional)
            self.noise = torch_device.zeros(self.shape, torch.float32)
            self.source = NoiseSource(torch_device, kernels)
            self.inputs = _inputs(torch_device.zeros)
            self.slots = [_inputs(torch_device.pinned) for _ in range(SLOTS)]
        self.marks: list[object | None] = [None] * SLOTS
        self.graphs = GraphCache(torch_device)

    def start(self, latent: AnyNoise, shot: FloatArray, motion_scope: float) -> TorchDenoiseRun:
        """Starts a turn and ends the one before. Raises BackendError for a latent or shot of another shape."""
        if latent.shape != self.shape or shot.shape != self.shots.shape[1:]:
            raise BackendError(
                "the latent or the shot has the wrong shape",
                found=f"{latent.shape}, {shot.shape}",
                expected=f"{self.shape}, {tuple(self.shots.shape[1:])}",
            )
        self.turn += 1
        torch_device = self.torch_device
        with torch_device.use():
            self.source.fill(self.state[0], latent)
            for buffer in self.state[1:]:
                buffer.zero_()
            self.shots[1] = torch_device.to_device(shot).to(self.shots.dtype)
            self.motion_scope.fill_(motion_scope)
            self.table[: self.spare_row] = self.network.modulations(self.timesteps[: self.spare_row], self.motion_scope)
        return TorchDenoiseRun(self, self.turn)

    def queue_spare_row(self, timestep: float) -> int:
        """Computes the table's spare row for a timestep that no plan of the bundle has; returns its index."""
        self.timesteps[self.spare_row :].fill_(timestep)
        self.table[self.spare_row :] = self.network.modulations(self.timesteps[self.spare_row :], self.motion_scope)
        return self.spare_row

    def queue(self, rows: Rows) -> None:
        """Queues a step whose inputs are in the device buffers, as the graph of its rows."""
        self.graphs.run(rows, lambda: self._step(rows))

    def _step(self, rows: Rows) -> None:
        which, (coefficients, table_row) = slice(2) if rows == PAIR else slice(1, 2), self.inputs
        with SDPA_LOCK:
            row = self.table.index_select(0, table_row)
            patches = self.network.patches(self.state[0], self.shots[which], row)
        self.network.advance(patches, self.state, self.noise, coefficients[0])


class TorchDenoiseRun:
    """Implements interface.DenoiseRun."""

    def __init__(self, denoiser: Denoiser, turn: int) -> None:
        self._denoiser, self._turn = denoiser, turn
        self._steps = 0

    def step(self, coefficients: FloatArray, timestep: float, rows: Rows, noise: AnyNoise) -> None:
        """Queues a step.

        Raises BackendError for other rows than a pair or the conditional row, and after the next turn has started.
        """
        denoiser = self._check()
        if rows not in (PAIR, SINGLE):
            raise BackendError("a denoising step has unsupported rows", found=rows, expected=f"{PAIR} or {SINGLE}")
        with denoiser.torch_device.use():
            row = denoiser.table_rows.get(float(timestep))
            if row is None:
                row = denoiser.queue_spare_row(timestep)
            slot = self._steps % SLOTS
            if (mark := denoiser.marks[slot]) is not None:
                denoiser.torch_device.wait(mark)
            denoiser.source.fill(denoiser.noise, noise)
            values = torch.from_numpy(np.ascontiguousarray(coefficients)), torch.tensor(row)
            for buffer, pinned, value in zip(denoiser.inputs, denoiser.slots[slot], values, strict=True):
                pinned[0].copy_(value)
                buffer.copy_(pinned, non_blocking=True)
            self._steps += 1
            denoiser.queue(rows)
            # Marked after the work rather than after the copies, so that the host is never more than two steps ahead.
            denoiser.marks[slot] = denoiser.torch_device.mark()

    def latent(self) -> FloatArray:
        """The latent now, f32 [1, 5, 16, h, w], as a copy; waits for the device."""
        denoiser = self._check()
        with denoiser.torch_device.use():
            latent: FloatArray = denoiser.torch_device.to_host(denoiser.state[0]).numpy()
        return latent

    def _check(self) -> Denoiser:
        if self._turn != self._denoiser.turn:
            raise BackendError("a turn's denoising continued after the next turn had started")
        return self._denoiser


def _inputs(make: Callable[[Sequence[int], torch.dtype], Tensor]) -> tuple[Tensor, Tensor]:
    """Host values of a step: coefficients f32 [1, 8], table row i64 [1]."""
    return make((1, COEFFICIENTS), torch.float32), make((1,), torch.int64)
