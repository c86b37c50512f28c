"""Named device buffers in one allocation; engines that use the same name share the buffer.

It knows names and sizes. `engines` decides who reads and writes which buffer.
"""

from __future__ import annotations

from collections.abc import Mapping

from .device import Device

ALIGNMENT = 256


class Buffers:
    """Declare every buffer, then `allocate` once, then look up addresses. A name has its largest declared size."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._addresses: dict[str, int] = {}

    def declare(self, sizes: Mapping[str, int]) -> None:
        """sizes: name -> bytes."""
        assert not self._addresses, "declared after the memory was allocated"
        for name, size in sizes.items():
            self._bytes[name] = max(self._bytes.get(name, 0), size)

    @property
    def total_bytes(self) -> int:
        """The sum of all buffers, each rounded up to ALIGNMENT."""
        return sum(_aligned(size) for size in self._bytes.values())

    def allocate(self, device: Device) -> None:
        """Allocates all buffers in one block, which succeeds or fails as a whole. Raises BackendError."""
        address = device.allocate(max(self.total_bytes, ALIGNMENT))
        for name, size in self._bytes.items():
            self._addresses[name] = address
            address += _aligned(size)

    def __getitem__(self, name: str) -> int:
        """The address of a buffer."""
        return self._addresses[name]

    def bytes(self, name: str) -> int:
        """The size of a buffer in bytes."""
        return self._bytes[name]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
