"""Reads a bundle's language file: JSON of `language.phrases.LanguageFile`."""

from __future__ import annotations

from pathlib import Path

from animegamer_rt.errors import BundleFileError, ConfigError
from animegamer_rt.language.phrases import Language, LanguageFile

from .config import read_record
from .json_file import read_json
from .loader import Bundle

MAX_LANGUAGE_BYTES = 2**20


def bundle_language(bundle: Bundle) -> Language:
    """The phrases for a bundle's reader; none if it has no language file. Raises BundleFileError."""
    words = bundle.manifest.reader
    return read_language(bundle.path(words.language)) if words is not None and words.language else Language()


def read_language(path: Path) -> Language:
    """The phrases of a file. Raises BundleFileError with the file, the key and the reason."""
    try:
        return Language(read_record(LanguageFile, read_json(path, MAX_LANGUAGE_BYTES), "the file"))
    except (OSError, ValueError, ConfigError) as error:
        do = "correct it, or build the bundle again"
        raise BundleFileError("the language file cannot be used", where=path, found=str(error), do=do) from error
