"""Packs what game developers install: python client/engine_archives.py dist

com.animegamer.client-VERSION.tgz, for Unity's Package Manager; animegamer-unreal-VERSION.zip, a folder for Plugins.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from client.unreal.pack import pack, repository_url  # noqa: E402

UNITY = ROOT / "client" / "unity"


def pack_unity(into: Path) -> Path:
    """Write the package as npm packs one, without its tests, and return it."""
    manifest = json.loads((UNITY / "package.json").read_text(encoding="utf-8"))
    if url := repository_url():
        pages = f"{url}/blob/v{manifest['version']}/client/unity"
        manifest["documentationUrl"] = f"{pages}/Documentation~/animegamer.md"
        manifest["changelogUrl"], manifest["licensesUrl"] = f"{pages}/CHANGELOG.md", f"{pages}/LICENSE.md"
        manifest["repository"] = {"type": "git", "url": f"{url}.git"}
        manifest["author"]["url"] = url
    archive = into / f"{manifest['name']}-{manifest['version']}.tgz"
    with tarfile.open(archive, "w:gz") as packed:
        for path in sorted(UNITY.rglob("*")):
            name = path.relative_to(UNITY)
            if path.is_file() and name.parts[0] != "Tests~":
                data = path.read_bytes()
                if name.name == "package.json":
                    data = (json.dumps(manifest, indent=2) + "\n").encode()
                entry = tarfile.TarInfo(f"package/{name.as_posix()}")
                entry.size, entry.mode = len(data), 0o644
                packed.addfile(entry, io.BytesIO(data))
    return archive


def pack_unreal(into: Path) -> Path:
    """Write the plugin with the native client's sources in it, and return the archive."""
    with tempfile.TemporaryDirectory() as work:
        folder = pack(Path(work) / "Plugins")
        version = json.loads((folder / "AnimeGamer.uplugin").read_text(encoding="utf-8"))["VersionName"]
        archive = into / f"animegamer-unreal-{version}.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    packed.write(path, path.relative_to(folder.parent))
    return archive


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: expected one argument, the folder for the archives")
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    for each in (pack_unity, pack_unreal):
        print(each(Path(sys.argv[1])))
