"""All errors for users, in one tree; each says what happened, where, what was found and expected, and what to do.

AnimeGamerError
|-- InstructionError            an instruction that is empty, too long, or not plain text
|-- PictureError                a start picture that is missing, not a picture, or too large
|-- ConfigError                 a setting of the wrong name, type or value
|-- BundleError
|   |-- BundleNotFoundError     no bundle of that name or path
|   |-- BundleFormatError       a manifest of another format version, or not a bundle's
|   `-- BundleFileError         a file that is missing, or not the one in the manifest
|-- PlanError                   a denoise plan that the bundle lacks, or that is impossible
|-- CheckpointError             a checkpoint whose keys or shapes are not the model's
|-- EngineStaleError            an engine built for another bundle, GPU or library
|-- BackendError                the library that runs the networks failed, or lacks the device
|   |-- DeviceLostError         the device no longer answers; a new process may help
|   `-- UnusableOutputError     a stage gave NaN, infinity or a frame that shows nothing
|-- SessionError                a game that cannot be resumed or rewound, or a closed player
|-- OutputError                 a file or folder that cannot be written
|-- HubError                    Hugging Face's hub cannot be reached, refuses, or sends another file
|-- ProtocolError               a message that breaks the protocol; `code` says which rule
|-- ServerError                 a server that cannot start: an address it must not bind, keys that are missing
|   |-- PortInUseError          another program has the port
|   `-- ClusterError            a Ray cluster that does not answer or cannot be joined
|-- StoreError                  stored sessions that are missing or cannot be read or written
`-- TurnCancelled               the turn was stopped on request; the session is as before
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

USER_ERROR = 2
"""Exit code of a command that fails until somebody changes something."""
TRY_AGAIN = 75
"""Exit code of a command that may work later without changes: EX_TEMPFAIL of sysexits.h."""
INTERRUPTED = 130
"""Exit code of a process ended by Ctrl-C, as in shells."""

_LISTED = 40
"""Keys listed per kind in a CheckpointError's text; the attributes always hold all of them."""


class AnimeGamerError(Exception):
    """Base of all errors of this project.

    `what` happened, `where` (a file, an option, a turn), what was `found`, what was `expected`, and what to `do`.
    `str(error)` joins them in one line, `text` all but `do`: a server sends `code`, `text` and `do` separately.
    `exit_code`: of a command that fails with this error.
    """

    code: str = "error"
    exit_code: int = USER_ERROR
    answer: Sequence[Mapping[str, object]] = ()
    """What to tell the player, as codes with fields (`language.answers`): only of instructions."""

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        found: object = None,
        expected: object = None,
        do: str | None = None,
    ) -> None:
        self.what = what
        self.where = where
        self.found = found
        self.expected = expected
        self.do = do
        super().__init__(self.text if do is None else f"{self.text}; {do}")

    @property
    def text(self) -> str:
        """What happened, where, what was found and what was expected."""
        text = self.what if self.where is None else f"{self.where}: {self.what}"
        if self.found is not None:
            text += f"; found {self.found}"
        if self.expected is not None:
            text += f"; expected {self.expected}"
        return text


class InstructionError(AnimeGamerError):
    """An instruction that cannot be played.

    `code` is the instance's own: instruction; not_understood for a text of which nothing can be drawn or changes, with
    the `answer` to its player; undo for one that takes the last turn back.
    """

    code = "instruction"

    def __init__(
        self, what: str, *, code: str = "instruction", answer: Sequence[Mapping[str, object]] = (), **about: Any
    ) -> None:
        self.code, self.answer = code, answer
        super().__init__(what, **about)


class PictureError(AnimeGamerError):
    """A picture to start from that is missing, not a picture, or too large."""

    code = "picture"


class ConfigError(AnimeGamerError):
    """A setting of the wrong name, type or value."""

    code = "config"


class BundleError(AnimeGamerError):
    """A bundle that cannot be used."""

    code = "bundle"


class BundleNotFoundError(BundleError):
    """No bundle of that name or path; the text lists the places searched."""

    code = "bundle_not_found"


class BundleFormatError(BundleError):
    """A manifest of a newer or older format, or not a manifest of ours."""

    code = "bundle_format"


class BundleFileError(BundleError):
    """A bundle's file is missing, truncated, or not the one in the manifest."""

    code = "bundle_file"


class PlanError(AnimeGamerError):
    """A denoise plan that the bundle does not have, or whose steps are inconsistent."""

    code = "plan"


class CheckpointError(AnimeGamerError):
    """A checkpoint that does not match the model; one error lists every wrong key.

    `missing` and `unexpected` are key names; `misshapen` maps a key to (found shape, expected shape).
    """

    code = "checkpoint"

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        missing: Sequence[str] = (),
        unexpected: Sequence[str] = (),
        misshapen: Mapping[str, tuple[object, object]] | None = None,
        do: str | None = None,
    ) -> None:
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)
        self.misshapen = dict(misshapen or {})
        shapes = [f"{key} (found {found}, expected {expected})" for key, (found, expected) in self.misshapen.items()]
        lists = (("missing", self.missing), ("unexpected", self.unexpected), ("misshapen", shapes))
        text = what + "".join(_listed(kind, keys) for kind, keys in lists if keys)
        super().__init__(text, where=where, do=do)


class EngineStaleError(AnimeGamerError):
    """An engine that was built for another bundle, GPU or library version."""

    code = "engine_stale"


class BackendError(AnimeGamerError):
    """The library that runs the parts failed, or the requested device is missing."""

    code = "backend"


class DeviceLostError(BackendError):
    """The device no longer answers this process: only a new process may help."""

    code = "device_lost"


class UnusableOutputError(BackendError):
    """A stage computed NaN or infinity, or a frame of one colour: the turn ends and does not count.

    The usual reason is a precision whose range is too small for the weights (fp16 ends at 65504).
    """

    code = "unusable_output"

    def __init__(self, what: str, *, stage: str, precision: str = "", found: object, expected: str) -> None:
        self.stage, self.precision = stage, precision
        where = f"{stage} ({precision})" if precision else stage
        do = (
            "the turn does not count; play in a higher precision (--device cpu-fp32, or --precision bf16 or fp32 "
            "with --device torch), or send another instruction; animegamer-rt selftest checks the engines"
        )
        super().__init__(what, where=where, found=found, expected=expected, do=do)


class SessionError(AnimeGamerError):
    """A saved game that cannot be read, or a turn that is no longer kept."""

    code = "session"


class OutputError(AnimeGamerError):
    """A file or folder that cannot be written."""

    code = "output"


class HubError(AnimeGamerError):
    """Hugging Face's hub cannot be reached, refuses a repository, or sends what is not the published file."""

    code = "hub"


class ProtocolError(AnimeGamerError):
    """Bytes that are not a message of the protocol, or a message not allowed here.

    `code` is the instance's own: protocol, version, unknown_type, missing_field, bad_field, too_large, or another code
    listed in client/PROTOCOL.md. `request` is the id of the message at fault, if it was readable.
    """

    code = "protocol"

    def __init__(
        self,
        what: str,
        *,
        code: str = "protocol",
        request: str | None = None,
        where: object = None,
        found: object = None,
        expected: object = None,
        do: str | None = None,
    ) -> None:
        self.code = code
        self.request = request
        super().__init__(what, where=where, found=found, expected=expected, do=do)


class ServerError(AnimeGamerError):
    """A server that cannot start, for example on an address that it must not bind without keys."""

    code = "server"


class PortInUseError(ServerError):
    """Another program has the port; it may be free later."""

    code = "port_in_use"
    exit_code = TRY_AGAIN


class ClusterError(ServerError):
    """A Ray cluster that does not answer or cannot be joined; it may later."""

    code = "cluster"
    exit_code = TRY_AGAIN


class StoreError(AnimeGamerError):
    """Stored sessions that cannot be read or written, or a missing one."""

    code = "storage"


class TurnCancelled(AnimeGamerError):
    """The turn was stopped on request; the session is as before."""

    code = "cancelled"


def _listed(kind: str, keys: Sequence[str]) -> str:
    shown = "".join(f"\n    {key}" for key in keys[:_LISTED])
    more = f"\n    ... and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    return f"\n  {kind} ({len(keys)}):{shown}{more}"
