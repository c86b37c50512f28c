"""The result of one check of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "limited", "broken"]
"""limited: it is missing or short, and playing works all the same. broken: playing does not work."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was checked, what was found, and what to do about it (empty: nothing)."""

    what: str
    state: State
    found: str
    do: str = ""
