"""How much of a file is in the system's memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from animegamer_rt.profiling.page_cache import cached_share


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_a_file_that_was_just_written_is_in_memory_and_one_of_holes_is_not(tmp_path: Path) -> None:
    written, holes = tmp_path / "written", tmp_path / "holes"
    written.write_bytes(bytes(3 * 2**16))
    with holes.open("wb") as file:
        file.truncate(2**16)
    assert cached_share([written]) == 1.0
    assert cached_share([written, holes]) == 0.75
    assert cached_share([]) is None
