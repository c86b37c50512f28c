"""Every test sees the same terminal, whatever the caller's variables say of theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

# People set NO_COLOR and TERM=dumb, CI systems FORCE_COLOR: rich obeys, and from Python 3.14 on argparse does too.
ASKING = ("FORCE_COLOR", "NO_COLOR", "PYTHON_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


@pytest.fixture(scope="session", autouse=True)
def same_terminal() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as variables:
        for name in ASKING:
            variables.delenv(name, raising=False)
        variables.setenv("TERM", "xterm-256color")
        variables.setenv("COLUMNS", "80")
        yield
