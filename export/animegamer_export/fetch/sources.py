"""The repositories of the published checkpoints: pinned commits, licences, and which files export reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from animegamer_export.build.checkpoint_folders import ADAPTER, ADAPTER_FILE, DENOISER, MISTRAL, TOWERS
from animegamer_export.checkpoints.folders import DENOISER_FILE, WEIGHTS
from animegamer_rt.errors import HubError

from .hub import Repository

ANIMEGAMER = "TencentARC/AnimeGamer"
FILMS = ("Qiqi", "Ponyo")
LICENCE = """\
AnimeGamer's weights have their own licence, the License Terms of AnimeGamer (License.txt in its repository).
Its section 0: "AnimeGamer IS NOT INTENDED FOR USE WITHIN THE EUROPEAN UNION", before all other clauses.
For the rest it grants use, change and redistribution on terms like those of Apache-2.0. Read it before you accept it:
https://github.com/TencentARC/AnimeGamer/blob/main/License.txt"""
UNPINNED = "main"
OPEN_CLIP = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
"""The files that `towers.files` reads, which needs PyTorch."""


@dataclass(frozen=True, slots=True)
class Source:
    """One repository. revision: its pinned commit, or `main`; folder: its destination; choose: selects the files.

    `choose` gets the paths of the repository and raises ValueError with what is missing.
    """

    repository: str
    revision: str
    folder: str
    licence: str
    choose: Callable[[Collection[str]], list[str]]

    def files(self, held: Repository) -> list[str]:
        """The paths to download. Raises HubError if the repository lacks a file that export needs."""
        try:
            return self.choose(held.files)
        except ValueError as error:
            do = "choose a commit that has it: --revision OWNER/NAME=COMMIT"
            where = f"{held.name} at {held.commit[:12]}"
            raise HubError("the repository lacks a file", where=where, expected=str(error), do=do) from error


def sources(films: Sequence[str], towers: bool) -> list[Source]:
    """The repositories of these films, and with `towers` those of T5 and CLIP.

    The pins are commits recorded by public projects. None was known for AnimeGamer, so the commit of the first download
    is recorded in the folder.
    """
    found = [
        Source(ANIMEGAMER, UNPINNED, "AnimeGamer", "its own, see below", lambda held: _films(held, films)),
        Source(
            "mistralai/Mistral-7B-Instruct-v0.1",
            "7ad5799710574ba1c1d953eba3077af582f3a773",
            MISTRAL[0],
            "Apache-2.0",
            lambda held: [*_exactly(held, "config.json", "tokenizer.model"), *_weights(held)],
        ),
        Source(
            "zai-org/CogVideoX-2b",
            "1137dacfc2c9c012bed6a0793f4ecf2ca8e7ba01",
            "CogVideoX-2b",
            "Apache-2.0",
            lambda held: _exactly(held, "vae/config.json", "vae/diffusion_pytorch_model.safetensors"),
        ),
    ]
    if towers:
        found += [
            Source(
                "google/t5-v1_1-xxl",
                "3db67ab1af984cf10548a73467f0e5bca2aaaeb2",
                TOWERS[0],
                "Apache-2.0",
                lambda held: [*_exactly(held, "config.json", "spiece.model"), *_weights(held)],
            ),
            Source(
                "laion/CLIP-ViT-B-16-laion2B-s34B-b88K",
                "7288da5a0d6f0b51c4a2b27c624837a9236d0112",
                TOWERS[1],
                "MIT",
                lambda held: [*_exactly(held, "open_clip_config.json"), _first(held, OPEN_CLIP)],
            ),
        ]
    return found


def _exactly(held: Collection[str], *wanted: str) -> list[str]:
    for name in wanted:
        _first(held, [name])
    return list(wanted)


def _first(held: Collection[str], names: Sequence[str]) -> str:
    for name in names:
        if name in held:
            return name
    raise ValueError(" or ".join(names))


def _weights(held: Collection[str]) -> list[str]:
    """The weights in one format: one file, or an index and its shards."""
    name = _first(held, WEIGHTS)
    if not name.endswith(".index.json"):
        return [name]
    stem, _, suffix = name.removesuffix(".index.json").rpartition(".")
    shards = sorted(path for path in held if fnmatchcase(path, f"{stem}-*-of-*.{suffix}"))
    return [name, *(shards or [_first(held, [f"{stem}-00001-of-*.{suffix}"])])]


def _films(held: Collection[str], films: Sequence[str]) -> list[str]:
    """Each film's adapter and decoder, with the file `latest` and the licence if present."""
    inside = "AnimeGamer/"
    found = sorted(path for path in held if path.lower() in ("license", "license.txt", "license.md"))
    for film in films:
        adapters, folders = (
            [name.format(release=film).removeprefix(inside) for name in names if name.startswith(inside)]
            for names in (ADAPTER, DENOISER)
        )
        found.append(_first(held, [f"{folder}/{ADAPTER_FILE}" for folder in adapters]))
        decoders = [path for folder in folders for path in held if fnmatchcase(path, f"{folder}/*/{DENOISER_FILE}")]
        if not decoders:
            raise ValueError(" or ".join(f"{folder}/*/{DENOISER_FILE}" for folder in folders))
        found += sorted(decoders) + [f"{folder}/latest" for folder in folders if f"{folder}/latest" in held]
    return found
