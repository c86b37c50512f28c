"""Downloads TAECVX, the light decoder for CogVideoX's latents, from its repository on GitHub."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from pathlib import Path

from animegamer_rt.bundle.files import make_folder, write_file
from animegamer_rt.errors import CheckpointError, HubError

from .hub import git_blob

ADDRESS = "https://github.com"
REPOSITORY, COMMIT = "madebyollin/taehv", "1f14a568f24bf8811e0a0ac601613e04fc1581e8"
PATH, BLOB = "safetensors/taecvx.safetensors", "64e2fd755c9356db4c5c1e24d4a67135640a1085"
"""The file and its git object, whose hash includes its size."""
LICENCE = "MIT"
FILE = Path("taehv", "taecvx.safetensors")
"""Where it is written, in the folder of checkpoints."""
MAX_BYTES, TIMEOUT_S = 64 * 2**20, 60.0


def fetch_light_decoder(out: Path) -> Path:
    """Downloads the file unless it is there, and verifies it; returns its path.

    Raises HubError for a failed or foreign download, CheckpointError if another file has its place.
    """
    path, where = out / FILE, f"{REPOSITORY}/{PATH}"
    if path.is_file():
        if git_blob(path.read_bytes()) != BLOB:
            what, do = f"checksum differs from {REPOSITORY} at commit {COMMIT[:12]}", "move or delete it and run again"
            raise CheckpointError(what, where=path, do=do)
        return path
    try:
        # Redirects and HTTPS_PROXY apply; the hub's token is not sent.
        with urllib.request.urlopen(f"{ADDRESS}/{REPOSITORY}/raw/{COMMIT}/{PATH}", timeout=TIMEOUT_S) as answer:
            content: bytes = answer.read(MAX_BYTES)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        do = "check the network and HTTPS_PROXY, then run it again"
        raise HubError(f"no download from {ADDRESS}", where=where, found=str(error), do=do) from error
    if git_blob(content) != BLOB:
        what = "the downloaded file is not the published one, and was dropped"
        found, do = f"{len(content)} bytes of another checksum", "check HTTPS_PROXY, and run it again"
        raise HubError(what, where=where, found=found, expected=BLOB, do=do)
    make_folder(path.parent)
    write_file(path, content)
    return path
