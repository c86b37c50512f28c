"""What `animegamer-rt serve` can be asked for: its defaults, what the command line makes of them, what is refused."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq.auth

import fakes
from animegamer_rt.arguments import Parser
from animegamer_rt.cli import main
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import ConfigError
from animegamer_rt.serving.server.command import COMMAND_LINE, add_serve, serve_options
from animegamer_rt.serving.server.config_file import ENGINES, print_config
from animegamer_rt.serving.server.options import FIELDS, ServeOptions, check

SERVER_PAGE = (Path(__file__).parents[3] / "docs" / "SERVER.md").read_text(encoding="utf-8")


def parsed(*words: str) -> ServeOptions:
    parser = Parser()
    add_serve(parser)
    return serve_options(parser.parse_args(words))


EVERYTHING = ServeOptions(
    "tiny", "fast", "0.0.0.0", 7000, Path("s\u00e9"), Path("k"), Path("a"), 2, "head:6379", "0.0.0.0:8080", Path("p"),
    ("https://example.org",), ("10.0.0.0/8",), True, 4, 9.25, 4711, 2, 3, 4, 5, 6, 6.5, 7.5, 8.5, 9.5, Path('b"'),
    Path("c"), 2.5, 3.5, 9000, EngineConfig("torch", "fp8", "wgmma"),
)  # fmt: skip
"""A value for each setting; none is the default."""


def test_a_bare_command_serves_with_the_defaults() -> None:
    assert parsed() == ServeOptions()
    check(ServeOptions())


def test_every_setting_survives_the_file_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = [name for name in FIELDS if getattr(EVERYTHING, name) == getattr(ServeOptions(), name)]
    assert not same
    written, printed = tmp_path / "serve.toml", tmp_path / "printed.toml"
    for options in (EVERYTHING, ServeOptions()):
        written.write_text(print_config(options), encoding="utf-8")
        assert parsed("--config", str(written)) == options
        assert main(["serve", "--config", str(written), "--print-config"]) == 0
        printed.write_text(capsys.readouterr().out, encoding="utf-8")
        assert printed.read_text() == written.read_text()


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(print_config(EVERYTHING), encoding="utf-8")
    found = parsed("--port", "0", "--ahead", "0", "--device", "torch-cpu", "--config", str(path), "--web", "8080")
    engines = replace(EVERYTHING.engines, device="torch-cpu")
    assert found == replace(EVERYTHING, port=0, ahead=0, engines=engines, web="8080")


def test_the_command_line_has_at_most_twenty_options_and_the_page_explains_every_setting() -> None:
    assert len(COMMAND_LINE) + len(ENGINES) + len(("--config", "--print-config")) <= 20
    _, _, page = SERVER_PAGE.partition("\n| Setting | Default | |\n")
    table, _, _ = page.partition("\n\n")
    told = [name for row in table.splitlines() for name in re.findall(r"`([a-z_-]+)`", row.split("|")[1])]
    engines = dict.fromkeys(ENGINES)
    options = {"--" + name.replace("_", "-") for name in (*COMMAND_LINE, *engines)}
    assert set(told) == options | FIELDS.keys() - {*COMMAND_LINE, "engines"} and len(told) == len(set(told))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("quque = 3", "unknown key 'quque'; did you mean 'queue'?"),
        ("queue = 0", "queue: out of range; found 0; expected 1 to 10000"),
        ("queue = '3'", "queue: wrong type of value; found '3'; expected a whole number"),
        ("quota_gib = nan", "quota_gib: out of range; found nan; expected 0.001 to 1e+06"),
        ("port = 1979-05-27", "port: wrong type of value; found datetime.date(1979, 5, 27); expected a whole number"),
        ("keys = ''", "keys: not a path"),
        ("origins = 'https://x.org'", "origins: wrong type of value; found 'https://x.org'; expected a list"),
        ("engines = 'cpu'", "engines: not a table of settings; found str"),
        ("[engines]\ndevice = 'cupu'", "engines: unknown device; found 'cupu'; expected cpu,"),
        ("[engines]\nthread = 2", "engines: unknown key 'thread'; did you mean 'threads'?"),
        ("queue =", "not a readable TOML file; found invalid value (at end of document)"),
        ("a = " + 5000 * "[", "not a readable TOML file; found "),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    path = tmp_path / "serve.toml"
    path.write_text(text, encoding="utf-8")
    assert main(["serve", "--config", str(path), "--state-dir", str(tmp_path / "state")]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}: {said}")
    assert not (tmp_path / "state").exists(), "refused before anything is opened"


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
    with pytest.raises(ConfigError, match="origins: not the origin of a web page") as refused:
        check(replace(ServeOptions(), web="8080", origins=(origin,)))
    assert do in str(refused.value)


def test_origins_and_proxies_are_taken_where_there_is_a_page() -> None:
    origins = ("https://x.org", "http://x_1:8080", "http://[::1]:81")
    check(replace(ServeOptions(), web="8080", origins=origins))
    with pytest.raises(ConfigError, match="trusted_proxies: not a proxy's address; found"):
        check(replace(ServeOptions(), web="8080", trusted_proxies=("10.0.0.0/8", "*")))
    with pytest.raises(ConfigError, match="origins: the setting needs web"):
        check(replace(ServeOptions(), origins=origins))


@pytest.mark.parametrize(
    "asked",
    [
        {"web": "5570"},
        {"metrics_port": 5571},
        {"web": "9000", "metrics_port": 9000},
        {"host": "0.0.0.0", "web": "127.0.0.1:5570"},
        {"host": "localhost", "web": "5570"},
    ],
)
def test_a_port_that_this_server_takes_twice_is_no_reason_to_wait(asked: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="another socket of this server uses the port.*choose another"):
        check(replace(ServeOptions(), **asked))


@pytest.mark.parametrize("host", ["ipc://x", "256.1.1.1", "nosuchhost.invalid", "", "127.0.0.1:80", "*"])
def test_what_is_no_address_to_listen_on_is_said_before_keys_are_asked_for(host: str) -> None:
    with pytest.raises(ConfigError, match=r"host: not an address.*such as 127\.0\.0\.1, 0\.0\.0\.0 or ::"):
        check(replace(ServeOptions(), host=host))


@pytest.mark.parametrize("web", ["::1", "[::1]", "x:80", "http://127.0.0.1:80", "99999", "-1", "127.0.0.1", "²"])
def test_what_is_no_address_for_the_page_is_said(web: str) -> None:
    with pytest.raises(ConfigError, match=r"web: not an address.*8080, 0\.0\.0\.0:8080 or \[::1\]:8080"):
        check(replace(ServeOptions(), web=web))


CPU_TORCH = "__version__ = '2.9.0+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"


@pytest.mark.parametrize(
    ("device", "installed", "said"),
    [
        ("torch", {}, r"PyTorch is not installed; run: pip install 'torch>=2\.9'"),
        ("torch", {"torch/version.py": CPU_TORCH}, r"without CUDA; found torch 2\.9\.0\+cpu; install a CUDA build"),
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


@pytest.mark.parametrize("key", ["0" * 39, "~" * 40, "#" * 40, ""])
@pytest.mark.parametrize("name", ["server.key_secret", "mia.key"])
def test_a_damaged_key_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, key: str) -> None:
    for owner, folder in (("server", "keys"), ("mia", "players")):
        assert main(["keys", "new", owner, "--keys", str(tmp_path / folder)]) == 0
    path = tmp_path / ("keys" if name.startswith("server") else "players") / name
    public = zmq.auth.load_certificate(path)[0].decode()
    path.write_text(path.read_text().replace(public, key))
    bundle = fakes.write_bundle(tmp_path / "tiny").folder
    folders = ["--keys", str(tmp_path / "keys"), "--authorized-keys", str(tmp_path / "players")]
    served = ["serve", "--bundle", str(bundle), "--host", "0.0.0.0", "--state-dir", str(tmp_path / "state")]
    capsys.readouterr()
    assert main([*served, "--device", "simulated:0", "--port", "0", *folders]) == 2
    assert name in capsys.readouterr().err
