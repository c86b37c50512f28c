"""Named device memory, allocated once: two engines that name the same buffer share it.

Knows names and sizes; who reads and writes what, and when, is `parts`'.
"""

from __future__ import annotations

from collections.abc import Mapping

from .device import Device

ALIGNMENT = 256


class Buffers:
    """Declare every name with what it needs (the largest counts), then `allocate` once, then ask for addresses."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._addresses: dict[str, int] = {}

    def declare(self, needs: Mapping[str, int]) -> None:
        """name -> bytes."""
        assert not self._addresses, "declared after the memory was allocated"
        for name, needed in needs.items():
            self._bytes[name] = max(self._bytes.get(name, 0), needed)

    @property
    def total_bytes(self) -> int:
        """All of them, each rounded up to the alignment."""
        return sum(_aligned(size) for size in self._bytes.values())

    def allocate(self, device: Device) -> None:
        """One block for all: one allocation that succeeds or fails as a whole."""
        address = device.allocate(max(self.total_bytes, ALIGNMENT))
        for name, size in self._bytes.items():
            self._addresses[name] = address
            address += _aligned(size)

    def __getitem__(self, name: str) -> int:
        """The address of a buffer."""
        return self._addresses[name]

    def bytes(self, name: str) -> int:
        """The size of a buffer."""
        return self._bytes[name]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
