"""Measures what the precisions of `--device torch` cost: first turns in each, emulated on the CPU, against float32.

Prints the table of docs/TORCH.md, which a test compares with this script. Shots and vae are float32 in all of them, so
only the denoiser differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("runtime", "export", "kernels")]

from animegamer_export.evaluate.fidelity import PlanEvaluator  # noqa: E402
from animegamer_rt.backends.registry import open_engines  # noqa: E402
from animegamer_rt.bundle.loader import open_bundle  # noqa: E402
from animegamer_rt.engine_config import EngineConfig  # noqa: E402
from animegamer_rt.pipeline import Pipeline  # noqa: E402
from animegamer_rt.play.instructions_file import example_script  # noqa: E402

PRECISIONS = ("fp16", "bf16", "int8", "fp8")
SEED, TURNS = 100, 5
COLUMNS = ("precision", "relative error of the latent", "PSNR of the frames, dB", "SSIM")


def rows(name: str, plan: str, turns: int, precisions: Sequence[str] = PRECISIONS) -> Iterator[tuple[str, ...]]:
    """One row per precision: means over the first `turns` of the bundle's example instructions."""
    bundle = open_bundle(name)

    def pipeline(precision: str) -> Pipeline:
        return Pipeline.open(bundle, open_engines(bundle, EngineConfig("torch-cpu", precision)), plan)

    reference = PlanEvaluator.play(pipeline("fp32"), example_script(bundle.manifest.world)[:turns], SEED)
    for precision in precisions:
        found = reference.fidelity(pipeline(precision).denoiser)
        yield precision, f"{found['latent_relative_error']:.4f}", f"{found['psnr_db']:.1f}", f"{found['ssim']:.4f}"


def main() -> None:
    """Measure and print."""
    print("| {} |\n|---|---:|---:|---:|".format(" | ".join(COLUMNS)))
    for row in rows("pocket", "fast", TURNS):
        print("| {} |".format(" | ".join(row)), flush=True)


if __name__ == "__main__":
    main()
