"""Selects and names the records of turns shown in the tables of the documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from animegamer_bench.records import Record, of_the_gpu

FAST_SETS = ("avx_vnni", "avx512_", "amx", "asimddp", "i8mm", "bf16", "sve")
"""Their name prefixes."""


def cited(record: Record) -> bool:
    """Whether README shows a record: of a suite or of the GPU benchmark."""
    return of_the_gpu(record) or record.get("suite") is not None


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

    A peer has its name in place of the device.
    """
    device = record["peer"] or record.get("device", "cpu")
    return "" if device == "cpu" else ", ".join(["", device, *_engine_settings(record)])


def _key(record: Record) -> tuple[Any, ...]:
    settings = [record["precision"]["denoiser"]] if record.get("variant") else _engine_settings(record)
    return processor(record), record.get("device", "cpu"), record["bundle"], record["plan"], record["peer"], *settings


def _engine_settings(record: Record) -> list[str]:
    """`--precision` and `--attention`, which only PyTorch's engines have."""
    if not str(record.get("device")).startswith("torch"):
        return []
    attention = record.get("attention") or "torch"
    return [record["precision"]["denoiser"], *([f"{attention} attention"] if attention != "torch" else [])]
