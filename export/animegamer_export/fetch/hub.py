"""Repositories on Hugging Face's hub: the files of a revision, and their download, resumable and checked.

Requests, redirects, retries, HF_ENDPOINT and the token (HF_TOKEN, or the file of `hf auth login`) are handled by
huggingface_hub. Its own download restarts a file after an interruption, so partial files are kept here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType

from animegamer_export.checkpoints.folders import WEB_PAGES, first_line
from animegamer_rt.bundle.files import remove, replace, sha256, write_error
from animegamer_rt.errors import ConfigError, HubError
from animegamer_rt.untrusted import short

LIST_TIMEOUT_S = 30.0
"""For listing files; huggingface_hub itself would wait for ever."""
AGAIN = "run it again: finished downloads are kept"
NO_SPACE_HINT = "free disk space, or choose a folder on another disk; nothing was downloaded"
PASSWORD = ("the proxy asks for a password", "give it in HTTPS_PROXY: http://NAME:PASSWORD@HOST:PORT")
PROXY = "a proxy or a log-in page answers instead: check HTTPS_PROXY and HF_ENDPOINT, then " + AGAIN


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository. digest: its sha256, or git's sha1 of a small file, in lower-case hex."""

    path: str
    bytes: int
    digest: str

    def matches(self, path: Path) -> bool:
        """Whether the file at `path` has this size and checksum. Reads it completely."""
        if path.stat().st_size != self.bytes:
            return False
        if len(self.digest) == 64:
            return sha256(path) == self.digest
        return git_blob(path.read_bytes()) == self.digest


def git_blob(content: bytes) -> str:
    """Git's hash of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class Repository:
    """One commit of a repository and its files by path."""

    name: str
    commit: str
    files: Mapping[str, HubFile]


def read_repository(name: str, revision: str) -> Repository:
    """The files of `owner/name` at a commit, branch or tag, without downloading. Raises HubError."""
    hub = _library()
    with _errors(name, revision):
        api = hub.HfApi(endpoint=hub.constants.ENDPOINT)
        info = api.model_info(name, revision=revision, files_metadata=True, timeout=LIST_TIMEOUT_S)
    files = {}
    for one in info.siblings or ():
        digest = one.lfs.sha256 if one.lfs else one.blob_id
        if one.size is None or not digest or not _is_inside(one.rfilename):
            what = "the hub's list has a file without size or checksum, or outside the repository"
            raise HubError(what, where=name, found=short(one.rfilename), do=PROXY)
        files[one.rfilename] = HubFile(one.rfilename, one.size, digest.lower())
    if not info.sha:
        raise HubError("the hub's answer names no commit", where=name, do=PROXY)
    return Repository(name, info.sha, files)


def download(repository: Repository, file: HubFile, to: Path, parts: Path) -> None:
    """Downloads one file; it appears at `to` complete and checked, or not at all.

    A partial file stays in the folder `parts` if the connection breaks, and the next call continues it. Raises
    HubError; OutputError for a full disk.
    """
    hub, part = _library(), parts / f"{file.digest}.part"
    url = hub.hf_hub_url(repository.name, file.path, revision=repository.commit, endpoint=hub.constants.ENDPOINT)
    where = f"{repository.name}/{file.path}"
    try:
        parts.mkdir(parents=True, exist_ok=True)
        to.parent.mkdir(parents=True, exist_ok=True)
        if part.exists() and part.stat().st_size > file.bytes:
            remove(part)
        with part.open("ab") as content, _errors(repository.name, repository.commit, where, file.bytes):
            hub.file_download.http_get(
                url,
                content,
                resume_size=content.tell(),
                headers=hub.utils.build_hf_headers(),
                expected_size=file.bytes,
                displayed_filename=file.path,
            )
        right = file.matches(part)
    except HubError:
        _drop_foreign(part, file, where)
        raise
    except OSError as error:
        raise write_error(to, error) from error
    if not right:
        _drop_foreign(part, file, where)
        remove(part)
        what = "the downloaded file is not the published one, and was deleted"
        raise HubError(what, where=where, found="another checksum", expected=file.digest, do="run it again")
    try:
        replace(part, to)
    except OSError as error:
        raise write_error(to, error) from error


def _drop_foreign(part: Path, file: HubFile, where: str) -> None:
    """Deletes a partial file that is a web page or too long. Raises HubError for the page."""
    try:
        with part.open("rb") as content:
            page = content.read(200).lstrip().lower().startswith(WEB_PAGES)
        too_long = part.stat().st_size > file.bytes
    except OSError:
        return
    if page or too_long:
        remove(part)
    if page:
        raise HubError("the hub sent a web page instead of the file; it was deleted", where=where, do=PROXY)


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and path.isprintable() and parts[0] != "/" and not {"..", "."} & set(parts) and "\\" not in path


def _library() -> ModuleType:
    """huggingface_hub, imported when it is needed. Raises ConfigError if it is missing."""
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.file_download
        import huggingface_hub.utils
    except ValueError as error:  # it parses its environment variables when it is imported
        where = "HF_ENDPOINT, or another HF_ variable"
        raise ConfigError("cannot be read", where=where, found=str(error), do="correct or unset it") from error
    except ImportError as error:
        raise ConfigError(
            "the huggingface_hub library is missing", found=str(error), do="pip install 'huggingface_hub>=1.0'"
        ) from error
    return huggingface_hub


@contextmanager
def _errors(name: str, revision: str, where: str = "", size: int = 0) -> Iterator[None]:
    """Turns huggingface_hub's errors into a HubError of one sentence, never containing a token."""
    hub = _library()
    from huggingface_hub import errors

    endpoint, where = hub.constants.ENDPOINT, where or name
    http_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]  # httpx's: its name changes with the version
    try:
        yield
    except errors.GatedRepoError as error:
        found = "a token without access" if hub.get_token() else "no token"
        do = f"agree to its terms on {endpoint}/{name}, then run hf auth login or set HF_TOKEN"
        raise HubError("the repository is gated", where=where, found=found, do=do) from error
    except errors.RepositoryNotFoundError as error:
        found = "a token" if hub.get_token() else "no token"
        do = "check the name; for a private one run hf auth login or set HF_TOKEN"
        raise HubError("no such repository, or a private one", where=where, found=found, do=do) from error
    except errors.RevisionNotFoundError as error:
        do = f"use one listed at {endpoint}/{name}/commits/main"
        raise HubError("the repository has no such revision", where=where, found=short(revision), do=do) from error
    except errors.HfHubHTTPError as error:
        status, said = error.response.status_code, error.response.headers.get("X-Error-Message")  # no proxy's
        do = f"wait a little, then {AGAIN}" if said or status == 429 or status >= 500 else PROXY
        what, do = PASSWORD if status == 407 else ("the hub refused the request", do)
        found = f"status {status}" + (f", {short(said)}" if said else "")
        raise HubError(what, where=where, found=found, do=do) from error
    except errors.OfflineModeIsEnabled as error:
        raise HubError("HF_HUB_OFFLINE disables the network", where=where, do="unset it, and run it again") from error
    except http_error as error:
        found = str(error) or type(error).__name__
        do = f"check the network, HTTPS_PROXY and HF_ENDPOINT, then {AGAIN}"
        raise HubError(f"no connection to {endpoint}, or it broke", where=where, found=found, do=do) from error
    except ValueError as error:  # the answer is not JSON
        raise HubError("the answer is not the hub's", where=where, found="not JSON", do=PROXY) from error
    except OSError as error:
        if error.errno is not None:
            raise  # an error of the disk
        # http_get's own error: the number of bytes is not the expected one
        what = "the connection ended early, or another file was sent"
        raise HubError(what, where=where, expected=f"{size} bytes", do=AGAIN) from error
    except ImportError as error:
        do = "pip install 'httpx[socks]', or give an http:// proxy in HTTPS_PROXY and ALL_PROXY"
        raise HubError("this proxy needs another library", where=where, found=first_line(error), do=do) from error
