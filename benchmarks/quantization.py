"""Measures what each precision of each part costs, and writes the tables of docs/QUANTIZATION.md from the records.

`--measure BUNDLE --fp32 DIR` quantises every part of a bundle in every precision, compares each with the bundle in
float32, and adds one record to benchmarks/results (`python -m animegamer_pocket --fp32 DIR` writes pocket in
float32). `--golden DIR` does so for the tiny networks of tests/golden, against float32 in torch. Without either, only
the page is written; `--check` exits with 1 if it is out of date.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from animegamer_rt.bench.records import Record, read_records
from animegamer_rt.bundle.files import write_file
from animegamer_rt.profiling.host import environment, write_record
from benchmarks.tables import replace_section

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "QUANTIZATION.md"
PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "predictor": ("fp16", "bf16", "int8", "nf4", "int4", "int8-qdq", "int4-qdq"),
    "denoiser": ("fp16", "bf16", "int8", "int8-qdq", "int8-dynamic", "w8a8", "fp8"),
    "vae": ("fp16", "bf16"),
}
FROM_FLOAT32 = ("fp16", "bf16")
"""Rounded from float32. The others are made from the 16-bit part, as an export does, so that sizes compare."""
SENSITIVE: Mapping[str, tuple[str, str]] = {"predictor": ("nf4", "shot"), "denoiser": ("w8a8", "x0")}
"""Part -> the precision and the output that compare the kinds of its weights."""
COLUMNS = ("part", "precision", "weights", "output", "strengths", "frames", "size", "memory to load")
IN_TORCH = ("layer", "in place of", "weights", "output", "strengths")
KINDS = ("part", "kind of weight", "weights", "error of the output, it alone quantised", "")
PLOT = "\n\n![bytes saved beside error made, by precision](../benchmarks/results/quantization.svg)"


def measure(name: str, fp32: Path | None, instructions: int, turns: int) -> Record:
    """A record of every precision of every part, of each kind of weight alone, and of the vae's largest value.

    fp32: the folder of the same networks in float32, the reference. Without it the bundle's own weights are the
    reference, and the cost of 16 bits is not measured.
    """
    from animegamer_export.quantize import bundle as quantized
    from animegamer_export.quantize.scheme import scheme
    from animegamer_export.verify import bitsandbytes
    from animegamer_export.verify.bundles import SampleCounts, compare, part_bytes
    from animegamer_rt.bundle.loader import load, open_bundle

    shipped, rows = open_bundle(name), []
    source = shipped if fp32 is None else in_float(shipped, open_bundle(fp32))
    counts = SampleCounts(instructions, turns)
    for part, names in PRECISIONS.items():
        wide: Record = {"bytes_before": part_bytes(shipped, part)} if fp32 else {}
        for precision in names:
            if precision == "fp16" and fp32 is None:
                continue
            with tempfile.TemporaryDirectory() as folder:
                base = source if precision in FROM_FLOAT32 else shipped
                made = quantized.quantize_bundle(base, Path(folder), {part: scheme(precision)})
                figures = compare(load(folder), source, counts, [part])[part]
            if precision == "fp16":
                wide["load_mib_before"] = figures["load_mib"]
            figures |= wide
            rows.append({"part": part, **figures, "weight_error": made[part].mean_error, "kept": len(made[part].kept)})
            print(f"{part} {precision}: {figures}", flush=True)
    record = {**environment("onnxruntime"), "kind": "quantize", "bundle": shipped.manifest.name}
    record |= {"fingerprint": shipped.fingerprint, "origin": shipped.manifest.origin, "rows": rows}
    record |= {"reference": "fp16" if fp32 is None else "fp32"}
    record |= {"in_torch": list(bitsandbytes.rows(shipped, instructions))}
    return {**record, "kinds": list(kinds(source)), "vae_largest_value": vae_peak(source)}


def in_float(shipped: Any, float32: Any) -> Any:
    """The float32 bundle with the plans of the shipped one. Exits if they are not the same networks."""
    from dataclasses import replace

    one, other = shipped.manifest, float32.manifest
    made = [{key: m.provenance.get(key) for key in ("recipe", "seed", "latent_scale")} for m in (one, other)]
    if one.sizes != other.sizes or made[0] != made[1]:
        sys.exit(f"error: {float32.folder} is not {one.name} in float32: {made[1]}, not {made[0]}")
    return replace(float32, manifest=replace(other, plans=one.plans))


def kinds(source: Any) -> Iterator[Record]:
    """The error of a part's output with only one kind of its weights quantised."""
    from animegamer_export.quantize.exclusions import fp16_exclusions
    from animegamer_export.quantize.scheme import scheme
    from animegamer_export.quantize.sensitivity import error_by_kind

    for part, (precision, output) in SENSITIVE.items():
        path = source.part_path(part)
        for kind, weights, error in error_by_kind(path, scheme(precision), example_runs(source, part), output):
            kept = fp16_exclusions(part)(kind + ".")
            yield {"part": part, "precision": precision, "kind": kind, "weights": weights, "error": error, "kept": kept}


def example_runs(source: Any, part: str) -> list[Any]:
    """Inputs of a part: a few prompts, or every third step of one turn."""
    from dataclasses import replace

    import numpy as np

    from animegamer_export.evaluate.fidelity import denoise_turn, predict_first_turns
    from animegamer_export.evaluate.turns import RecordingDenoiser, sample_instructions
    from animegamer_rt.backends.interface import TokenBatch
    from animegamer_rt.backends.registry import open_engines
    from animegamer_rt.engine_config import EngineConfig
    from animegamer_rt.models.predictor import PredictorSize
    from animegamer_rt.pipeline import Pipeline
    from animegamer_rt.stages.prompt import PromptBuilder

    texts = sample_instructions(source.manifest.world, 4, 7)
    if part == "predictor":
        size = PredictorSize(**source.manifest.sizes["predictor"])
        nothing = np.zeros((size.layers, 1, size.kv_heads, 0, size.head_width), np.float32)
        turns = [PromptBuilder.from_bundle(source).build(text, ()).turn for text in texts]
        given = [{name: getattr(turn, name) for name in TokenBatch.__slots__} for turn in turns]
        return [{**feeds, "keys": nothing, "values": nothing} for feeds in given]
    recorded = RecordingDenoiser(source.part_path(part))
    pipeline = Pipeline.open(source, replace(open_engines(source, EngineConfig("cpu-fp32")), denoiser=recorded))
    denoise_turn(pipeline.denoiser, *predict_first_turns(pipeline, texts[:1], 7))
    return [feeds for feeds, _ in recorded.steps[::3]]


def vae_peak(source: Any) -> float:
    """The largest magnitude inside the decoder's first chunk over a turn's latent: fp16 ends at 65504."""
    import numpy as np

    from animegamer_export.evaluate.fidelity import denoise_turn, predict_first_turns
    from animegamer_export.evaluate.turns import sample_instructions
    from animegamer_export.quantize.ranges import peak_magnitudes
    from animegamer_rt.backends.registry import open_engines
    from animegamer_rt.engine_config import EngineConfig
    from animegamer_rt.pipeline import Pipeline

    pipeline = Pipeline.open(source, open_engines(source, EngineConfig("cpu-fp32")))
    (turn,) = predict_first_turns(pipeline, sample_instructions(source.manifest.world, 1, 7), 7)
    latent = denoise_turn(pipeline.denoiser, turn)
    run: dict[str, Any] = {"latent": latent[:, :3], "channel_order": np.arange(3), "flip": np.array([False])}
    return round(max(peak_magnitudes(source.part_path("vae_first"), [run]).values()), 1)


def golden(folder: Path) -> Record:
    """The networks of tests/golden, with random weights, exported in float32 and quantised: outputs against torch."""
    from animegamer_export.verify.quantized_fixtures import fixture_rows

    return {**environment("torch", "onnxruntime"), "kind": "quantize-golden", "rows": list(fixture_rows(folder))}


def newest(kind: str) -> Record | None:
    """The newest record of a kind."""
    records = read_records(RESULTS, kind)
    return records[-1] if records else None


def table(record: Record | None) -> str:
    """One row per part and precision."""
    if record is None:
        return "Not measured yet.\n"
    head = f"Bundle {record['bundle']} ({record['origin']}), fingerprint `{record['fingerprint']}`, against "
    head += "its networks in float32" if record["reference"] == "fp32" else "its own 16-bit weights"
    head += f", on {record['machine']}; commit `{record['commit']}`, {record['date'][:10]}."
    largest = f"\n\nThe largest value inside the vae: {record['vae_largest_value']:.0f}; fp16 ends at 65504."
    return "\n".join([head, "", *_lines(COLUMNS, map(cells, record["rows"]))]) + largest + PLOT


def cells(row: Mapping[str, Any]) -> list[str]:
    """The cells of one part and precision; empty where a part has no such figure."""
    output, strengths, frames = "", "", ""
    if "shot_relative_error" in row:
        output, strengths = predictor_cells(row)
    if "step_relative_error" in row:
        output = f"{row['step_relative_error']:.4f} a step, {row['latent_relative_error']:.4f} after {row['plan']}"
    if "frames_psnr_db" in row:
        frames = f"{row['frames_psnr_db']:.1f} dB, {row['turns']} turns"
    memory = "not measured" if row["load_mib"] is None else f"{row['load_mib']:.0f} of {row['load_mib_before']:.0f} MiB"
    size = f"{row['bytes'] / 1e6:.2f} of {row['bytes_before'] / 1e6:.2f} MB"
    return [row["part"], row["precision"], f"{row['weight_error']:.4f}", output, strengths, frames, size, memory]


def predictor_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    """The shot's error, and how many strengths stayed the same."""
    count = row["instructions"]
    output = f"{row['shot_relative_error']:.4f}, at most {row['shot_relative_error_max']:.4f}"
    return output, f"all four in {row['four_strengths_equal']} of {count}, single {row['strengths_equal']}/{4 * count}"


def in_torch_table(record: Record | None) -> str:
    """One row per layer of bitsandbytes in the predictor's blocks."""
    if record is None:
        return "Not measured yet.\n"
    found = record["in_torch"]
    rows = ([r["precision"], str(r["layers"]), f"{r['weight_error']:.4f}", *predictor_cells(r)] for r in found)
    return "\n".join(_lines(IN_TORCH, rows))


def kinds_table(record: Record | None) -> str:
    """One row per kind of weight, the largest error first."""
    if record is None:
        return "Not measured yet.\n"
    found = sorted(record["kinds"], key=lambda kind: (kind["part"], -kind["error"]))
    rows = (
        [f"{k['part']}, {k['precision']}", k["kind"], str(k["weights"]), f"{k['error']:.5f}", "kept" * k["kept"]]
        for k in found
    )
    return "\n".join(_lines(KINDS, rows))


def golden_table(record: Record | None) -> str:
    """One row per network and precision."""
    if record is None:
        return "Not measured yet.\n"
    rows = [[r["part"], r["precision"], f"{r['weight_error']:.4f}", golden_errors(r)] for r in record["rows"]]
    return "\n".join(_lines(("network", "precision", "weights", "output"), rows))


def golden_errors(row: Mapping[str, Any]) -> str:
    """The error of each output, and whether the most likely token is the same."""
    said = ", ".join(f"{name.replace('_', ' ')} {error:.5f}" for name, error in row["errors"].items())
    return said + ("" if "same_token" not in row else ", same token" if row["same_token"] else ", another token")


def _lines(columns: Sequence[str], rows: Any) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (columns, ["---"] * len(columns), *rows)]


def main(arguments: Sequence[str]) -> int:
    """Measure if asked to, then write the page; with --check, 1 if it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", metavar="BUNDLE", help="quantise this bundle every way; minutes on two cores")
    parser.add_argument("--fp32", type=Path, metavar="DIR", help="the same networks in float32: the reference")
    parser.add_argument("--instructions", type=int, default=200, metavar="N")
    parser.add_argument("--turns", type=int, default=2, metavar="N")
    parser.add_argument("--golden", type=Path, metavar="DIR", help="the fixtures' folder: tests/golden")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    if options.measure:
        record = measure(options.measure, options.fp32, options.instructions, options.turns)
        print(write_record(RESULTS, f"quantize-{record['bundle']}", record))
    if options.golden:
        print(write_record(RESULTS, "quantize-golden", golden(options.golden)))
    shown = newest("quantize")
    page = PAGE.read_text(encoding="utf-8")
    page = replace_section(page, "precisions", table(shown))
    page = replace_section(page, "in torch", in_torch_table(shown))
    page = replace_section(page, "kinds", kinds_table(shown))
    page = replace_section(page, "golden", golden_table(newest("quantize-golden")))
    if options.check:
        return int(PAGE.read_text(encoding="utf-8") != page)
    write_file(PAGE, page.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
