"""Measures processes of their own: the seconds of a cold start and of its first turn, and the memory of playing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from animegamer_rt.bundle.json_file import read_json
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import BackendError
from animegamer_rt.play.instructions_file import example_script
from animegamer_rt.profiling.child_process import child_command, describe_failure
from animegamer_rt.profiling.page_cache import cached_share


def measure_fresh_process(bundle: Bundle, plan: str, engines: EngineConfig) -> dict[str, float | None]:
    """Record fields of a process to its first prompt, and of one that plays two turns and writes their clips.

    bundle_cached_share: how much of the bundle the system held in memory before the first of them, 0 to 1; None where
    it does not tell. Raises BackendError.
    """
    cached = cached_share([path for path in sorted(bundle.folder.iterdir()) if path.is_file()])
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        engine_args = [str(bundle.folder), plan, str(Path(folder) / "ready"), *engines.to_args()]
        _run(child_command("animegamer_rt.play.command", *engine_args))
        ready = time.perf_counter() - start
        script, game = Path(folder) / "two-turns.txt", Path(folder) / "game"
        script.write_text("\n".join(example_script(bundle.manifest.world)[:2]), encoding="utf-8")
        command = child_command("animegamer_rt", "play", "--bundle", str(bundle.folder), "--plan", plan)
        command += engines.to_args()
        peak = _run([*command, "--instructions", str(script), "--out", str(game)])
        first = read_json(game / "game.json")["turns"][0]["seconds"]["total"]
    return {
        "start_to_prompt_seconds": round(ready, 3),
        "bundle_cached_share": cached,
        "first_turn_of_process_seconds": first,
        "host_memory_peak_mib": peak,
    }


def _run(command: list[str]) -> float | None:
    """Run a command to its end; its peak memory in MiB, None where the system does not tell. Raises BackendError."""
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
        peak = None
        try:
            if sys.platform == "win32":
                process.wait()
            else:
                _, status, usage = os.wait4(process.pid, 0)  # its own peak, not that of all plans measured so far
                process.returncode = os.waitstatus_to_exitcode(status)
                peak = round(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**20, 1)
        except BaseException:  # an interrupt may have been sent to this process alone
            process.kill()
            process.wait()
            raise
        if process.returncode:
            stderr.seek(0)
            output = stderr.read().decode(errors="replace")
            raise BackendError("a fresh process cannot play this bundle", found=describe_failure(output))
    return peak
