"""The answer to a player: codes with fields, which each client shows in its player's language.

answers.json is the table of codes. A `change` says what differs from the scene before, a `limit` what the text asks for
in vain. The fields `people` and `value` hold words of the bundle, `words` those of the player.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class AnswerCode:
    """A row of the table: the fields that an answer of this code has."""

    kind: Literal["change", "limit"]
    fields: tuple[str, ...]
    doc: str


ANSWERS: Mapping[str, AnswerCode] = MappingProxyType(
    {
        code: AnswerCode(row["kind"], tuple(row["fields"]), row["doc"])
        for code, row in json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8")).items()
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One thing to tell the player: a code of `ANSWERS` and its fields; those that it lacks are empty."""

    code: str
    people: tuple[str, ...] = ()
    value: str = ""
    words: tuple[str, ...] = ()

    def to_fields(self) -> dict[str, Any]:
        """As on the wire: the code and the fields that it has."""
        found = {name: getattr(self, name) for name in ANSWERS[self.code].fields}
        return {"code": self.code, **{name: list(x) if isinstance(x, tuple) else x for name, x in found.items()}}
