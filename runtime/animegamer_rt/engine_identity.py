"""The identity of engines: everything that can change a byte of the frames of one bundle, plan and session.

A session stores, as text, the identity of the engines that made its last turn. Imports no backend library, as the
server process reads these texts too. This project's version is not included: its releases keep the frames.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

_FIELD = re.compile(r"; (?=[a-z]+: )")


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """One set of engines; two with equal texts give equal bytes.

    kind: the library and kind of device, the same words on every machine. precision: role -> precision of its part.
    library: name and version, with those of the libraries below it. machine: the CPU's instruction sets, or the GPU.
    attention: the denoiser's; empty where there is no choice. kernels: hash of our kernels' library; empty: plain
    operators. parts: role -> hash of the part's files. settings: other choices the engines made for this machine.
    rules: hash of what the manifest says about a turn (`Bundle.rules_hash`).
    """

    kind: str
    precision: Mapping[str, str]
    library: str = ""
    machine: str = ""
    attention: str = ""
    kernels: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    rules: str = ""

    def __str__(self) -> str:
        """One line: "KIND, ROLE PRECISION, ..", as older versions stored it, then the other fields by name."""
        said = {name: _join(getattr(self, name)).replace(";", ",") for name in _NAMED}
        head = f"{self.kind}, {_join(self.precision)}"
        return "; ".join([head, *(f"{name}: {value or 'none'}" for name, value in said.items())])


_NAMED = tuple(one.name for one in fields(EngineIdentity) if one.name not in ("kind", "precision"))


def named_fields(identity: str) -> dict[str, str]:
    """The fields of an identity's text by name, kind and precision as `engines`, which is all that older texts have."""
    head, *rest = _FIELD.split(identity)
    return {"engines": head, **dict(one.split(": ", 1) for one in rest)}


def difference(first: str, second: str) -> tuple[str, str] | None:
    """The first difference between two identities, as text of each; None if they are the same.

    With a text of an older version, only the fields it has are compared.
    """
    one, other = named_fields(first), named_fields(second)
    unlike = [name for name in one if name in other and one[name] != other[name]]
    if not unlike:
        return None
    lead = {name: "" if name == "engines" else f"{name}: " for name in unlike}
    texts = ("; ".join(f"{lead[name]}{found[name]}" for name in unlike) for found in (one, other))
    return next(texts), next(texts)


def _join(value: str | Mapping[str, str]) -> str:
    return value if isinstance(value, str) else ", ".join(f"{key} {what}" for key, what in value.items())
