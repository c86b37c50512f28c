"""Run the scenarios with clients, print what failed, and update record.json and the table in client/README.md.

    python -m client.conformance.run NAME [COMMAND ..]

NAME is one of `CLIENTS`; COMMAND starts its driver, if that had to be built. Without arguments only the table is
updated.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from client.conformance.suite import HERE, PASSED, SCENARIOS, Suite

RECORD, README = HERE / "record.json", HERE.parent / "README.md"
PYTHON = [sys.executable, str(HERE / "python_driver.py")]
CLIENTS = {
    "python": "[Python](python/README.md)",
    "aio": "Python, asyncio",
    "native": "[C and C++](native/README.md)",
    "unity": "[C#, Unity](unity/README.md)",
    "unreal": "[Unreal](unreal/README.md)",
}
"""Client -> its title in the table."""


def play(
    name: str, command: list[str] | None = None, cwd: Path | None = None, lacks: dict[str, str] | None = None
) -> dict[str, str]:
    """The outcome of each scenario with this client. command: its driver; None for Python, which needs no build.

    lacks: features that the driver's build lacks (a scenario's `needs`), each with what to do instead.
    """
    command = command or [*PYTHON, *(["--aio"] if name == "aio" else [])]
    with Suite() as suite:
        return suite.play(command, cwd, lacks or {})


def recorded() -> dict[str, dict[str, str]]:
    """The outcomes of each client's last run."""
    outcomes: dict[str, dict[str, str]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return outcomes


def with_table(readme: str) -> str:
    """client/README.md with the recorded outcomes: a sentence, and a row for each scenario not passed."""
    record = recorded()
    names = [name for name in CLIENTS if name in record]
    clients = ", ".join(CLIENTS[name] for name in names)
    cases = sum(len(scenario.get("for", [""])) for scenario in SCENARIOS)
    missed = [
        f"| {scenario['name']} | {CLIENTS[name]} | {outcome} |"
        for scenario in SCENARIOS
        for name in names
        if (outcome := record[name].get(scenario["name"], "not played")) != PASSED
    ]
    passed = f"{clients} pass all {len(SCENARIOS)} scenarios ({cases} cases)"
    table = f"{passed}."
    if missed:
        table = "\n".join([f"{passed} except:", "", "| Scenario | Client | Outcome |", "| --- | --- | --- |", *missed])
    begin, end = "<!-- made: conformance -->", "<!-- end -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{table}\n\n{end}", readme, flags=re.DOTALL)


def main() -> int:
    """Returns 1 if a scenario failed; then nothing is written."""
    failed = False
    if len(sys.argv) > 1:
        name = sys.argv[1]
        outcomes = play(name, sys.argv[2:])
        for scenario, outcome in outcomes.items():
            if outcome != PASSED and not outcome.startswith("no: "):
                failed = True
                print(f"{name}: {scenario}: {outcome}")
        if not failed:
            record = {**(recorded() if RECORD.is_file() else {}), name: outcomes}
            RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            print(f"{name}: {len(outcomes)} scenarios")
    if not failed:
        README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
