"""Finds bundles: by path, in the folders of ANIMEGAMER_BUNDLES, in the checkout, and in the installed package."""

from __future__ import annotations

import importlib.resources
import os
from pathlib import Path

from animegamer_rt.errors import BundleNotFoundError, ConfigError
from animegamer_rt.untrusted import path as as_path
from animegamer_rt.untrusted import short

from .config import suggest_only
from .files import checkout_folder
from .manifest_file import MANIFEST, is_file

SEARCH_PATH = "ANIMEGAMER_BUNDLES"
"""Environment variable: folders, separated as in PATH, that contain bundles (or are one)."""


def find(name_or_path: str | Path) -> Path:
    """The folder of a bundle given by path or by name.

    Searched in this order: as a path, in each folder of ANIMEGAMER_BUNDLES, in the checkout's `engines`, in the
    installed package. Raises BundleNotFoundError with all places searched.
    """
    if not isinstance(name_or_path, (str, os.PathLike)):
        found = type(name_or_path).__name__
        raise ConfigError("not the name of a bundle", found=found, expected="a name or a folder (str or Path)")
    name = os.fsdecode(name_or_path)
    try:
        places = [as_path(name)]
    except ValueError as error:
        raise BundleNotFoundError(f"no bundle {short(name)}", found=str(error), do="give a name or a folder") from error
    if not (os.sep in name or "/" in name or name in (".", "..")):
        for root in _roots():
            places += [root / name, *([root] if root.name == name else [])]
    for place in places:
        if is_file(place / MANIFEST):
            return place
    looked = ", ".join(str(place) for place in places)
    around = [one for place in places for one in (*_entries(place), *_entries(place / "snapshots"))]
    inside = [one for one in around if is_file(one / MANIFEST)]
    raise BundleNotFoundError(
        f"no bundle {name!r}",
        found=f"no {MANIFEST} in {looked}",
        do=(f"give {inside[0]}" if inside else "")
        or suggest_only(name, list_bundles())
        or f"give its folder, or add the folder containing it to {SEARCH_PATH}",
    )


def list_bundles() -> dict[str, Path]:
    """Name -> folder of all bundles that `find` finds by name, in its order."""
    bundles: dict[str, Path] = {}
    for root in _roots():
        for folder in [root, *_entries(root)]:
            if is_file(folder / MANIFEST):
                bundles.setdefault(folder.name, folder)
    return bundles


def _roots() -> list[Path]:
    configured = [Path(place) for place in os.environ.get(SEARCH_PATH, "").split(os.pathsep) if place]
    checkout = checkout_folder()
    shipped = [checkout / "engines"] if checkout else []
    installed = Path(str(importlib.resources.files("animegamer_rt"))) / "bundles"
    return [*configured, *shipped, installed]


def _entries(folder: Path) -> list[Path]:
    """A folder's content, by name; empty for a missing or inaccessible one."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
