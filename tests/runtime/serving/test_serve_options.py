"""What `animegamer-rt serve` can be asked for: its defaults, what the command line makes of them, what is refused."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from animegamer_rt.cli import main
from animegamer_rt.engine_config import EngineConfig, add_engine_options
from animegamer_rt.errors import ConfigError
from animegamer_rt.serving.server.options import ServeOptions, add_options, check, from_arguments

SERVER_PAGE = (Path(__file__).parents[3] / "docs" / "SERVER.md").read_text(encoding="utf-8")


def parsed(*arguments: str) -> ServeOptions:
    parser = argparse.ArgumentParser()
    parser.set_defaults(bundle="pocket", plan=None)
    add_engine_options(parser, simulated=True)
    add_options(parser)
    return from_arguments(parser.parse_args(arguments))


def test_a_bare_command_serves_with_the_defaults() -> None:
    assert parsed() == ServeOptions()
    check(ServeOptions())


def test_every_option_reaches_the_server() -> None:
    asked = {
        "port": 7000, "state_dir": Path("s"), "host": "0.0.0.0",
        "keys": Path("k"), "authorized_keys": Path("a"), "block_list": Path("b"), "allow_list": Path("c"),
        "workers": 2, "ray": "head:6379", "queue": 2, "sessions": 3, "connections": 4, "turns_per_minute": 5,
        "turn_deadline_s": 6.5, "send_queue_mib": 7.5, "drain_s": 8.5, "worker_timeout_s": 9.5, "backoff_s": 1.5,
        "keep_shots": "all", "quota_gib": 2.5, "keep_days": 3.5, "metrics_port": 9000,
        "log_format": "json", "parent": 4711, "trace": Path("t.json"), "web": "0.0.0.0:8080", "web_password": Path("p"),
        "origin": ("https://example.org",), "ahead": 4, "ahead_mib": 9.25, "ahead_share": 0.25,
    }  # fmt: skip
    assert asked.keys() | {"bundle", "plan", "engines", "continue_on_other_engines"} == asdict(ServeOptions()).keys()
    options = {"--" + name.replace("_", "-"): str(value) for name, value in asked.items()} | {
        "--origin": "https://example.org"
    }
    options["--turn-deadline"] = options.pop("--turn-deadline-s")
    engines = ["--device", "torch", "--precision", "fp8", "--attention", "flash"]
    found = parsed(*engines, "--continue-on-other-engines", *(word for pair in options.items() for word in pair))
    config = EngineConfig("torch", "fp8", "flash")
    assert found == replace(ServeOptions(), engines=config, continue_on_other_engines=True, **asked)
    check(replace(found, trace=None))
    with pytest.raises(ConfigError, match="--trace is for workers on this machine, not for --ray"):
        check(found)
    assert set(re.findall(r"`(--[a-z-]+)`", SERVER_PAGE)) >= options.keys(), "an option that the page does not tell of"


def test_what_makes_no_sense_is_refused_by_its_option() -> None:
    wrong = {"queue": 0, "turn_deadline_s": 0.0, "keep_days": -1.0, "quota_gib": float("nan"), "port": 65534}
    for name, value in wrong.items():
        option = "--" + name.removesuffix("_s").replace("_", "-")
        with pytest.raises(ConfigError, match=f"{option}: out of range; found {value}; expected"):
            check(replace(ServeOptions(), **{name: value}))


@pytest.mark.parametrize(
    ("origin", "do"),
    [
        *((one, "give https://HOST or https://HOST:PORT,") for one in ("", "javascript:1", "null", "*", "https://")),
        *((one, "give https://HOST or https://HOST:PORT,") for one in ("https://*.x.org", "https://a b", "ftp://x")),
        *((one, "give https://HOST or https://HOST:PORT,") for one in ("https://x:0", "https://x:99999")),
        *((one, "give https://x.org,") for one in ("https://x.org/play/", "https://X.org", "https://x.org:443")),
        ("https://mia@x.org:8443", "give https://x.org:8443,"),
        ("https://h\u00f6st.org", "give https://xn--hst-sna.org,"),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(origin: str, do: str) -> None:
    with pytest.raises(ConfigError, match="--origin: not the origin of a web page") as refused:
        check(replace(ServeOptions(), web="8080", origin=(origin,)))
    assert do in str(refused.value)


def test_origins_are_taken_where_there_is_a_page() -> None:
    origins = ("https://x.org", "http://x_1:8080", "http://[::1]:81")
    check(replace(ServeOptions(), web="8080", origin=origins))
    with pytest.raises(ConfigError, match="--origin: there is no page to connect to; add --web"):
        check(replace(ServeOptions(), origin=origins))


def test_the_command_refuses_before_it_opens_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--state-dir", str(tmp_path / "state"), "--send-queue-mib", "0"]) == 2
    assert capsys.readouterr().err.startswith("error: --send-queue-mib: out of range; found 0")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "asked",
    [
        {"web": "5570"},
        {"web": "5571"},
        {"web": "0.0.0.0:5572"},
        {"metrics_port": 5571},
        {"web": "9000", "metrics_port": 9000},
        {"host": "0.0.0.0", "web": "127.0.0.1:5570"},
        {"host": "localhost", "web": "5570"},
    ],
)
def test_a_port_that_this_server_takes_twice_is_no_reason_to_wait(asked: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="another socket of this server has the port.*choose another"):
        check(replace(ServeOptions(), **asked))


def test_ports_that_do_not_meet_are_taken() -> None:
    for asked in ({"web": "8080"}, {"port": 0, "web": "0"}, {"host": "127.0.0.2", "web": "127.0.0.1:5570"}):
        check(replace(ServeOptions(), **asked))  # type: ignore[arg-type]


@pytest.mark.parametrize("web", ["::1", "[::1]", "x:80", "http://127.0.0.1:80", "99999", "-1", "127.0.0.1", "²"])
def test_what_is_no_address_for_the_page_is_said(web: str) -> None:
    with pytest.raises(ConfigError, match=r"--web: not an address.*8080, 0\.0\.0\.0:8080 or \[::1\]:8080"):
        check(replace(ServeOptions(), web=web))


CPU_TORCH = "__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"


@pytest.mark.parametrize(
    ("device", "installed", "said"),
    [
        ("torch", {}, r"PyTorch is not installed; run: pip install 'torch>=2\.9'"),
        ("torch-cpu", {}, r"PyTorch is not installed; run: pip install"),
        ("torch", {"torch/version.py": CPU_TORCH}, r"without CUDA; found torch 2\.9\.0\+cpu; install a CUDA build"),
        ("cuda", {}, r"onnxruntime is not installed; run: pip install"),
        ("cuda", {"onnxruntime/capi/library.so": ""}, r"without CUDA; run: .*pip install 'onnxruntime-gpu\["),
        ("cpu", {}, r"onnxruntime is not installed; run: pip install"),
        ("tensorrt", {}, r"cuda-python is not installed; run: pip install 'cuda-python"),
        ("tensorrt", {"cuda/bindings.py": ""}, r"TensorRT is not installed; run: pip install tensorrt-rtx"),
    ],
)
def test_a_device_whose_library_is_missing_is_refused_before_anything_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    device: str,
    installed: dict[str, str],
    said: str,
) -> None:
    for name in ("torch", "onnxruntime", "cuda", "tensorrt", "tensorrt_rtx"):
        monkeypatch.setitem(sys.modules, name, None)
    for file, text in installed.items():
        package, path = Path(file).parts[0], tmp_path / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
        (tmp_path / package / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, package)
    monkeypatch.syspath_prepend(tmp_path)
    state = tmp_path / "state"
    assert main(["serve", "--device", device, "--state-dir", str(state)]) == 2
    error = capsys.readouterr().err
    assert re.match(f"error: .*{said}", error) and error.count("\n") == 1
    assert not state.exists()
