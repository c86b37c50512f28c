"""Plants mistakes that a user would suffer from, one at a time, and runs the tests that have to find them.

    python tests/planted_mistakes.py [-k WORD] [--list]

A copy of the checkout is changed, never the checkout itself. The named tests first run on an unchanged copy. Exit
codes: 0 every mistake was found; 1 a mistake survived; 2 a text is not in its file exactly once, or the tests fail
without a mistake. CI does not run this.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("runtime", "export", "kernels", "client/python")
NOT_COPIED = (".git", ".venv", ".*_cache", "__pycache__", "*-work")
TIME_LIMIT_S = 180.0
"""For one run of pytest; a mistake that makes the tests hang counts as found."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One wrong line: `right` is replaced by `wrong` in `file`; harm: what a user would suffer; tests: must fail."""

    harm: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


RT, CLIENT = "runtime/animegamer_rt", "client/python/animegamer_client"
SERVER, STORE, WIRE = f"{RT}/serving/server", f"{RT}/serving/store", f"{RT}/serving/wire"
SERVING_TESTS = "tests/runtime/serving"

MISTAKES = (
    # the numbers
    Mistake(
        "noise schedule: latents are denoised at other noise levels than those trained on, so clips are blurred",
        f"{RT}/bundle/noise_schedule.py",
        "products / (SHIFT - (SHIFT - 1.0) * products)",
        "products / (SHIFT - 1.0 * products)",
        ("tests/runtime/bundle/test_denoise_plan.py",),
    ),
    Mistake(
        "guidance: the wave has other values than the published one, so clips follow the instruction less",
        f"{RT}/bundle/noise_schedule.py",
        "** WAVE_POWER)",
        "** (WAVE_POWER - 1))",
        ("tests/runtime/bundle/test_denoise_plan.py",),
    ),
    Mistake(
        "guidance: each step starts from the unconditional prediction, so clips are paler than the reference's",
        f"{RT}/models/denoiser_step.py",
        "guided = v[-1:] + guidance_minus_one",
        "guided = v[:1] + guidance_minus_one",
        ("tests/runtime/models/test_models_denoiser.py",),
    ),
    Mistake(
        "motion table: `smoothly` moves half as much as the paper says",
        f"{RT}/state/game.py",
        "2: 2.5, 3: 10.0",
        "2: 2.5, 3: 5.0",
        ("tests/runtime/state/test_game.py",),
    ),
    Mistake(
        "strengths: each is read after the first one instead of the one before it, so the state is wrong",
        f"{RT}/stages/predictor.py",
        "            choice = self._choose(logits)\n            yield choice",
        "            yield self._choose(logits)",
        ("tests/runtime/stages/test_predictor.py",),
    ),
    # the wire
    Mistake(
        "field limits: the largest value that the protocol allows is refused",
        f"{WIRE}/schema.py",
        "size <= field.most",
        "size < field.most",
        (f"{SERVING_TESTS}/test_wire.py",),
    ),
    Mistake(
        "frame order: a client that comes back to a running turn gets its frames backwards",
        f"{SERVER}/jobs.py",
        "for message in self.events:",
        "for message in reversed(self.events):",
        (f"{SERVING_TESTS}/live/test_turns.py",),
    ),
    # the store
    Mistake(
        "crash: a turn that failed midway leaves half of its rows, and the game cannot go on",
        f"{STORE}/database.py",
        'self.rows("ROLLBACK")',
        'self.rows("COMMIT")',
        (f"{SERVING_TESTS}/test_store_crash.py",),
    ),
    Mistake(
        "crash: a turn is lost when the worker dies",
        f"{SERVER}/scheduler.py",
        "job.enter(JobState.WAITING)",
        "pass",
        (f"{SERVING_TESTS}/test_scheduler.py",),
    ),
    Mistake(
        "quota: the games played last are removed first",
        f"{STORE}/retention.py",
        "ORDER BY closed DESC, used",
        "ORDER BY closed DESC, used DESC",
        (f"{SERVING_TESTS}/test_store_retention.py",),
    ),
    Mistake(
        "token: a player who knows a session's id plays it without its token",
        f"{STORE}/store.py",
        "if not hmac.compare_digest(found.token_sha256, _hash(token)):",
        'if not token.startswith("") and found:',
        (f"{SERVING_TESTS}/test_store.py",),
    ),
    # the limits
    Mistake(
        "instruction length: a long text reaches the model and pushes the history out of its window",
        f"{RT}/state/instruction.py",
        "if len(text) > MAX_INSTRUCTION_CHARACTERS:",
        "if len(text) > 2 * MAX_INSTRUCTION_CHARACTERS:",
        ("tests/runtime/state/test_instruction.py",),
    ),
    Mistake(
        "connections: one more client than the operator allows is let in",
        f"{SERVER}/handlers.py",
        "self._status.connections > self._options.connections:",
        "self._status.connections > self._options.connections + 1:",
        (f"{SERVING_TESTS}/live/test_bad_input.py",),
    ),
    # the client
    Mistake(
        "resume: after a reconnect the game is not opened again, so its turns are refused",
        f"{CLIENT}/protocol_state.py",
        "self._session_of_resume, self._attached = {}, {}, set()",
        "self._session_of_resume = {}, {}",
        ("tests/client/test_protocol_state.py",),
    ),
    Mistake(
        "replay: one frame is missing after a reconnect",
        f"{CLIENT}/calls.py",
        '{"after_seq": self.seq}',
        '{"after_seq": self.seq + 1}',
        ("tests/client/test_protocol_state.py",),
    ),
    # selftest and verification
    Mistake(
        "selftest: a machine that computes wrong numbers passes",
        f"{RT}/diagnose/selftest.py",
        "passed &= check.passed",
        "passed |= check.passed",
        ("tests/runtime/diagnose/test_selftest.py",),
    ),
    Mistake(
        "verify: a part that computes no numbers (NaN) passes",
        "export/animegamer_export/verify/figures.py",
        "not value <= most",
        "value > most",
        ("tests/export/test_verify_figures.py",),
    ),
    Mistake(
        "bundle: a damaged file of weights is loaded",
        f"{RT}/bundle/loader.py",
        "if found != record.sha256:",
        "if not found:",
        ("tests/runtime/bundle/test_bundle.py",),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Plant mistakes in a copy of the checkout; its tests must find them.")
    parser.add_argument("-k", metavar="WORD", default="", help="only mistakes with this word in their harm or file")
    parser.add_argument("--list", action="store_true", help="print the mistakes, plant none")
    options = parser.parse_args(argv)
    chosen = [mistake for mistake in MISTAKES if options.k.lower() in f"{mistake.harm} {mistake.file}".lower()]
    outdated = [line for mistake in chosen for line in outdated_names(mistake)]
    if outdated:
        print("\n".join(outdated))
        return 2
    if options.list:
        print("\n".join(mistake.harm for mistake in chosen))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        tests = sorted({test for mistake in chosen for test in mistake.tests})
        if not run_tests(copy, tests, limit_s=TIME_LIMIT_S * len(tests)):
            print("these tests fail without any mistake: " + " ".join(tests))
            return 2
        return 1 if [mistake for mistake in chosen if survives(mistake, copy)] else 0


def outdated_names(mistake: Mistake) -> list[str]:
    """What the table says of the checkout and is not so, in words."""
    file = ROOT / mistake.file
    found = file.read_text(encoding="utf-8").count(mistake.right) if file.is_file() else 0
    wrong = [] if found == 1 else [f"{mistake.file}: {found} times, not once: {mistake.right}"]
    return wrong + [f"no such tests: {test}" for test in mistake.tests if not (ROOT / test).exists()]


def survives(mistake: Mistake, copy: Path) -> bool:
    """Plant one mistake in the copy, run its tests, take it out again; prints whether they found it."""
    file, started = copy / mistake.file, time.monotonic()
    sound = file.read_text(encoding="utf-8")
    file.write_text(sound.replace(mistake.right, mistake.wrong), encoding="utf-8")
    passed = run_tests(copy, mistake.tests, TIME_LIMIT_S)
    file.write_text(sound, encoding="utf-8")
    word = "SURVIVED" if passed else "found"
    print(f"{word:<9}{time.monotonic() - started:4.0f} s  {mistake.harm}", flush=True)
    return passed


def run_tests(copy: Path, tests: Sequence[str], limit_s: float) -> bool:
    """Whether the tests pass in the copy. They import the copy's packages, and so do the processes that they start."""
    path = os.pathsep.join(str(copy / package) for package in PACKAGES)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    with tempfile.TemporaryFile("w+") as output:
        # A group of its own: what the tests started ends with them.
        process = subprocess.Popen(
            command, cwd=copy, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(limit_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return False
        output.seek(0)
        if code > 1:  # no failed test: a file that is gone, an option that pytest does not know
            raise RuntimeError(f"pytest ended with exit code {code}:\n{output.read()[-3000:]}")
    return code == 0


if __name__ == "__main__":
    raise SystemExit(main())
