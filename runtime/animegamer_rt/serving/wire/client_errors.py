"""Error texts for clients, without the server's paths, as a client may be on another machine. The log has all."""

from __future__ import annotations

import re
from pathlib import Path

from animegamer_rt.errors import AnimeGamerError

_FOLDERS = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?[/\\](?:[^/\\\s:;,'\"()]+[/\\])+")
"""The folders of an absolute path; only the file's name remains."""


def client_text(error: AnimeGamerError) -> str:
    """The error's text, without its `where` if that is a path."""
    if isinstance(error.where, Path):
        error = AnimeGamerError(error.what, found=error.found, expected=error.expected)
    return without_folders(error.text)


def without_folders(text: str) -> str:
    """The text with each absolute path reduced to the file's name."""
    return _FOLDERS.sub("", text)
