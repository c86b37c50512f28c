"""Writes the samples' scene and prefab: python client/unity/Tests~/make_scenes.py

Unity's own YAML with the fields that matter; it gives the others their defaults, those of scripts as in their code.
"""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
START = "%YAML 1.1\n%TAG !u! tag:unity3d.com,2011:\n"
QUAD, DIFFUSE = (
    "{fileID: 10210, guid: 0000000000000000e000000000000000, type: 0}",
    "{fileID: 10303, guid: 0000000000000000f000000000000000, type: 0}",
)
"""Meshes and materials that are part of Unity."""
SETTINGS = {29: "OcclusionCullingSettings", 104: "RenderSettings", 157: "LightmapSettings", 196: "NavMeshSettings"}
TRANSFORM, CAMERA, LISTENER, FILTER, RENDERER, SCRIPT = 4, 20, 81, 33, 23, 114
KINDS = {
    TRANSFORM: "Transform",
    CAMERA: "Camera",
    LISTENER: "AudioListener",
    FILTER: "MeshFilter",
    RENDERER: "MeshRenderer",
    SCRIPT: "MonoBehaviour",
}


def script(path: str) -> tuple[int, str]:
    """A component of the script at this path."""
    meta = (PACKAGE / f"{path}.meta").read_text(encoding="utf-8")
    (guid,) = re.findall(r"^guid: (\w+)$", meta, re.MULTILINE)
    return SCRIPT, f"  m_EditorHideFlags: 0\n  m_Script: {{fileID: 11500000, guid: {guid}, type: 3}}\n"


def game_object(number: int, name: str, place: str, components: list[tuple[int, str]], tag: str = "Untagged") -> str:
    """An object at the top of the scene. number: its file id; those of its components follow."""
    transform = (
        f"  m_LocalRotation: {{x: 0, y: 0, z: 0, w: 1}}\n  m_LocalPosition: {place}\n"
        "  m_LocalScale: {x: 1, y: 1, z: 1}\n  m_Children: []\n  m_Father: {fileID: 0}\n"
    )
    parts = [(TRANSFORM, transform), *components]
    owned = "".join(f"  - component: {{fileID: {number + n}}}\n" for n in range(1, len(parts) + 1))
    text = (f"--- !u!1 &{number}\nGameObject:\n  serializedVersion: 6\n  m_Component:\n{owned}  m_Layer: 0\n"
            f"  m_Name: {name}\n  m_TagString: {tag}\n  m_IsActive: 1\n")  # fmt: skip
    for n, (kind, body) in enumerate(parts, 1):
        enabled = "" if kind in (TRANSFORM, FILTER) else "  m_Enabled: 1\n"
        text += f"--- !u!{kind} &{number + n}\n{KINDS[kind]}:\n  m_GameObject: {{fileID: {number}}}\n{enabled}{body}"
    return text


SESSION = "Runtime/Unity/AnimeGamerSession.cs"


def files() -> dict[Path, str]:
    """The samples' assets."""
    settings = "".join(f"--- !u!{kind} &{n}\n{name}:\n  m_ObjectHideFlags: 0\n  serializedVersion: 2\n"
                       for n, (kind, name) in enumerate(SETTINGS.items(), 1))  # fmt: skip
    dark = "  serializedVersion: 2\n  m_ClearFlags: 2\n  m_BackGroundColor: {r: 0.1, g: 0.1, b: 0.1, a: 1}\n"
    camera = [(CAMERA, dark), (LISTENER, "")]
    say = [script(SESSION), script("Samples~/SaySomething/SaySomething.cs")]
    wall = [(FILTER, f"  m_Mesh: {QUAD}\n"), (RENDERER, f"  m_Materials:\n  - {DIFFUSE}\n"),
            script(SESSION), script("Samples~/LivingWall/LivingWall.cs")]  # fmt: skip
    origin = "{x: 0, y: 0, z: 0}"
    return {
        PACKAGE / "Samples~/SaySomething/SaySomething.unity": START + settings
        + game_object(100, "Main Camera", "{x: 0, y: 1, z: -10}", camera, "MainCamera")
        + game_object(200, "AnimeGamer", origin, say),
        PACKAGE / "Samples~/LivingWall/LivingWall.prefab": START + game_object(100, "Living Wall", origin, wall),
    }  # fmt: skip


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8", newline="\n")
