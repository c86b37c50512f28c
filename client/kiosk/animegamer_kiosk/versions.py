"""The environments of a kiosk: links in /opt/animegamer to the current and the previous one."""

from __future__ import annotations

import sys
from pathlib import Path

from animegamer_rt.errors import OutputError

VERSIONS = Path("/opt/animegamer")
CURRENT, PREVIOUS = "current", "previous"


class Versions:
    """The two links. root: of another system; / is this one."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.folder = root / VERSIONS.relative_to("/")

    @property
    def current(self) -> Path | None:
        """The environment in use; None before the first install."""
        return _target(self.folder / CURRENT)

    @property
    def previous(self) -> Path | None:
        """The previous environment; None if there was none, or it was deleted."""
        return _target(self.folder / PREVIOUS)

    def use(self, environment: Path) -> None:
        """Make an environment the current one. Raises OutputError."""
        if (before := self.current) not in (None, environment):
            self._link(PREVIOUS, before)
        self._link(CURRENT, environment)

    def _link(self, name: str, environment: Path) -> None:
        """Atomically: a starting program finds the old environment or the new one."""
        link = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            new = link.with_name(f".{name}.new")
            new.unlink(missing_ok=True)
            new.symlink_to(environment)
            new.replace(link)
        except OSError as error:
            raise OutputError(
                "the link cannot be written", where=link, found=error.strerror, do="run it as root"
            ) from error


def own_environment() -> Path | None:
    """The environment that this program runs in; None outside an environment."""
    return Path(sys.prefix).resolve() if sys.prefix != sys.base_prefix else None


def _target(link: Path) -> Path | None:
    return link.resolve() if link.is_symlink() and link.exists() else None
