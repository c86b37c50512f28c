"""What engines are: all that can change a byte of the frames that they make of one bundle, plan and session.

A session stores the identity of the engines that made its last turn, as text. Imports no library, as the server process
reads these texts too. The version of this project is not part of it: its releases keep the frames.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

_FIELD = re.compile(r"; (?=[a-z]+: )")


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """One set of engines; two with the same text give the same bytes.

    kind: the library and the kind of device, the same words on every machine. precision: role -> what its part computes
    in. library: name and version, with those of the libraries below it. machine: the processor's instruction sets, or
    the GPU. attention: the denoiser's; empty where it cannot be chosen. kernels: hash of our kernels' library; empty:
    plain operators. parts: role -> hash of the part's files. settings: what else the engines chose for this machine.
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
        """One line: what older versions stored, "KIND, ROLE PRECISION, ..", then the other fields by name."""
        said = {name: _words(getattr(self, name)).replace(";", ",") for name in _NAMED}
        head = f"{self.kind}, {_words(self.precision)}"
        return "; ".join([head, *(f"{name}: {value or 'none'}" for name, value in said.items())])


_NAMED = tuple(one.name for one in fields(EngineIdentity) if one.name not in ("kind", "precision"))


def named_fields(identity: str) -> dict[str, str]:
    """The fields of an identity's text by name, kind and precision as `engines`. An older text has that one alone."""
    head, *rest = _FIELD.split(identity)
    return {"engines": head, **dict(one.split(": ", 1) for one in rest)}


def difference(first: str, second: str) -> tuple[str, str] | None:
    """What two identities differ in, each as it is in one of them; None where they are the same.

    A text of an older version is compared in what it holds.
    """
    one, other = named_fields(first), named_fields(second)
    unlike = [name for name in one if name in other and one[name] != other[name]]
    if not unlike:
        return None
    texts = ("; ".join(_said(found, name) for name in unlike) for found in (one, other))
    return next(texts), next(texts)


def _said(found: Mapping[str, str], name: str) -> str:
    return found[name] if name == "engines" else f"{name}: {found[name]}"


def _words(value: str | Mapping[str, str]) -> str:
    return value if isinstance(value, str) else ", ".join(f"{key} {what}" for key, what in value.items())
