"""What a client is told of an error: its text without the server's paths.

A client may be on another machine, and the server's folders are nobody's business there; the log has the whole text.
"""

from __future__ import annotations

import re
from pathlib import Path

from animegamer_rt.errors import AnimeGamerError

_FOLDERS = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?[/\\](?:[^/\\\s:;,'\"()]+[/\\])+")
"""The folders of an absolute path; what is left of the path is the file's name."""


def client_text(error: AnimeGamerError) -> str:
    """The error's text. Where the error's place is a path, it is left out."""
    if isinstance(error.where, Path):
        error = AnimeGamerError(error.what, found=error.found, expected=error.expected)
    return without_folders(error.text)


def without_folders(text: str) -> str:
    """The text with the file's name in place of each absolute path."""
    return _FOLDERS.sub("", text)
