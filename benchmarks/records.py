"""Selects and names the records of turns shown in the tables of the documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from animegamer_bench.records import Record

FAST_SETS = ("avx_vnni", "avx512_", "amx", "asimddp", "i8mm", "bf16", "sve")
"""Their name prefixes."""
MEMORY_LIMIT = re.compile(r"-(\d+)gb$")
"""The end of a variant's name, if its memory was limited as on a smaller card."""


def newest(records: Sequence[Record]) -> list[Record]:
    """The newest record of each processor, device, engine settings, bundle, plan and peer; the slowest plan first.

    records: oldest first. Suite records win over others. Of several variants of one precision, the fastest. Only the
    newest fingerprint of a bundle counts, on any machine, because earlier ones can no longer be measured.
    """
    current = {record["bundle"]: record.get("fingerprint") for record in records}
    records = [record for record in records if record.get("fingerprint") == current[record["bundle"]]]
    by_weight = sorted(records, key=lambda record: record.get("suite") is not None)
    latest = {(*_key(record), record.get("variant")): record for record in by_weight}
    fastest: dict[tuple[Any, ...], Record] = {}
    for record in sorted(latest.values(), key=lambda record: -float(record["seconds_per_turn_p50"])):
        fastest[_key(record)] = record
    return sorted(fastest.values(), key=lambda record: (record["bundle"], -record["seconds_per_turn_p50"]))


def processor(record: Record) -> str:
    """A record's machine, with its instruction sets, which may differ between processors of one name."""
    sets = fast_sets(record)
    return f"{record['machine']}, with {', '.join(sets)}" if sets else str(record["machine"])


def fast_sets(record: Record) -> list[str]:
    """A record's instruction sets for small numbers or wide vectors; older records name none."""
    return [name for name in record.get("instruction_sets") or () if name.startswith(FAST_SETS)]


def device_label(record: Record) -> str:
    """ ", device, settings" of a record that is not of the CPU; records older than `--device` are of the CPU.

    A peer has its name in place of the device, and PyTorch on a GPU is known by its settings.
    """
    device = record["peer"] or record.get("device", "cpu")
    names = [] if device in ("cpu", "torch") else [device]
    return ", ".join(["", *names, *_engine_settings(record)])


def _key(record: Record) -> tuple[Any, ...]:
    measured = record.get("variant")
    settings = [record["precision"]["denoiser"], *_limit(record)] if measured else _engine_settings(record)
    return processor(record), record.get("device", "cpu"), record["bundle"], record["plan"], record["peer"], *settings


def _engine_settings(record: Record) -> list[str]:
    """`--precision` and `--attention`, which only PyTorch's engines have, and a card's limit."""
    if not str(record.get("device")).startswith("torch"):
        return []
    attention = record.get("attention") or "torch"
    of_attention = [attention] if attention != "torch" else []
    return [record["precision"]["denoiser"], *of_attention, *_limit(record)]


def _limit(record: Record) -> list[str]:
    limit = MEMORY_LIMIT.search(record.get("variant") or "")
    return [f"{limit[1]} GB"] if limit else []
