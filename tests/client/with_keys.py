"""libsodium, which keys need: whether it is here, and conformance of a client that is built with or without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from client.conformance import run as conformance
from client.tools import can_build

WITH_KEYS = can_build("Keys for C, C++, C# and Unreal")
"""`make clients` names the library, and .ci/run fails without it."""

needs_keys = pytest.mark.skipif(not WITH_KEYS, reason="no libsodium; on Debian: apt-get install libsodium-dev")


def check_conformance(client: str, command: list[str], cwd: Path | None = None) -> None:
    """Plays all scenarios that can be played here; fails unless they end as recorded."""
    lacks = {} if WITH_KEYS else {"curve": "built without libsodium"}
    played = conformance.play(client, command, cwd, lacks)
    outcomes = {name: "yes" if "built without" in outcome else outcome for name, outcome in played.items()}
    assert outcomes == conformance.recorded()[client]
