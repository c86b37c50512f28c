"""The versions of animegamer-rt on a kiosk: each an environment in a folder of its own, and a link to the one in use.

Knows folders and links; nothing of units, and runs no program of a version.
"""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from animegamer_rt.bundle.files import free_bytes
from animegamer_rt.errors import ConfigError, OutputError

VERSIONS = Path("/opt/animegamer-versions")
"""Holds updates, and the links CURRENT and PREVIOUS. The first version may lie elsewhere."""
CURRENT, PREVIOUS = "current", "previous"
PACKAGES = Path("/var/lib/animegamer-kiosk/updates")
"""Where the page for staff looks for a wheel. Only root may write there: what lies there is run as root."""
SPARE_BYTES = 256 * 2**20
GROWTH = 4
"""An unpacked wheel takes at most so many times its size."""
_WHEEL = re.compile(r"animegamer_rt-([0-9A-Za-z.+!_]+)-[^-]+-[^-]+-[^-]+\.whl")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file to install, and the version in its name."""

    path: Path
    version: str


def wheels(folder: Path) -> list[Wheel]:
    """The project's wheels in a folder, by name; empty where there is no such folder."""
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return []
    return [Wheel(path, match[1]) for path in found if (match := _WHEEL.fullmatch(path.name))]


def find_wheel(path: Path) -> Wheel:
    """The wheel that a file or folder names. Raises ConfigError where there is none, or more than one."""
    expected = "one file named animegamer_rt-VERSION-py3-none-any.whl"
    found = wheels(path) if path.is_dir() else [one for one in wheels(path.parent) if one.path.name == path.name]
    if len(found) != 1:
        names = ", ".join(one.path.name for one in found) or "none"
        raise ConfigError("no update", where=path, found=names, expected=expected, do="put that one there alone")
    try:
        with zipfile.ZipFile(found[0].path) as packed:
            broken = packed.testzip()
    except (OSError, zipfile.BadZipFile, EOFError) as error:
        broken = str(error)
    if broken:
        raise ConfigError("the update is damaged", where=found[0].path, found=broken, do="copy the file again")
    return found[0]


class Versions:
    """The folder of versions. root: of another system; / is this one."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.folder = root / VERSIONS.relative_to("/")

    @property
    def current(self) -> Path | None:
        """The folder of the version in use; None where no link says it."""
        return _target(self.folder / CURRENT)

    @property
    def previous(self) -> Path | None:
        """The folder of the version before, while the one in use is on trial."""
        return _target(self.folder / PREVIOUS)

    def use(self, folder: Path) -> None:
        """Make a version the one in use, in one step: a program finds the old one or the new one."""
        self._link(CURRENT, folder)

    def keep(self, folder: Path) -> None:
        """Note the version to go back to."""
        self._link(PREVIOUS, folder)

    def drop_others(self) -> None:
        """Delete every version here but those that a link names."""
        linked = {self.current, self.previous}
        for path in list(self.folder.glob("*")):
            if path.is_dir() and not path.is_symlink() and path.resolve() not in linked:
                shutil.rmtree(path)

    def forget_previous(self) -> None:
        """Delete the version before; it stays if it lies elsewhere, as the first one may."""
        (self.folder / PREVIOUS).unlink(missing_ok=True)
        self.drop_others()

    def new_folder(self, version: str) -> Path:
        """A path for a version that is not there yet."""
        name, count = version, 1
        while (self.folder / name).exists():
            count += 1
            name = f"{version}-{count}"
        return self.folder / name

    def check_space(self, wheel: Wheel, games: Path) -> None:
        """Raises OutputError where the disk has no room for the version and a copy of the games."""
        packed = sum(path.stat().st_size for path in wheel.path.parent.glob("*.whl"))
        needed = GROWTH * packed + (games.stat().st_size if games.exists() else 0) + SPARE_BYTES
        free = free_bytes(self.folder)
        if free < needed:
            found, expected = f"{free >> 20} MiB", f"{needed >> 20} MiB"
            raise OutputError("the disk is too full", where=self.folder, found=found, expected=expected)

    def _link(self, name: str, folder: Path) -> None:
        link = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            new = link.with_name(f".{name}.new")
            new.unlink(missing_ok=True)
            new.symlink_to(folder)
            new.replace(link)
        except OSError as error:
            raise OutputError("the link cannot be written", where=link, found=error.strerror, do="be root") from error


def own_folder() -> Path | None:
    """The environment that this program runs in; None outside of one."""
    return Path(sys.prefix).resolve() if sys.prefix != sys.base_prefix else None


def installed_extras(packages: Path) -> list[str]:
    """The extras of the project whose packages all lie in a folder of packages, so that an update asks for the same."""
    found = {_plain(one.metadata["Name"]): one for one in metadata.distributions(path=[str(packages)])}
    project = found.get("animegamer-rt")
    needs: dict[str, list[str]] = {}
    for line in (project.requires or ()) if project else ():
        if extra := re.search(r"extra == ['\"]([^'\"]+)", line):
            needs.setdefault(extra[1], []).append(_plain(re.split(r"[^A-Za-z0-9._-]", line)[0]))
    return sorted(extra for extra, names in needs.items() if all(name in found for name in names))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _target(link: Path) -> Path | None:
    return link.resolve() if link.is_symlink() and link.exists() else None
