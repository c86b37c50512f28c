"""`animegamer-rt selftest`: passes on sound engines, names the part that is wrong, leaves a report in every case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny_reader
import tiny_towers

from animegamer_rt import cli
from animegamer_rt.backends.interface import Engines
from animegamer_rt.backends.onnxruntime import loader as onnxruntime
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.diagnose import selftest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError


def report(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def test_sound_engines_pass_and_the_report_has_parts_turns_and_machine(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    assert cli.main(["selftest", "--bundle", str(bundle.folder), "--out", str(out)]) == 0
    written = report(out)
    assert written["passed"] and written["machine"] and written["bundle"]["fingerprint"] == bundle.fingerprint
    parts = {row["output"].split(".")[0] for row in written["parts"]}
    assert parts == {"predictor", "denoiser", "vae_first", "vae_next"}
    assert [turn["frames"] for turn in written["turns"]] == [17, 17]
    assert "compared with onnxruntime on the CPU in float32" in capsys.readouterr().out


def test_encoder_and_towers_are_compared_too(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tiny_towers.add_towers(bundle)
    assert selftest.selftest(str(bundle.folder), EngineConfig("cpu"), tmp_path / "r.json") == 0
    rows = [row["output"] for row in report(tmp_path / "r.json")["parts"]]
    assert rows[-3:] == ["encoder.shot", "text_tower.text_features", "image_tower.image_features"]

    plain = selftest.open_towers

    def opened(bundle: Bundle, config: EngineConfig) -> Any:
        towers = plain(bundle, config)
        if config != selftest.REFERENCE:
            darker = towers.image
            monkeypatch.setattr(towers, "image", lambda picture: darker(picture) + 0.1)
        return towers

    monkeypatch.setattr(selftest, "open_towers", opened)
    assert selftest.selftest(str(bundle.folder), EngineConfig("cpu"), tmp_path / "r.json") == 1
    wrong = [row["output"] for row in report(tmp_path / "r.json")["parts"] if not row["passed"]]
    assert wrong == ["image_tower.image_features"]


def test_reader_is_compared_too(bundle: Bundle, tmp_path: Path) -> None:
    bundle = tiny_reader.add_reader(bundle)
    assert selftest.selftest(str(bundle.folder), EngineConfig("cpu"), tmp_path / "r.json") == 0
    assert report(tmp_path / "r.json")["parts"][-1]["output"] == "reader.logits"


def test_part_that_answers_otherwise_is_named_and_fails(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def opened(bundle: Bundle, config: EngineConfig, plan: str) -> Engines:
        engines = onnxruntime.load(bundle, config)
        if config == selftest.REFERENCE:
            return engines
        vae: Any = SimpleNamespace(first=engines.vae.first, next=lambda *given: engines.vae.next(*given) // 2)
        return replace(engines, vae=vae)

    monkeypatch.setattr(selftest, "open_engines", opened)
    assert selftest.selftest(str(bundle.folder), EngineConfig("cpu"), tmp_path / "r.json") == 1
    written = report(tmp_path / "r.json")
    assert [row["output"] for row in written["parts"] if not row["passed"]] == ["vae_next.frames"]
    assert not written["passed"]
    assert "vae_next.frames             WRONG" in capsys.readouterr().out


def test_engines_that_do_not_open_are_reported(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(bundle: Bundle, config: EngineConfig, plan: str) -> Engines:
        raise BackendError("no usable NVIDIA GPU")

    monkeypatch.setattr(selftest, "open_engines", refuse)
    with pytest.raises(BackendError):
        selftest.selftest(str(bundle.folder), EngineConfig("tensorrt"), tmp_path / "r.json")
    assert report(tmp_path / "r.json")["error"] == "BackendError: no usable NVIDIA GPU"
