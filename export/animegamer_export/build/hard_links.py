"""Makes the files that a bundle has in common with the bundles beside it one file each on the disk: hard links.

Releases of one model share the vae, the towers and the tokenizer. Nobody may write into a bundle's file in place: all
that writes here puts a new file in the place of the old one, so a link keeps what it had when its twin is replaced.
"""

from __future__ import annotations

import os
from pathlib import Path

from animegamer_rt.bundle.files import sha256
from animegamer_rt.bundle.loader import Bundle, sibling_bundles

PARTIAL = ".link"


def hard_link_shared(bundle: Bundle) -> dict[str, list[str]]:
    """Links the files whose twins lie in a whole bundle of the same folder; neighbour -> names of the files linked now.

    A twin is believed by its own bytes, not by its manifest. Where the disk has no links, the files stay copies.
    """
    linked: dict[str, list[str]] = {}
    for neighbour in sibling_bundles(bundle.folder).values():
        twins = {record.sha256: neighbour.path(name) for name, record in neighbour.manifest.files.items()}
        for name, record in bundle.manifest.files.items():
            twin = twins.get(record.sha256)
            if twin is not None and _link(twin, bundle.path(name), record.sha256):
                linked.setdefault(neighbour.folder.name, []).append(name)
    return linked


def _link(twin: Path, path: Path, content: str) -> bool:
    """Puts a link to `twin` in the place of `path` if it holds that content; whether it did."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        if twin.samefile(path):
            return False
        partial.unlink(missing_ok=True)
        os.link(twin, partial)
        # What is hashed is what is put in place, whatever becomes of the twin's name meanwhile.
        if sha256(partial) == content:
            os.replace(partial, path)
            return True
    except OSError:
        # Another disk, a file system without links, or a twin that is not there: the file stays as it is.
        pass
    finally:
        partial.unlink(missing_ok=True)
    return False
