"""The precisions that fit a GPU, as doctor and docs/EXPORT.md list them."""

from __future__ import annotations

from project import ROOT

from animegamer_rt.profiling import gpu_specs


def test_the_best_precision_of_a_card_fits_it() -> None:
    overhead = gpu_specs.overhead_bytes(480, 720, gpu_specs.FULL_PREDICTOR)
    assert 6.4 * 2**30 < overhead < 6.6 * 2**30
    for gib in gpu_specs.CARDS_GIB:
        fit = gpu_specs.best_precisions(gib)
        assert fit.weights_bytes - fit.streamed_bytes + overhead <= gib * 2**30
    assert gpu_specs.best_precisions(12).streamed_bytes > 0 and gpu_specs.best_precisions(16).streamed_bytes == 0
    sizes = [gpu_specs.weights_bytes(precision) for precision in gpu_specs.PRECISIONS_BY_SIZE]
    assert sizes == sorted(sizes, reverse=True)


def test_the_guides_table_is_the_doctors() -> None:
    guide = (ROOT / "docs" / "EXPORT.md").read_text(encoding="utf-8")
    for gib in (8, 12, 16, 24):
        fit = gpu_specs.best_precisions(gib)
        streamed = f", {fit.streamed_bytes / 2**30:.1f} of them streamed" if fit.streamed_bytes else ""
        precision = " | ".join(fit.precision[part] for part in ("predictor", "denoiser", "vae"))
        card = "24 GB and more" if gib == 24 else f"{gib} GB"
        assert f"| {card} | {precision} | {fit.weights_bytes / 2**30:.1f} GiB{streamed} |" in guide
