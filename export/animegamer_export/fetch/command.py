"""The command `animegamer-rt fetch`: the download plan, the licence, the downloads, the record of commits."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from animegamer_rt.bundle.config import suggest
from animegamer_rt.bundle.files import free_bytes, lock_folder, make_folder, require_space, write_file
from animegamer_rt.errors import CheckpointError, ConfigError

from . import light_decoder
from .hub import NO_SPACE_HINT, HubFile, Repository, download, read_repository
from .sources import FILMS, LICENCE, Source, sources

RECORD, PARTS = "fetched.json", ".fetch"
_FILM = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One file: its source and destination."""

    repository: Repository
    file: HubFile
    to: Path


def add_command(parser: argparse.ArgumentParser) -> None:
    """`animegamer-rt fetch`."""
    parser.set_defaults(run=_run)
    parser.description = (
        "Download the published checkpoints from Hugging Face's hub: AnimeGamer's two characters, Mistral-7B, "
        "CogVideoX-2b's vae. Without --accept-licence it only prints what it would download. An interrupted download "
        "continues when it is run again. HF_TOKEN, HF_ENDPOINT and HTTPS_PROXY apply."
    )
    parser.add_argument(
        "--out", type=Path, default=Path("checkpoints"), metavar="DIR", help="target folder (default: checkpoints)"
    )
    parser.add_argument(
        "--release", type=_film, action="append", metavar="NAME", help="only this character (default: both)"
    )
    parser.add_argument("--towers", action="store_true", help="also T5 and CLIP, to start games from a picture")
    parser.add_argument(
        "--light-decoder", action="store_true", help="also TAECVX, a light decoder (MIT), for the plan turbo"
    )
    parser.add_argument("--accept-licence", action="store_true", help="accept AnimeGamer's licence")
    parser.add_argument(
        "--revision",
        action="append",
        default=[],
        metavar="OWNER/NAME=COMMIT",
        help="use this commit instead of the pinned or recorded one",
    )


def _run(options: argparse.Namespace) -> int:
    asked = sources(options.release or FILMS, options.towers)
    revisions = _revisions(options.revision, asked)
    console = Console(markup=False, highlight=False, soft_wrap=True)
    recorded = _read_record(options.out)
    with console.status("querying the hub"):
        held = {one: _repository(one, revisions, recorded, options.out) for one in asked}
    wanted = {one: _wanted(one, held[one], options.out) for one in asked}
    missing = [file for files in wanted.values() for file in files if not file.to.is_file()]
    for one, files in wanted.items():
        size, left = _size(files), _size([file for file in files if not file.to.is_file()])
        sizes = f"{size / 1e9:8.2f} GB, {left / 1e9:.2f} to download"
        console.print(f"{one.repository:40s} {held[one].commit[:12]} {sizes}; licence {one.licence}")
    if options.light_decoder:
        commit, licence = light_decoder.COMMIT[:12], light_decoder.LICENCE
        console.print(f"{light_decoder.REPOSITORY:40s} {commit} some 0.02 GB, from GitHub; licence {licence}")
    free = free_bytes(options.out)
    console.print(f"to download: {_size(missing) / 1e9:.2f} GB; free: {free / 1e9:.2f} GB")
    console.print(LICENCE)
    if not options.accept_licence:
        do = "read it, and pass --accept-licence if you accept it and it covers your use"
        raise ConfigError("AnimeGamer's licence is not accepted", do=do)
    require_space(options.out, _size(missing) - _begun(options.out, missing), NO_SPACE_HINT)
    make_folder(options.out)
    with lock_folder(options.out):
        _write_record(options.out, recorded, held)
        for files in wanted.values():
            for file in files:
                _fetch(file, options.out, console)
        if options.light_decoder:
            console.print(f"{light_decoder.fetch_light_decoder(options.out).relative_to(options.out)}: verified")
    if (options.out / PARTS).is_dir() and not any((options.out / PARTS).iterdir()):
        (options.out / PARTS).rmdir()
    films = " or ".join(options.release or FILMS)
    console.print(f"verified; next: animegamer-rt export --checkpoints {options.out} --release {films} --out BUNDLE")
    return 0


def _repository(one: Source, revisions: Mapping[str, str], recorded: Mapping[str, str], out: Path) -> Repository:
    """The repository at the requested, the recorded or the pinned commit.

    Raises CheckpointError if the folder holds another commit.
    """
    before, asked = recorded.get(one.repository), revisions.get(one.repository)
    repository = read_repository(one.repository, asked or before or one.revision)
    if before not in (None, repository.commit):
        raise CheckpointError(
            f"the folder holds {one.repository} at commit {before}, not at {repository.commit}",
            where=out / one.folder,
            do=f"choose another --out, drop --revision, or delete {out / one.folder} and its line in {RECORD}",
        )
    return repository


def _wanted(one: Source, held: Repository, out: Path) -> list[Wanted]:
    return [Wanted(held, held.files[path], out / one.folder / path) for path in one.files(held)]


def _fetch(wanted: Wanted, out: Path, console: Console) -> None:
    """Downloads a file, or verifies an existing one. Raises CheckpointError for a mismatch."""
    name = wanted.to.relative_to(out)
    if not wanted.to.is_file():
        download(wanted.repository, wanted.file, wanted.to, out / PARTS)
        console.print(f"{name}: {wanted.file.bytes / 1e6:.1f} MB")
    elif not wanted.file.matches(wanted.to):
        raise CheckpointError(
            f"size or checksum differs from {wanted.repository.name} at commit {wanted.repository.commit[:12]}",
            where=wanted.to,
            do="move or delete it and run again, or choose another --out",
        )


def _size(files: Sequence[Wanted]) -> int:
    return sum(one.file.bytes for one in files)


def _begun(out: Path, missing: Sequence[Wanted]) -> int:
    """Bytes already downloaded of partial files."""
    parts = (out / PARTS / f"{one.file.digest}.part" for one in missing)
    return sum(part.stat().st_size for part in parts if part.is_file())


def _read_record(out: Path) -> dict[str, str]:
    """Repository -> commit of earlier downloads in the folder."""
    path = out / RECORD
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["commits"]
        return {str(name): str(commit) for name, commit in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        do = "delete it: every file is checked again by its checksum"
        raise CheckpointError("not a download record", where=path, do=do) from error


def _write_record(out: Path, recorded: Mapping[str, str], held: Mapping[Source, Repository]) -> None:
    commits = {**recorded, **{one.repository: repository.commit for one, repository in held.items()}}
    write_file(out / RECORD, json.dumps({"commits": commits}, indent=1, sort_keys=True).encode() + b"\n")


def _revisions(given: Sequence[str], asked: Sequence[Source]) -> dict[str, str]:
    names = [one.repository for one in asked]
    found = {}
    for setting in given:
        name, _, revision = setting.partition("=")
        if name not in names or not revision:
            do, form = suggest(name, names), "OWNER/NAME=COMMIT"
            raise ConfigError("no such repository or revision", where="--revision", found=setting, expected=form, do=do)
        found[name] = revision
    return found


def _film(text: str) -> str:
    if not _FILM.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a character's name, as in Qiqi")
    return text
