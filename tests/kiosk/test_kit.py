"""What install writes and remove takes away, and which settings are refused."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from animegamer_kiosk.config import read_config
from animegamer_rt import __version__
from animegamer_rt.cli import main
from animegamer_rt.errors import ConfigError
from animegamer_rt.serving.server.config_file import read_config as read_serve_config


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_dry_run_prints_everything_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kiosk", "install", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "write   /etc/systemd/system/animegamer-server.service" in printed
    assert printed.endswith("nothing was changed: this was a dry run\n")
    assert "    Type=notify" in printed
    assert "run     systemctl enable animegamer-server.service" in printed
    assert main(["kiosk", "install", "--dry-run", "--root", str(tmp_path)]) == 0
    assert _files(tmp_path) == set()


def test_from_a_home_folder_install_says_all_it_would_do_and_why_it_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.executable", str(Path("/", "home", "mia", ".venv", "bin", "python")))
    assert main(["kiosk", "install", "--dry-run"]) == 2
    printed = capsys.readouterr()
    assert "run     systemctl enable animegamer-server.service" in printed.out
    assert "install animegamer-rt into /opt/animegamer" in printed.err


def test_remove_deletes_what_install_wrote_but_for_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--root", str(tmp_path)]
    other = tmp_path / "etc/systemd/system/other.service"
    other.parent.mkdir(parents=True)
    other.write_text("[Unit]\n")
    assert main(["kiosk", "status", *root]) == 1
    assert main(["kiosk", "install", "--yes", *root]) == 0
    capsys.readouterr()
    assert main(["kiosk", "status", *root]) == 0
    assert capsys.readouterr().out.startswith(f"build     {__version__}")
    journal = tmp_path / "etc/systemd/journald.conf.d/animegamer-kiosk.conf"
    journal.write_text("[Journal]\nSystemMaxUse=1G\n")
    assert main(["kiosk", "status", *root]) == 1
    assert "changed   /etc/systemd/journald.conf.d/animegamer-kiosk.conf" in capsys.readouterr().out
    assert main(["kiosk", "remove", "--yes", *root]) == 0
    left = {"kiosk.toml", "block-list.txt", "animegamer-kiosk.conf", "other.service"}
    assert {Path(path).name for path in _files(tmp_path)} == left


@pytest.mark.parametrize("written", ["{", "[]", '{"/etc/x": 1}', '{"etc/x": "0"}', '{"/etc/../x": "0"}'])
def test_a_damaged_list_of_what_was_installed_is_said_and_deletes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    receipt = tmp_path / "var/lib/animegamer-kiosk/installed.json"
    receipt.parent.mkdir(parents=True)
    receipt.write_text(written)
    for action in (["status"], ["remove", "--yes"], ["install", "--yes"]):
        assert main(["kiosk", *action, "--root", str(tmp_path)]) == 2
        assert "not a receipt of an install" in capsys.readouterr().err
    assert receipt.exists()


def test_changed_settings_reach_the_units_at_the_next_install(tmp_path: Path) -> None:
    root = ["--root", str(tmp_path), "--yes"]
    assert main(["kiosk", "install", *root]) == 0
    settings = tmp_path / "etc/animegamer/kiosk.toml"
    settings.write_text("page_port = 9000\nkeep_days = 0.5\n")
    assert main(["kiosk", "install", *root]) == 0
    server = read_serve_config(tmp_path / "etc/animegamer/serve.toml")
    assert (server.web, server.keep_days, server.ahead, server.block_list) == ("127.0.0.1:9000", 0.5, 3, None)
    policies = [*tmp_path.glob("etc/**/policies/managed/animegamer-kiosk.json")]
    assert {str(path.relative_to(tmp_path).parents[2]) for path in policies} == {
        "etc/chromium", "etc/chromium-browser", "etc/opt/chrome"
    }  # fmt: skip
    policy = json.loads((tmp_path / "etc/chromium/policies/managed/animegamer-kiosk.json").read_text())
    assert policy["URLAllowlist"] == ["127.0.0.1:9000", "127.0.0.1:8090/waiting"]
    assert "DeveloperToolsAvailability" not in policy  # it would shut out the watch: HTTP 403 on the DevTools port


def test_a_dry_run_says_what_is_kept_and_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--root", str(tmp_path)]
    assert main(["kiosk", "install", "--yes", *root]) == 0
    (tmp_path / "etc/animegamer/kiosk.toml").write_text("page_port = 9000\n")
    capsys.readouterr()
    assert main(["kiosk", "install", "--dry-run", *root]) == 0
    printed = capsys.readouterr().out
    assert "replace /etc/animegamer/serve.toml" in printed and "keep    /etc/sysusers.d/" in printed


def test_a_file_of_somebody_else_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = tmp_path / "etc/systemd/system/animegamer-server.service"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("[Unit]\nDescription=mine\n")
    for how in ("--dry-run", "--yes"):
        assert main(["kiosk", "install", how, "--root", str(tmp_path)]) == 2
        assert "another file is in the way" in capsys.readouterr().err
    assert theirs.read_text() == "[Unit]\nDescription=mine\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("idle_second = 3", "unknown key 'idle_second'; did you mean 'idle_seconds'?"),
        ('[hours]\ndaily = "9-18"', "hours: daily: not hours; found 9-18; expected hours such as 09:00-18:00"),
        ('[hours]\nmontag = "closed"', "hours: montag: not a day; expected daily, monday"),
        ("page_port = 0", "page_port: out of range; found 0; expected 1024 to 65535"),
        ('device = "gpu"', "kiosk.toml: device: unknown device; found 'gpu'; expected cpu, cpu-fp32, cuda"),
        (
            "bundle = pocket",
            "not a readable TOML file; found invalid value .at line 1, .*; correct it there; texts need quotes",
        ),
        ('block_list = "words.txt"', "block_list: not an absolute path; found words.txt"),
        ('operator_address = "0.0.0.0"', "needs a key"),
        ('operator_address = "192.168.1.5"', "expected 127.0.0.1 or 0.0.0.0 or ::: the screen itself uses 127.0.0.1"),
        ("page_port = 8090", "operator_port is also the port of page_port; found 8090; use a different port for each"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_expected(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "kiosk.toml"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError, match=said):
        read_config(path)


@pytest.mark.parametrize(
    ("now", "on"),
    [
        ("2026-11-23 08:59", False),  # a Monday
        ("2026-11-23 09:00", True),
        ("2026-11-24 12:00", False),
        ("2026-11-28 01:59", True),  # Friday's hours go on
        ("2026-11-28 02:00", False),
        ("2026-11-29 00:00", False),
    ],
)
def test_the_screen_is_on_in_its_hours(tmp_path: Path, now: str, on: bool) -> None:
    path = tmp_path / "kiosk.toml"
    # An editor of Windows may write a byte order mark first.
    lines = '[hours]\ndaily="09:00-18:00"\ntuesday="closed"\nfriday="20:00-02:00"\nsaturday="23:00-24:00"\n'
    path.write_text(lines, encoding="utf-8-sig")
    assert read_config(path).screen_on(datetime.fromisoformat(now)) is on


def test_doctor_names_what_a_kiosk_lacks_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["kiosk", "doctor"]) == 1
    printed = capsys.readouterr().out
    assert "A kiosk does not work here yet." in printed and "-> run: sudo apt install cage" in printed


def test_a_stopped_browser_tells_the_console_to_turn_the_monitor_off(tmp_path: Path) -> None:
    assert main(["kiosk", "install", "--yes", "--root", str(tmp_path)]) == 0
    unit = (tmp_path / "etc/systemd/system/animegamer-browser.service").read_text()
    [script] = [line.split('"')[1] for line in unit.splitlines() if line.startswith("ExecStopPost=")]
    console = tmp_path / "tty1"
    script = script.replace("\\\\", "\\").replace("/dev/tty1", str(console))  # as systemd reads it
    subprocess.run(["sh", "-c", script], check=True)
    assert console.read_bytes().startswith(b"\x1b[9;1]\x1b[14;1]"), "blank, then power down (DPMS), after a minute each"


def test_missing_files_of_settings_are_said_before_a_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--yes", "--root", str(tmp_path)]
    settings, words = tmp_path / "etc/animegamer/kiosk.toml", tmp_path / "etc/words.txt"
    settings.parent.mkdir(parents=True)
    settings.write_text('allow_list = "/etc/words.txt"\n')
    before = _files(tmp_path)
    assert main(["kiosk", "install", *root]) == 2
    assert "the file of allow_list is missing; found /etc/words.txt; create the file" in capsys.readouterr().err
    assert _files(tmp_path) == before
    words.write_text("Mia\nwaves\n")
    words.chmod(0o600)
    assert main(["kiosk", "install", *root]) == 2
    assert "cannot read it; run: chown animegamer: /etc/words.txt" in capsys.readouterr().err
    words.chmod(0o644)
    assert main(["kiosk", "install", *root]) == 0
    words.write_text("short\n")
    settings.write_text('operator_address = "0.0.0.0"\noperator_key = "/etc/words.txt"\n')
    assert main(["kiosk", "install", *root]) == 2
    assert "the key is too short" in capsys.readouterr().err
    settings.write_text('bundle = "pokcet"\n')
    assert main(["kiosk", "install", "--dry-run", "--root", str(tmp_path)]) == 0, "another system has its own bundles"
