"""Bundles of others: whatever their files say, a command ends with a game or with one line, and trusts no size."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from animegamer_rt.cli import main


def rewrite(folder: Path, place: str, value: Any) -> None:
    """Sets a field of the manifest: "geometry/height"."""
    manifest = json.loads((folder / "manifest.json").read_text())
    *path, last = place.split("/")
    record = manifest
    for name in path:
        record = record[name]
    record[last] = value
    (folder / "manifest.json").write_text(json.dumps(manifest))


def rehash(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    rewrite(folder, f"files/{name}", {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})


def refused(capsys: pytest.CaptureFixture[str], *command: object) -> str:
    assert main([*map(str, command)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    return said


SIZES = ("height", "width", "latent_height", "shot_width", "frames", "fps", "latent_frames", "shot_tokens")


@pytest.mark.parametrize("value", [0, -1, 10**12, 10**400, True, 1.5, None, "16", [16]], ids=lambda one: f"{one}"[:9])
@pytest.mark.parametrize("place", [*(f"geometry/{name}" for name in SIZES), "geometry/window_tokens"])
def test_impossible_size_is_named(folder: Path, capsys: pytest.CaptureFixture[str], place: str, value: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["geometry"][place.partition("/")[2]] = "VALUE"
    sys.set_int_max_str_digits(0)
    (folder / "manifest.json").write_text(json.dumps(manifest).replace('"VALUE"', json.dumps(value)))
    assert "manifest" in refused(capsys, "info", folder)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("tokenizer/bos", -1),
        ("tokenizer/bos", 2**40),
        ("motion_tokenizer/end", -1),
        ("compatibility/history_turns", -1),
        ("compatibility/history_turns", 10**6),
        ("files/denoiser.onnx/bytes", -1),
        ("files/denoiser.onnx/sha256", "../../etc/passwd"),
        ("sizes", {"predictor": {"heads": -1}}),
        ("sizes", {"predictor": 3}),
        ("description", "half a \ud800"),
        ("quality", {"ssim": float("nan")}),
        ("provenance", {"x": float("inf")}),
    ],
)
def test_wrong_value_is_named(folder: Path, capsys: pytest.CaptureFixture[str], place: str, value: object) -> None:
    rewrite(folder, place, value)
    for command in (["info"], ["info", "--json"]):
        assert "manifest" in refused(capsys, *command, folder)


def test_a_manifest_of_gigabytes_or_without_end_is_not_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.truncate(folder / "manifest.json", 10 * 10**9)
    assert "manifest.json" in refused(capsys, "info", folder)
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").write_text('{"format": ' + "[" * 500 + "]" * 500 + "}")
    assert "nested" in refused(capsys, "info", folder)


@pytest.mark.parametrize(
    "tokens",
    [
        "[]",
        "1",
        "null",
        "[" * 100_000,
        '{"<TURN>": 1e30}',
        '{"<TURN>": -1}',
        '{"<TURN>": true}',
        '{"<TURN>": 1' + "0" * 30 + "}",
        '{"<Strength_1>": 7, "<Strength_2>": 7}',
    ],
    ids=lambda text: text[:20],
)
def test_added_tokens_are_a_table_of_ids(folder: Path, capsys: pytest.CaptureFixture[str], tokens: str) -> None:
    (folder / "added_tokens.json").write_text(tokens)
    rehash(folder, "added_tokens.json")
    assert "added_tokens.json" in refused(capsys, "play", "--bundle", folder, "--out", folder.parent / "out")


@pytest.mark.parametrize("location", ["hidden.weights", "../outside.weights", "denoiser.onnx", "./tokenizer.model"])
def test_unlisted_weights_are_not_read(folder: Path, capsys: pytest.CaptureFixture[str], location: str) -> None:
    model = onnx.load(folder / "denoiser.onnx")
    weight = onnx.TensorProto(name="w", dims=[1], data_type=1)
    branch = onnx.helper.make_graph([], "inner", [], [], initializer=[weight])
    tensor = branch.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("then_branch", branch))
    (folder / "denoiser.onnx").write_bytes(model.SerializeToString())
    rehash(folder, "denoiser.onnx")
    assert "a file that the manifest does not list" in refused(capsys, "info", folder)


HOSTILE = "x\x1b[31m\x07\u202e\r\n\x9b2J"


def test_nothing_that_a_bundle_says_steers_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("name", "description", "licence", "world/characters", "world/examples"):
        rewrite(folder, place, [HOSTILE] if place.startswith("world") else HOSTILE)
    assert main(["info", str(folder)]) == 0
    assert main(["play", "--bundle", str(folder), "--plan", "none", "--out", str(folder.parent / "out")]) == 2
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert not set("\x1b\x07\u202e\r\x9b") & set(text) and "\\x1b[31m" in text


def test_json_for_programs_is_ascii_and_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite(folder, "description", "ミア ☀")
    assert main(["info", str(folder), "--json"]) == 0
    said = capsys.readouterr().out
    assert said.isascii() and json.loads(said)["description"] == "ミア ☀"
