"""Make a plugin folder that Unreal can build: `python client/unreal/pack.py MyProject/Plugins`.

Copies AnimeGamer.uplugin and Source/, and into them the native client's sources, which a plugin has to contain.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parent / "native"


def pack(plugins: Path) -> Path:
    """Write plugins/AnimeGamer anew and return it. Raises FileExistsError if another folder of that name is there."""
    folder = plugins / "AnimeGamer"
    if folder.exists() and not (folder / "AnimeGamer.uplugin").is_file():
        raise FileExistsError(f"{folder} is there and is not this plugin; move it away")
    if folder.exists():
        shutil.rmtree(folder / "Source", ignore_errors=True)
    shutil.copytree(HERE / "Source", folder / "Source")
    shutil.copy(HERE / "AnimeGamer.uplugin", folder)
    shutil.copy(HERE.parents[1] / "LICENSE", folder)
    module = folder / "Source" / "AnimeGamerNative"
    shutil.copytree(NATIVE / "include", module / "Public")
    shutil.copytree(NATIVE / "src", module / "Private", dirs_exist_ok=True)
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: expected one argument, the folder Plugins of an Unreal project")
    try:
        print(f"wrote {pack(Path(sys.argv[1]))}")
    except OSError as error:
        sys.exit(f"error: {error}")
