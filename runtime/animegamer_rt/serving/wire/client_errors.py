"""Error texts for clients, without the server's paths and without the words of libraries. The log has all."""

from __future__ import annotations

import re
from pathlib import Path

from animegamer_rt.errors import AnimeGamerError

_FOLDERS = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?[/\\](?:[^/\\\s:;,'\"()]+[/\\])+")
"""The folders of an absolute path; only the file's name remains."""


def client_text(error: AnimeGamerError) -> str:
    """The error's text, without its `where` if that is a path, and in own words."""
    error = in_own_words(error)
    if isinstance(error.where, Path):
        error = AnimeGamerError(error.what, found=error.found, expected=error.expected)
    return without_folders(error.text)


def in_own_words(error: AnimeGamerError) -> AnimeGamerError:
    """The error without what a foreign exception said: one raised from such an exception has its words in `found`."""
    if not _from_foreign(error):
        return error
    return AnimeGamerError(error.what, where=error.where, expected=error.expected, do=error.do)


def _from_foreign(error: BaseException) -> bool:
    cause = error.__cause__
    return cause is not None and (not isinstance(cause, AnimeGamerError) or _from_foreign(cause))


def without_folders(text: str) -> str:
    """The text with each absolute path reduced to the file's name."""
    return _FOLDERS.sub("", text)
