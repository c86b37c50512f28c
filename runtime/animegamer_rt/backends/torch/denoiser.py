"""The denoiser part: buffers that keep their addresses, a table of modulations, one graph a kind of step or a turn.

Knows steps as the contract gives them; nothing of plans' making. Nothing in a turn waits for the device but the
host's own staging, two steps behind, and `latent()`. Source: backends/contract.py; MODEL.md section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from animegamer_rt.backends.interface import FloatArray
from animegamer_rt.bundle.denoise_plan import BlockCache

from ...errors import BackendError
from .attention import CHOOSING
from .device import GraphCache, TorchDevice
from .transformer import BlockCacheBuffer, Transformer

PAIR, SINGLE = (0, 1), (1,)
"""A reusing step is a single one whose coefficients bring the last difference in: the same graph."""
SLOTS = 2
"""Staging of a step's host values, and so how many steps are queued at most: the host fills one while one runs."""
COEFFICIENTS = 8

Rows = tuple[int, ...]
Kind = tuple[Rows, BlockCache | None]
"""What tells one graph of a step from another."""


class Denoiser:
    """contract.DenoiserPart. One turn at a time, as all turns share the buffers.

    `timesteps` are those the table is made for; another one costs a row of its own. With `whole_turns` = n, steps
    (at most n) only note what they were given, and `latent()` runs them all as one graph.
    """

    def __init__(
        self,
        torch_device: TorchDevice,
        network: Transformer,
        unconditional: Tensor,
        timesteps: Sequence[int],
        whole_turns: int = 0,
    ) -> None:
        self.torch_device, self.network, self.whole_turns, self.turn = torch_device, network, whole_turns, 0
        self.skippable_blocks = network.block_count
        self.changes: Tensor | None = None
        size, steps = network.size, whole_turns or 1
        self.shape = (1, size.latent_frames, size.latent_channels, size.latent_height, size.latent_width)
        with torch_device.use():
            self.table_rows = {float(timestep): row for row, timestep in enumerate(sorted(set(timesteps)))}
            self.spare = len(self.table_rows)
            self.table = torch_device.zeros((self.spare + 1, network.modulation_width), network.table_dtype)
            self.timesteps = torch_device.zeros((self.spare + 1,), torch.float32)
            self.timesteps[: self.spare] = torch_device.to_device(np.array(list(self.table_rows), np.float32))
            self.motion_scope = torch_device.zeros((1,), torch.float32)
            self.state = [torch_device.zeros(self.shape, torch.float32) for _ in range(3)]
            self.shots = torch_device.zeros((2, size.shot_tokens, size.hidden))
            self.shots[0].copy_(unconditional)
            self.inputs = _inputs(torch_device.zeros, steps, self.shape)
            self.slots = [_inputs(torch_device.pinned, steps, self.shape) for _ in range(1 if whole_turns else SLOTS)]
        self.marks: list[object | None] = [None] * SLOTS
        self.replays = GraphCache(torch_device)

    def start(self, latent: FloatArray, shot: FloatArray, motion_scope: float) -> TorchDenoiseRun:
        """Starts a turn; the turn before, if it was not finished, ends here."""
        if latent.shape != self.shape or shot.shape != self.shots.shape[1:]:
            raise BackendError(
                "latent or shot are not the network's",
                found=f"{latent.shape}, {shot.shape}",
                expected=f"{self.shape}, {tuple(self.shots.shape[1:])}",
            )
        self.turn += 1
        torch_device = self.torch_device
        with torch_device.use():
            zeros = np.zeros_like(latent)
            for buffer, value in zip(self.state, (latent, zeros, zeros), strict=True):
                buffer.copy_(torch_device.to_device(value))
            self.shots[1] = torch_device.to_device(shot).to(self.shots.dtype)
            self.motion_scope.fill_(motion_scope)
            self.table[: self.spare] = self.network.modulations(self.timesteps[: self.spare], self.motion_scope)
        return TorchDenoiseRun(self, self.turn)

    def queue_spare_row(self, timestep: float) -> int:
        """A row for a timestep that the table was not made for; it takes the place of the last such one."""
        if self.whole_turns:
            raise BackendError(
                "a whole turn's graph has no room for a timestep that is in none of the bundle's plans",
                found=timestep,
                do="run graphs of single steps, or play one of the bundle's plans",
            )
        self.timesteps[self.spare :].fill_(timestep)
        self.table[self.spare :] = self.network.modulations(self.timesteps[self.spare :], self.motion_scope)
        return self.spare

    def make_room_for_blocks(self) -> None:
        """The cache of a plan that skips blocks, both rows: 54 MB at full size, for the first turn that asks for it."""
        if self.changes is None:
            size = self.network.size
            tokens = size.shot_tokens + math.prod(size.patch_grid)
            self.changes = self.torch_device.zeros((2, tokens, size.hidden))

    def queue(self, kinds: Sequence[Kind]) -> None:
        """Queues the steps whose inputs were sent: one graph for this order of kinds."""

        def work() -> None:
            for index, (rows, blocks) in enumerate(kinds):
                self._step(index, slice(2) if rows == PAIR else slice(1, 2), blocks)

        # The first turn's vae runs plainly, and could not use the memory that a capture takes for all graphs.
        self.replays.run(tuple(kinds), work, plainly=self.turn == 1)

    def _step(self, index: int, rows: slice, blocks: BlockCache | None) -> None:
        noise, coefficients, table_row = (values[index : index + 1] for values in self.inputs)
        row, kept = self.table.index_select(0, table_row), None
        if blocks is not None:
            assert self.changes is not None
            kept = BlockCacheBuffer(blocks, self.changes[rows])
        with CHOOSING:
            patches = self.network.patches(self.state[0], self.shots[rows], row, kept)
        self.network.advance(patches, self.state, noise[0], coefficients[0])


class TorchDenoiseRun:
    """contract.Denoising."""

    def __init__(self, denoiser: Denoiser, turn: int) -> None:
        self._denoiser, self._turn = denoiser, turn
        self._steps = 0
        self._waiting: list[Kind] = []

    def step(
        self,
        coefficients: FloatArray,
        timestep: float,
        rows: Rows,
        noise: FloatArray,
        blocks: BlockCache | None = None,
    ) -> None:
        """Queues a step, or notes it for the whole turn's graph."""
        denoiser = self._check()
        if rows not in (PAIR, SINGLE):
            raise BackendError("a step of another kind", found=rows, expected=f"{PAIR} or {SINGLE}")
        if denoiser.whole_turns and len(self._waiting) == denoiser.whole_turns:
            raise BackendError("more steps than a whole turn's graph has room for", expected=denoiser.whole_turns)
        with denoiser.torch_device.use():
            if blocks is not None:
                denoiser.make_room_for_blocks()
            row = denoiser.table_rows.get(float(timestep))
            if row is None:
                row = denoiser.queue_spare_row(timestep)
            slot = 0 if denoiser.whole_turns else self._steps % SLOTS
            if (mark := denoiser.marks[slot]) is not None:
                denoiser.torch_device.wait(mark)
                denoiser.marks[slot] = None
            values = (torch.from_numpy(noise), torch.from_numpy(np.ascontiguousarray(coefficients)), torch.tensor(row))
            for pinned, value in zip(denoiser.slots[slot], values, strict=True):
                pinned[len(self._waiting)].copy_(value)
            self._steps += 1
            self._waiting.append((rows, blocks))
            if not denoiser.whole_turns:
                self._flush(slot)

    def latent(self) -> FloatArray:
        """The latent now; waits for the device."""
        denoiser = self._check()
        with denoiser.torch_device.use():
            if self._waiting:
                self._flush(0)
            latent: FloatArray = denoiser.torch_device.to_host(denoiser.state[0]).numpy()
        return latent

    def _flush(self, slot: int) -> None:
        denoiser, count = self._denoiser, len(self._waiting)
        for buffer, pinned in zip(denoiser.inputs, denoiser.slots[slot], strict=True):
            buffer[:count].copy_(pinned[:count], non_blocking=True)
        denoiser.queue(self._waiting)
        # After the work, not after the copies: the host is then never more than two steps ahead.
        denoiser.marks[slot] = denoiser.torch_device.mark()
        self._waiting = []

    def _check(self) -> Denoiser:
        if self._turn != self._denoiser.turn:
            raise BackendError("a turn's denoising went on after the next turn had begun")
        return self._denoiser


def _inputs(
    make: Callable[[Sequence[int], torch.dtype], Tensor], steps: int, shape: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Noise, coefficients and table row of so many steps."""
    noise, coefficients = make((steps, *shape), torch.float32), make((steps, COEFFICIENTS), torch.float32)
    return noise, coefficients, make((steps,), torch.int64)
