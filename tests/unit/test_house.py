"""The house rules hold, and their check catches what it must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import house


def test_no_module_imports_what_the_layout_forbids() -> None:
    assert house.import_breaches(house.ROOT) == []


def test_no_file_says_what_is_banned() -> None:
    assert house.text_breaches(house.ROOT, house.tracked(house.ROOT)) == []


def test_no_room_is_overfull() -> None:
    assert house.size_breaches(house.ROOT, house.tracked(house.ROOT)) == []


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("runtime/animegamer_rt/pipeline.py", "import torch", "torch lives under"),
        ("runtime/animegamer_rt/vae.py", "from .denoiser import Denoiser", "do not know each other"),
        ("runtime/animegamer_rt/vae.py", "from . import predictor", "do not know each other"),
        ("runtime/animegamer_rt/worker.py", "from animegamer_rt import server", "nobody imports server"),
        ("runtime/animegamer_rt/server.py", "from .backends import onnxruntime", "never touches an engine"),
        ("runtime/animegamer_rt/play.py", "import zmq", "hold sockets"),
        ("runtime/animegamer_rt/play.py", "def f():\n    import animegamer_export.parity", "never import export"),
        ("runtime/animegamer_rt/session.py", "from .pipeline import run_turn", "worker and the command"),
        ("runtime/animegamer_rt/state.py", "import rich", "standard library, numpy and the codec only"),
        ("runtime/animegamer_rt/bundle.py", "from .backends import onnxruntime", "standard library, numpy"),
        ("runtime/animegamer_rt/play.py", "from .models.vae import VaeDecoder", "for backends/torch and export"),
        ("client/python/animegamer_client/play.py", "import animegamer_rt", "distribution of its own"),
    ],
)
def test_forbidden_import_is_found(tmp_path: Path, module: str, line: str, why: str) -> None:
    path = tmp_path / module
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n")
    assert any(why in breach for breach in house.import_breaches(tmp_path))


def test_allowed_imports_pass(tmp_path: Path) -> None:
    for module, line in {
        "runtime/animegamer_rt/models/vae.py": "import torch",
        "runtime/animegamer_rt/backends/torch.py": "import torch\nfrom ..models import vae",
        "runtime/animegamer_rt/bundle.py": "import json\nimport numpy as np\nfrom .errors import BundleError",
        "runtime/animegamer_rt/pipeline.py": "from . import denoiser, predictor, vae",
        "export/animegamer_export/parity.py": "import torch\nfrom animegamer_rt import pipeline",
    }.items():
        path = tmp_path / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line + "\n")
    assert house.import_breaches(tmp_path) == []


def test_banned_text_is_found(tmp_path: Path) -> None:
    path = tmp_path / "note.md"
    path.write_text("fine: engines/pocket\n" + "open /" + "home/anna/x\n" + "# TO" + "DO later\n")
    assert [breach.split(": ", 1)[1] for breach in house.text_breaches(tmp_path, [path])] == [
        "a path of one machine",
        "unfinished work",
    ]


def test_a_copy_without_git_lists_no_file_that_git_ignores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitignore").write_text("__pycache__/\n*.egg-info/\n/games/\n/engines/*\n!/engines/pocket/\n")
    kept = [".gitignore", "README.md", "docs/games/note.md", "engines/pocket/manifest.json"]
    left = [".git/config", "games/story.md", "runtime/__pycache__/a.md", "runtime/a.egg-info/PKG-INFO"]
    for name in kept + left:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setenv("PATH", "")
    assert sorted(house.tracked(tmp_path)) == [tmp_path / name for name in kept]


def test_importing_the_command_imports_no_torch() -> None:
    code = "import sys, animegamer_rt.cli, animegamer_rt.play, animegamer_rt.bench; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
