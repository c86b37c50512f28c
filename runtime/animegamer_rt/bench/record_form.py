"""The form of a record of turns: every field, its types in JSON, and what is inside objects and arrays.

`json_schema` says it for other programs; `misformed` checks a record by it. Knows no meaning of any figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .records import SEAL, TURN_FORMAT

NONE = type(None)
JSON_TYPES: Mapping[type, str] = MappingProxyType(
    {int: "integer", float: "number", str: "string", bool: "boolean", dict: "object", list: "array", NONE: "null"}
)


@dataclass(frozen=True, slots=True)
class Form:
    """types: those a value may have.

    fields: of an object; all but `optional` are required, and others may stand beside them.
    each: the form of every element of an array, or of every value of an object whose names are free.
    """

    types: tuple[type, ...]
    fields: Mapping[str, Form] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    each: Form | None = None

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        found: dict[str, Any] = {"type": [JSON_TYPES[one] for one in self.types]}
        if self.fields:
            found["properties"] = {name: form.schema() for name, form in self.fields.items()}
            found["required"] = sorted(self.fields.keys() - self.optional)
        if self.each is not None:
            found["items" if list in self.types else "additionalProperties"] = self.each.schema()
        return found

    def misformed(self, value: object, where: str) -> Iterator[str]:
        """What in a value has not this form, a line each."""
        if type(value) not in self.types:
            found = JSON_TYPES.get(type(value), "?")
            yield f"{where}: found {found}, expected {' or '.join(JSON_TYPES[one] for one in self.types)}"
        elif isinstance(value, dict):
            prefix = f"{where}." if where else ""
            for name, form in self.fields.items():
                if name in value:
                    yield from form.misformed(value[name], prefix + name)
                elif name not in self.optional:
                    yield f"{prefix}{name}: missing"
            if self.each is not None:
                for name, one in value.items():
                    yield from self.each.misformed(one, f"{prefix}{name}")
        elif isinstance(value, list) and self.each is not None:
            for number, one in enumerate(value):
                if wrong := list(self.each.misformed(one, f"{where}[{number}]")):
                    yield wrong[0]  # of a long column one line says enough
                    return


WHOLE, TEXT, TRUTH = Form((int,)), Form((str,)), Form((bool,))
NUMBER, SOME_NUMBER = Form((int, float)), Form((int, float, NONE))
SOME_TEXT, SOME_WHOLE, SOME_TRUTH = Form((str, NONE)), Form((int, NONE)), Form((bool, NONE))
TEXTS, WHOLES, NUMBERS = (Form((list,), each=one) for one in (TEXT, WHOLE, NUMBER))
VERSIONS = Form((dict,), each=TEXT)
PERCENTILES = MappingProxyType({"p50": NUMBER, **dict.fromkeys(("p90", "p95", "p99"), SOME_NUMBER), "max": NUMBER})
STAGES = ("predictor", "denoiser", "vae")
OF_HISTORY = Form((dict, NONE), {"n": WHOLE, **PERCENTILES})
WATCHED = Form(
    (dict,),
    {
        "seconds": NUMBER,
        **dict.fromkeys(("others_share", "stolen_share", "load_max", "asleep_seconds"), SOME_NUMBER),
        **dict.fromkeys(("clock_mhz_min", "clock_mhz_max", "temperature_c_min", "temperature_c_max"), SOME_NUMBER),
        **dict.fromkeys(("card_clock_mhz_min", "card_clock_mhz_max"), SOME_NUMBER),
        **dict.fromkeys(("card_temperature_c_min", "card_temperature_c_max"), SOME_NUMBER),
        "throttled": TEXTS,
    },
)
GATE = {
    "passed": SOME_TRUTH,
    "turns": WHOLE,
    "seed": WHOLE,
    "frames_sha256": TEXTS,
    "deterministic": TRUTH,
    "ssim_repeated": NUMBER,
    "ssim_against_exact": SOME_NUMBER,
    "ssim_needed": SOME_NUMBER,
}
SAMPLE_COLUMNS = {
    **dict.fromkeys(("game", "turn"), WHOLES),
    **dict.fromkeys(("at", "seconds", *STAGES, "to_state", "to_first_frame"), NUMBERS),
}

LATER = frozenset({"bundle_cached_share"})
"""Fields that the first records of this format do not have."""
FIELDS: Mapping[str, Form] = MappingProxyType(
    {
        **dict.fromkeys(("format", "n", "steps", "network_rows"), WHOLE),
        **dict.fromkeys(("date", "commit", "machine", "command_line", "kernel", "device", "runs_on", "timed"), TEXT),
        **dict.fromkeys(("bundle", "origin", "plan", "energy_source", "memory_source", SEAL), TEXT),
        **dict.fromkeys(("libc", "governor", "preset", "suite_sha256", "fingerprint", "peer"), SOME_TEXT),
        **dict.fromkeys(("precision_asked", "attention", "floor_source"), SOME_TEXT),
        **dict.fromkeys(("software", "packages"), VERSIONS),
        "precision": Form((dict,), {"denoiser": TEXT}, each=TEXT),
        "threads": Form((dict,), {"cores": WHOLE}),
        # A run that was interrupted has no gate but `passed`: null.
        "quality_gate": Form((dict,), GATE, optional=frozenset(GATE) - {"passed"}),
        "activity": Form((dict,), dict.fromkeys(("before", "during", "after"), WATCHED)),
        "stages": Form((dict,), dict.fromkeys(STAGES, Form((dict,), PERCENTILES))),
        "fidelity": Form((dict,)),
        "samples": Form((dict,), SAMPLE_COLUMNS),
        "gpu": Form((dict, NONE)),
        **dict.fromkeys(("first_turn", "turn_10_and_later"), OF_HISTORY),
        "shape": WHOLES,
        "unsteady": TEXTS,
        "instruction_sets": Form((list, NONE), each=TEXT),
        "complete": TRUTH,
        "packages_pinned": SOME_TRUTH,
        **dict.fromkeys(("suite", "ram_mib"), SOME_WHOLE),
        **dict.fromkeys(("cost_rows", "playback_seconds", "sustained_seconds_per_turn"), NUMBER),
        **dict.fromkeys(("seconds_per_turn_p50", "seconds_per_turn_max", "seconds_to_state_p50"), NUMBER),
        **dict.fromkeys(("seconds_to_first_frame_p50", "fps", "real_time_factor"), NUMBER),
        **dict.fromkeys(("seconds_per_turn_p90", "seconds_per_turn_p95", "seconds_per_turn_p99"), SOME_NUMBER),
        **dict.fromkeys(("denoiser_floor_seconds", "ratio_to_floor"), SOME_NUMBER),
        **dict.fromkeys(("denoiser_floor_before_seconds", "denoiser_floor_after_seconds"), SOME_NUMBER),
        **dict.fromkeys(("start_to_prompt_seconds", "first_turn_of_process_seconds"), SOME_NUMBER),
        "bundle_cached_share": SOME_NUMBER,
        **dict.fromkeys(("energy_j_per_turn", "memory_peak_mib", "host_memory_peak_mib"), SOME_NUMBER),
    }
)
"""Field of a record of turns -> its form. Every record has all of them but LATER."""
RECORD = Form((dict,), FIELDS, optional=LATER)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a record of turns."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A record of turns of animegamer-rt, format {TURN_FORMAT}",
        **RECORD.schema(),
    }


def misformed(record: Mapping[str, Any]) -> list[str]:
    """What in a record has not the form that bench gives it, a line each; nothing inside an object that is free."""
    return list(RECORD.misformed(record, ""))
