"""The server, `play` and the client in processes that behave as on Windows, on Linux: nothing here runs on Windows."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

from live_server import LiveServer, frames, refusal
from project import ROOT

import fakes
from animegamer_rt.errors import TRY_AGAIN

WINDOWS = f"sys.path.insert(0, {str(Path(fakes.__file__).parent)!r})\nimport fake_windows\nfake_windows.become()\n"


def run(module: str, *arguments: str, says: str) -> str:
    program = f"import sys\n{WINDOWS}from {module} import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, input=says, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_plays_exports_keeps_its_folder_and_ends_with_its_program(folder: Path, tmp_path: Path) -> None:
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    state, options = tmp_path / "state", ("--parent", str(program.pid))
    with LiveServer(folder, state, *options, device="simulated:0", code=WINDOWS) as server:
        with server.ready().client() as player:
            game = player.open()
            assert frames(player.play(game))
            exported = player.rest(player.send("export", {"token": game.token}, session=game.session))[-1]
            assert (Path(exported.fields["folder"]) / "turn-001.mp4").stat().st_size > 100
        code, said = refusal(folder, state, code=WINDOWS)
        assert code == TRY_AGAIN and "another server" in said
        program.kill()
        program.communicate()
        assert server.process.wait(60) == 0


def test_play_and_client_write_games_without_locks_and_ctrl_break_ends_a_server(folder: Path, tmp_path: Path) -> None:
    story, mine, theirs = "Mia waves.\nTobo runs.\n", tmp_path / "mine", tmp_path / "theirs"
    options = ("--bundle", str(folder), "--device", "simulated:0", "--out", str(mine))
    run("animegamer_rt.cli", "play", *options, says=story)
    with LiveServer(folder, tmp_path / "state", device="simulated:0", code=WINDOWS) as server:
        address = f"tcp://127.0.0.1:{server.ready().port}"
        run("animegamer_client.__main__", "play", address, "--out", str(theirs), says=story)
        assert server.end(signal.SIGUSR1) == 0, "its SIGBREAK"
    for folder in (mine, theirs):
        names = {path.name for path in folder.iterdir()}
        assert {"turn-001.mp4", "turn-002.mp4"} <= names and not {name for name in names if "lock" in name}, names


# Keyword or text -> why Windows lacks it. `mypy --platform win32` (in `make check`) finds what its modules lack, but
# does not know these.
ABSENT = {
    "pass_fds": "Popen raises ValueError",
    "preexec_fn": "Popen raises ValueError",
    "dir_fd": "refused",
    "follow_symlinks": "refused by chmod and utime",
    "ipc://": "libzmq's wheels have no ipc",
    "/dev/": "no such files",
    "/tmp": "tempfile knows the folder",
}
GUARDED = {"serving/server/gateway_process.py": "the page is refused on Windows before it starts"}


def test_nothing_that_windows_lacks_is_called_without_asking_where_it_runs() -> None:
    found = []
    for package in ("runtime/animegamer_rt", "export/animegamer_export", "client/python/animegamer_client"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT / package))
            text = path.read_text(encoding="utf-8")
            tree, lines = ast.parse(text), text.splitlines()
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
            asked = [one for one in functions if "sys.platform" in "".join(lines[one.lineno - 1 : one.end_lineno])]
            safe = {id(inner) for node in asked for inner in ast.walk(node)}
            safe |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
            for node in ast.walk(tree):
                kills = isinstance(node, ast.Call) and lines[node.func.lineno - 1][node.func.col_offset :].startswith(
                    "os.kill("
                )
                if kills and id(node) not in safe:
                    found.append(f"{name}:{node.lineno}: os.kill ends a process there, whatever the signal")
                words = [node.arg] if isinstance(node, ast.keyword) else []
                words += [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
                for word in words:
                    hit = next((one for one in ABSENT if word and word.startswith(one)), None)
                    if hit and id(node) not in safe and name not in GUARDED:
                        found.append(f"{name}:{node.lineno}: {hit}: {ABSENT[hit]}")
    assert found == []


def test_a_file_that_a_scanner_has_open_is_replaced_once_it_lets_go(tmp_path: Path) -> None:
    program = f"""import sys, threading
{WINDOWS}from pathlib import Path
from animegamer_rt.bundle.files import write_file
from animegamer_rt.errors import OutputError
path = Path("clip.mp4")
write_file(path, b"old")
scanner = open(path, "rb")
threading.Timer(0.3, scanner.close).start()
write_file(path, b"new")
with open(path, "rb"):
    try:
        write_file(path, b"newer")
    except OutputError as error:
        print(path.read_bytes(), [one.name for one in Path().iterdir()], error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("b'new' ['clip.mp4'] clip.mp4: ") and "being used" in done.stdout
