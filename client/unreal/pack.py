"""Make a plugin folder that Unreal can build: `python client/unreal/pack.py MyProject/Plugins`.

Copies AnimeGamer.uplugin and Source/, and into them the native client's sources, which a plugin has to contain. A
libsodium that was put into the plugin's Source/ThirdParty stays there (README.md, "A server with keys").
"""

from __future__ import annotations

import shutil
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
    shutil.copy(HERE / "AnimeGamer.uplugin", folder)
    shutil.copy(HERE.parents[1] / "LICENSE", folder)
    _copy(NATIVE / "include", source / "AnimeGamerNative" / "Public")
    _copy(NATIVE / "src", source / "AnimeGamerNative" / "Private")
    return folder


def _copy(folder: Path, to: Path) -> None:
    """Copy a folder. Its files are as old as the copy, as Unreal builds what is newer than its last build."""
    shutil.copytree(folder, to, copy_function=shutil.copy, dirs_exist_ok=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: expected one argument, the folder Plugins of an Unreal project")
    try:
        folder = pack(Path(sys.argv[1]))
        keys = "with" if (folder / "Source" / "ThirdParty" / "libsodium").is_dir() else "without"
        print(f"wrote {folder}, {keys} libsodium")
    except OSError as error:
        sys.exit(f"error: {error}")
