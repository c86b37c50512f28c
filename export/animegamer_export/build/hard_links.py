"""Hard-links files that a bundle shares with its siblings, the other bundles in its folder.

Releases of one model share the vae, the towers and the tokenizer. A bundle's files are never modified in place, only
replaced, so replacing one name of a linked file does not change the other bundles.
"""

from __future__ import annotations

import os
from pathlib import Path

from animegamer_rt.bundle.files import sha256
from animegamer_rt.bundle.loader import Bundle, sibling_bundles

PARTIAL = ".link"


def hard_link_shared(bundle: Bundle) -> dict[str, list[str]]:
    """Links files to equal ones of complete bundles in the same folder; returns sibling -> names of linked files.

    The sibling's file is hashed; its manifest is not trusted. Without hard links, the files stay copies.
    """
    linked: dict[str, list[str]] = {}
    for sibling in sibling_bundles(bundle.folder).values():
        originals = {record.sha256: sibling.path(name) for name, record in sibling.manifest.files.items()}
        for name, record in bundle.manifest.files.items():
            original = originals.get(record.sha256)
            if original is not None and _link(original, bundle.path(name), record.sha256):
                linked.setdefault(sibling.folder.name, []).append(name)
    return linked


def _link(original: Path, path: Path, content: str) -> bool:
    """Replaces `path` by a link to `original` if that file's sha256 is `content`; returns whether it did."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        if original.samefile(path):
            return False
        partial.unlink(missing_ok=True)
        os.link(original, partial)
        # Hash the link itself, in case the original is replaced meanwhile.
        if sha256(partial) == content:
            os.replace(partial, path)
            return True
    except OSError:
        # Another disk, a file system without hard links, or a missing original: keep the copy.
        pass
    finally:
        partial.unlink(missing_ok=True)
    return False
