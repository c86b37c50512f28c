"""`export` and `quantize`: what lies in their folders and is not theirs is as it was after the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from animegamer_rt.cli import main

MANIFEST = {"format": "animegamer-bundle", "format_version": 2, "files": {}}
EXPORT = ["export", "--random-weights", "1", "--size", "tiny", "--parts", "encoder", "--out"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": "mine", "tokenizer.model": "mine", ".export/x": "mine"},
        {"manifest.json": json.dumps({**MANIFEST, "provenance": {"export": {"steps": 3}}})},
        {"export.json": json.dumps({"format": 2, "missing": [], "steps": []}), "encoder.onnx": "mine"},
        {"export.json": json.dumps({"format": 2, "missing": [], "steps": {}}), "tokenizer.model": "mine"},
        {"notes.txt": "mine"},
    ],
    ids=lambda files: "+".join(files),
)
def test_an_export_is_not_written_among_files_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str]
) -> None:
    out = tmp_path / "out"
    for name, text in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)
    assert main([*EXPORT, str(out)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and str(out) in said
    kept = contents(out)
    assert {name: kept[name].decode() for name in files if name != "export.json"} == {
        name: text for name, text in files.items() if name != "export.json"
    }


def test_an_export_goes_on_in_its_own_folder_and_leaves_what_is_beside_it(tmp_path: Path) -> None:
    for precision in ("fp16", "fp32"):
        assert main([*EXPORT, str(tmp_path / "out"), "--precision", f"encoder={precision}"]) == 0
        (tmp_path / "out" / "notes.txt").write_text("mine")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_a_hidden_folder_beside_a_quantised_bundle_is_not_emptied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".new.quantize").mkdir()
    (tmp_path / ".new.quantize" / "mine.txt").write_text("mine")
    assert main(["quantize", "pocket", "--precision", "predictor=int8-qdq", "--out", str(tmp_path / "new")]) == 2
    assert ".new.quantize" in capsys.readouterr().err
    assert contents(tmp_path) == {".new.quantize/mine.txt": b"mine"}
