"""One way to choose engines: what the command line makes of it, what another process gets, and what is refused."""

from __future__ import annotations

import argparse
import re

import pytest

from animegamer_rt.cli import main
from animegamer_rt.engine_config import DEVICES, EngineConfig, add_engine_options
from animegamer_rt.errors import ConfigError


def parsed(*arguments: str) -> EngineConfig:
    parser = argparse.ArgumentParser()
    add_engine_options(parser, simulated=True)
    return EngineConfig.from_arguments(parser.parse_args(arguments))


def test_another_process_gets_the_same_configuration() -> None:
    more = (
        EngineConfig("cpu-fp32", threads=3),
        EngineConfig("torch", "fp8", "wgmma"),
        EngineConfig("simulated:0.5", frame_size="720x480"),
    )
    for config in (*map(EngineConfig, DEVICES), *more):
        assert parsed(*config.to_args()) == config


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"device": "simulated:soon"}, "unknown device; found 'simulated:soon'; expected cpu, cpu-fp32, cuda"),
        ({"device": "simulated:1e3"}, "unknown device"),
        ({"device": "cupu"}, "did you mean 'cpu'?"),
        ({"precision": "fp8"}, "can only be set for PyTorch; found --precision fp8 for cpu; expected torch or"),
        ({"device": "cuda", "attention": "wgmma"}, "can only be set for PyTorch; found --attention wgmma for cuda;"),
        ({"device": "tensorrt", "threads": 2}, "can only be set for onnxruntime; found --threads 2 for tensorrt"),
        ({"threads": 0}, "--threads: out of range; found 0; expected 1 to 1024"),
    ],
)
def test_a_choice_that_the_device_does_not_offer_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        EngineConfig(**fields)  # type: ignore[arg-type]


def test_only_commands_that_need_no_pictures_take_simulated_engines(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["bench", "run"], ["selftest"]):
        with pytest.raises(SystemExit):
            main([*command, "--device", "simulated:1"])
        assert "--device: invalid choice: 'simulated:1' (choose from" in capsys.readouterr().err
