"""The voices of players: frames, references and tidiness."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Voice:
    """One way of speaking.

    weight: how often games use it. noise: 0 tidy to 1 hurried. own: how often a frame comes from the voice's own file
    instead of plain.txt. described, nicked: how often a character is called by a description or a nickname. joiners and
    ends: between sentences and after the last one. decorated: how often small words are added. quiet: no capitals.
    """

    name: str
    weight: float
    noise: float = 0.15
    own: float = 0.7
    described: float = 0.2
    nicked: float = 0.05
    joiners: tuple[str, ...] = (". ",)
    ends: tuple[str, ...] = (".", ".", "!", "")
    decorated: float = 0.12
    past: bool = False
    quiet: bool = False
    only_own: bool = False


_LOOSE = (". ", ", ", " ", " and ", "! ", "\n", "... ")

VOICES = (
    Voice("plain", 9, own=1.0, joiners=(". ", ". ", ". ", ". ", ", and ", "; ", "! ", " - ", ", ")),
    Voice("polite", 1.5, noise=0.05),
    Voice("child", 1.6, noise=0.5, described=0.25, joiners=(". ", " and ", ", and ", "! "), ends=("", ".", "!", "!!")),
    Voice("texting", 2.6, noise=0.9, joiners=_LOOSE, ends=("", "", ".", "!"), quiet=True),
    Voice("gamer", 1.4, noise=0.6, joiners=(". ", ", ", " ", " - "), ends=("", "", "!"), quiet=True, nicked=0.1),
    Voice("console", 1.3, 0.0, joiners=("; ", "\n", " && ", " "), ends=("",), decorated=0, quiet=True, only_own=True),
    Voice("stage", 1.0, noise=0.05, own=0.95, joiners=(" ", "\n"), ends=("",), decorated=0.02, described=0.25),
    Voice("film", 1.0, noise=0.05, joiners=(". ",), ends=(".", ""), decorated=0.02),
    Voice("sports", 0.9, noise=0.1, joiners=("! ", ". "), ends=("!",), decorated=0.03),
    Voice("teacher", 0.8, noise=0.05, joiners=(". ",), ends=(".", "!")),
    Voice("tale", 1.5, noise=0.05, own=1.0, described=0.3, ends=(".",), decorated=0.05, past=True, only_own=True),
    Voice("old", 0.9, noise=0.03, joiners=(". ", "; "), ends=(".", "!"), decorated=0.03),
    Voice("learner", 2.0, noise=0.5, own=0.75, joiners=(". ", ", ", " and "), ends=(".", "", "!"), decorated=0.06),
    Voice("weather", 0.6, noise=0.05, ends=(".",)),
    Voice("terse", 1.5, 0.4, joiners=(", ", " ", ". ", " / ", "; "), ends=("", "", "."), decorated=0.02, quiet=True),
    Voice("caption", 1.0, noise=0.05),
    Voice("emoji", 0.4, noise=0.0),
)  # fmt: skip

VOICE_BY_NAME = {voice.name: voice for voice in VOICES}
