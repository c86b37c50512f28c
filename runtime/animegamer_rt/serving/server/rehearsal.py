"""Faults on request: with simulated engines, a sentence such as `Mia waves. fail: busy` plays what it names.

So a game rehearses its errors without a model. The faults take the same paths as real ones, and a server with real
engines plays such a sentence like any other.
"""

from __future__ import annotations

import re

from animegamer_rt.errors import ProtocolError
from animegamer_rt.serving.wire.schema import CODES

WORKER_LOST = "worker_lost"
"""The worker is killed once in the turn: `restarting` comes, then the turn goes on."""
REFUSED = ("busy", "blocked", "rate_limited", "too_many_sessions", "draining", "degraded", "turn_running")
"""Codes with which the turn is refused."""
ENDED = ("deadline", "worker_failed", "unusable_output", "storage", "internal")
"""Codes with which the turn ends after its `state`."""
_ASKED = re.compile(r"\bfail: ?(\w+)\W*$", re.IGNORECASE)


def split(instruction: str) -> tuple[str, str]:
    """The instruction without the fault that it names, and the fault; "": none.

    Raises ProtocolError for a fault that is not known, and for one with which the turn is refused.
    """
    found = _ASKED.search(instruction)
    if found is None:
        return instruction, ""
    fault = found[1].lower()
    if fault in REFUSED:
        raise rehearsed(fault)
    if fault not in (*ENDED, WORKER_LOST):
        expected = ", ".join((WORKER_LOST, *REFUSED, *ENDED))
        raise ProtocolError("no such fault can be rehearsed", code="instruction", found=fault, expected=expected)
    return instruction[: found.start()].rstrip() or instruction, fault


def rehearsed(code: str) -> ProtocolError:
    """The error of a code, as a server could say it."""
    meaning, do = CODES[code]
    return ProtocolError(f"rehearsed: {meaning}", code=code, do=do)
