"""KernelError: the one error that this package raises.

The package does not import the runtime, which converts it to `BackendError`.
"""

from __future__ import annotations


class KernelError(Exception):
    """The library cannot be opened, or an operator's arguments are invalid or its launch failed.

    `what` is wrong, `where` (an argument, a file), what was `found` and `expected`, and what to `do`. `str(error)`
    joins them in one line, like all errors of this project.
    """

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
        text = what if where is None else f"{where}: {what}"
        if found is not None:
            text += f"; found {found}"
        if expected is not None:
            text += f"; expected {expected}"
        super().__init__(text if do is None else f"{text}; {do}")
