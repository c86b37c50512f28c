"""Writes the .meta file of every asset that has none. Unity knows an asset by its GUID: it never changes once written.

python client/unity/Tests~/make_metas.py
"""

from __future__ import annotations

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
HIDDEN = ("Tests~", "Documentation~")
IMPORTERS = {
    ".cs": "MonoImporter",
    ".jslib": "PluginImporter",
    ".asmdef": "AssemblyDefinitionImporter",
    ".json": "PackageManifestImporter",
    ".unity": "DefaultImporter",
    ".prefab": "PrefabImporter",
}
FOR_WEBGL = """\
  serializedVersion: 2
  iconMap: {}
  executionOrder: {}
  defineConstraints: []
  isPreloaded: 0
  isOverridable: 0
  platformData:
  - first:
      Any: \n\
    second:
      enabled: 0
      settings: {}
  - first:
      WebGL: WebGL
    second:
      enabled: 1
      settings: {}
"""


def assets() -> list[Path]:
    """Files and folders that Unity imports; those of Samples~ are imported when a sample is."""
    found = [path for path in PACKAGE.rglob("*") if path.suffix != ".meta"]
    parts = [(path, path.relative_to(PACKAGE).parts) for path in found]
    return sorted(path for path, names in parts if names[0] not in HIDDEN and names != ("Samples~",))


def meta(path: Path) -> str:
    """The text of a new .meta file."""
    guid = hashlib.md5(f"com.animegamer.client/{path.relative_to(PACKAGE).as_posix()}".encode()).hexdigest()
    folder = "folderAsset: yes\n" if path.is_dir() else ""
    importer = "DefaultImporter" if path.is_dir() else IMPORTERS.get(path.suffix, "TextScriptImporter")
    lines = "  externalObjects: {}\n  userData: \n  assetBundleName: \n  assetBundleVariant: \n"
    if importer == "MonoImporter":
        script = "  serializedVersion: 2\n  defaultReferences: []\n  executionOrder: 0\n  icon: {instanceID: 0}\n"
        lines = lines.replace("  userData", script + "  userData")
    if importer == "PluginImporter":
        lines = lines.replace("  userData", FOR_WEBGL + "  userData")
    return f"fileFormatVersion: 2\nguid: {guid}\n{folder}{importer}:\n{lines}"


if __name__ == "__main__":
    for asset in assets():
        file = asset.with_name(f"{asset.name}.meta")
        if not file.exists():
            file.write_text(meta(asset), encoding="utf-8", newline="\n")
            print(file.relative_to(PACKAGE))
