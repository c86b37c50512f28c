"""Make a plugin folder that Unreal can build: `python client/unreal/pack.py MyProject/Plugins`.

Copies the plugin, and into it the native client's sources, which a plugin has to contain. The descriptor gets the
address of the repository, if git or a workflow of GitHub knows one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parent / "native"


def pack(plugins: Path) -> Path:
    """Write plugins/AnimeGamer anew and return it. Raises FileExistsError if another folder of that name is there.

    Raises FileNotFoundError if there is no project to hold it.
    """
    if not plugins.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {plugins.parent}; give the folder Plugins of your Unreal project")
    folder = plugins / "AnimeGamer"
    if folder.exists() and not (folder / "AnimeGamer.uplugin").is_file():
        raise FileExistsError(f"{folder} is there and is not this plugin; move it away")
    source = folder / "Source"
    for module in (HERE / "Source").iterdir():
        if (source / module.name).exists():
            shutil.rmtree(source / module.name)
        _copy(module, source / module.name)
    for name in ("Config", "Resources"):
        _copy(HERE / name, folder / name)
    shutil.copy(HERE / "README.md", folder)
    shutil.copy(HERE.parents[1] / "LICENSE", folder)
    descriptor = json.loads((HERE / "AnimeGamer.uplugin").read_text(encoding="utf-8"))
    if url := repository_url():
        pages = f"{url}/blob/v{descriptor['VersionName']}/client/unreal"
        descriptor |= {"CreatedByURL": url, "DocsURL": f"{pages}/README.md", "SupportURL": f"{url}/issues"}
    (folder / "AnimeGamer.uplugin").write_text(json.dumps(descriptor, indent=2) + "\n", encoding="utf-8")
    _copy(NATIVE / "include", source / "AnimeGamerNative" / "Public")
    _copy(NATIVE / "src", source / "AnimeGamerNative" / "Private")
    return folder


def repository_url() -> str:
    """The web page of this checkout's repository; "" if it has none."""
    if "GITHUB_REPOSITORY" in os.environ:
        return f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"
    git = ["git", "-C", str(HERE), "remote", "get-url", "origin"]
    try:
        origin = subprocess.run(git, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    except OSError:  # no git
        return ""
    web = re.fullmatch(r"(?:https://(?:[^@/]*@)?|(?:ssh://)?git@)([\w.-]+)[:/](.+?)(?:\.git)?/?", origin)
    return f"https://{web[1]}/{web[2]}" if web else ""


def _copy(folder: Path, to: Path) -> None:
    """Copy a folder. Its files are as old as the copy, as Unreal builds what is newer than its last build."""
    shutil.copytree(folder, to, copy_function=shutil.copy, dirs_exist_ok=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: expected one argument, the folder Plugins of an Unreal project")
    try:
        print(f"wrote {pack(Path(sys.argv[1]))}")
    except OSError as error:
        sys.exit(f"error: {error}")
