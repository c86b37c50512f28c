"""What a process that runs for weeks gives back."""

from __future__ import annotations

import platform

import pytest

from animegamer_rt.profiling.process_memory import release_free, resident_mib


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries give freed memory back by themselves")
def test_what_a_burst_needed_goes_back_to_the_system() -> None:
    burst = [bytearray(100_000) for _ in range(1000)]
    for block in burst:
        block[::4096] = b"1" * len(block[::4096])
    kept = burst[::20]
    during = resident_mib()
    del burst, block
    release_free()
    assert len(kept) == 50 and resident_mib() < during - 50
