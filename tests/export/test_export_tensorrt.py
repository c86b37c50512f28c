"""Building TensorRT engines: the typed graphs compute what the parts do, the command's records, refusals."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from project import ROOT, run_command, with_newer_onnxruntime

import fakes
from animegamer_export.onnx_io.sessions import open_plain
from animegamer_export.quantize.bundle import quantize_bundle
from animegamer_export.quantize.scheme import scheme
from animegamer_export.tensorrt import command
from animegamer_export.tensorrt.builder import RESIDENT, BuildJob, BuildResult, build
from animegamer_export.tensorrt.graph import rewrite, strongly_typed
from animegamer_rt import cli
from animegamer_rt.bundle import loader as bundles
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.errors import BundleError, ConfigError
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import GameState

NETWORK = """<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>
block (float[1, 4, 8] x, float[1, 4, 8] kept, float[1] angle, float[1] scale)
   => (float[1, 4, 8] y, float[1, 4, 8] next_kept, uint8[1, 4, 8] bytes)
<uint8[1, 1, 1] top = {200}, float low = {0.0}, float high = {255.0}>
{
    turn = Cos(angle)
    grown = MatMul(x, weight)
    query = Mul(grown, turn)
    mixed = com.microsoft.MultiHeadAttention<num_heads = 2>(query, kept, kept)
    squares = Mul(mixed, mixed)
    mean = ReduceMean<keepdims = 1>(squares)
    root = Sqrt(mean)
    normed = Div(mixed, root)
    next_kept = Add(normed, bias)
    product = MatMul(next_kept, weight)
    y = Mul(product, scale)
    shown = Mul(y, high)
    clipped = Clip(shown, low, high)
    whole = Cast<to = 2>(clipped)
    bytes = Min(whole, top)
}"""


def network() -> onnx.ModelProto:
    model = onnx.parser.parse_model(NETWORK)
    random = np.random.default_rng(0)
    for name, shape in (("weight", (8, 8)), ("bias", (8,))):
        values = random.standard_normal(shape, dtype=np.float32) / 3
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return onnx.shape_inference.infer_shapes(model)


def typed(half: ir.DataType) -> onnx.ModelProto:
    model = ir.from_proto(network())
    for node in model.graph:
        for value in node.outputs:
            value.dtype = value.dtype or ir.DataType.FLOAT
    rewrite(model, half, ("kept", "next_kept"))
    return ir.to_proto(model)


@with_newer_onnxruntime
def test_typed_graph_computes_what_the_part_does() -> None:
    random = np.random.default_rng(1)
    feeds = {name: random.standard_normal((1, 4, 8), dtype=np.float32) for name in ("x", "kept")}
    feeds |= {"angle": np.array([0.3], np.float32), "scale": np.array([0.5], np.float32)}
    answers = []
    for model, kept in ((network(), np.float32), (typed(ir.DataType.FLOAT16), np.float16)):
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        answers.append(session.run(["y", "next_kept", "bytes"], feeds | {"kept": feeds["kept"].astype(kept)}))
    for whole, half in zip(answers[0][:2], answers[1][:2], strict=True):
        np.testing.assert_allclose(half, whole, atol=5e-3)
    assert np.abs(answers[0][2].astype(int) - answers[1][2].astype(int)).max() <= 1


def test_operators_that_only_onnxruntime_has_are_refused_with_what_to_do() -> None:
    text = """<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>
    part (float[1, 32] x, uint8[4, 2, 8] codes, float[4, 2] scales) => (float[1, 4] y)
    { y = com.microsoft.MatMulNBits<K = 32, N = 4, bits = 4, block_size = 16>(x, codes, scales) }"""
    with pytest.raises(BundleError, match="found MatMulNBits; expected standard ONNX.*predictor=int4-qdq"):
        rewrite(ir.from_proto(onnx.parser.parse_model(text)), ir.DataType.FLOAT16)


def step_feeds(bundle: Bundle) -> dict[str, np.ndarray]:
    random, size = np.random.default_rng(2), bundle.manifest.geometry
    latent = (1, size.latent_frames, size.latent_channels, size.latent_height, size.latent_width)
    drawn = ("latent", "x0_prev", "noise", "difference")
    feeds: dict[str, np.ndarray] = {name: random.standard_normal(latent, dtype=np.float32) for name in drawn}
    feeds["shot"] = random.standard_normal((1, size.shot_tokens, size.shot_width), dtype=np.float32)
    feeds |= {"coefficients": random.standard_normal(8).astype(np.float32), "rows": np.array([0, 1])}
    return feeds | {"timestep": np.array([500.0], np.float32), "motion_scope": np.array([10.0], np.float32)}


@pytest.mark.parametrize("precision", ["int8-qdq", "int4-qdq"])
def test_a_weight_only_denoiser_builds_and_its_typed_graph_answers_the_same(precision: str, tmp_path: Path) -> None:
    pocket = bundles.open_bundle(ROOT / "engines" / "pocket")
    quantize_bundle(pocket, tmp_path / "b", {"denoiser": scheme(precision)})
    made = bundles.load(tmp_path / "b")
    path, typed_path = made.part_path("denoiser"), tmp_path / "b" / "typed.onnx"
    strongly_typed(path, typed_path, "fp16", RESIDENT)
    feeds = step_feeds(made)
    true, tried = (open_plain(file).run(["x0"], feeds)[0] for file in (path, typed_path))
    # 5.2e-4 for both, and 4.8e-4 with 16-bit weights.
    assert np.linalg.norm(tried - true) / np.linalg.norm(true) < 2e-3
    pytest.importorskip("tensorrt_rtx")
    ranges = command.profiles("denoiser", made)[:1]
    job = BuildJob(str(path), str(tmp_path / "a.engine"), "tensorrt_rtx", "sm89", "fp16", ranges)
    built = command._build_in_subprocess(job)
    assert built.error == "" and 0 < built.bytes == (tmp_path / "a.engine").stat().st_size


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return fakes.write_bundle(tmp_path / "tiny")


def fake_build(job: BuildJob) -> BuildResult:
    if "vae_next" in job.source:
        return BuildResult("1.7.1.116", error="Assertion failed: no such kernel (node Conv_7)")
    Path(job.target).parent.mkdir(exist_ok=True)
    Path(job.target).write_bytes(b"engine of " + job.arch.encode())
    return BuildResult("1.7.1.116", 14, 2.6, 300.0)


def test_engines_are_skipped_when_they_fit_and_failures_named(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs: list[BuildJob] = []
    monkeypatch.setattr(command, "_build_in_subprocess", lambda job: (jobs.append(job), fake_build(job))[1])
    monkeypatch.setattr(command, "module_version", lambda library: "1.7.1.116")
    argv = ["--bundle", str(bundle.folder), "--gpu", "sm86,sm89", "--parts", "vae"]
    assert run_command(command.add_command, argv) == 1
    assert "not built: vae_next for sm86: Assertion failed: no such kernel" in capsys.readouterr().err
    written = bundles.load(bundle.folder).manifest
    assert list(written.engines) == ["vae_first-sm86", "vae_first-sm89"]
    assert written.engines["vae_first-sm89"].built_for["arch"] == "sm89"
    jobs.clear()
    run_command(command.add_command, argv)
    assert {job.source.rsplit("/", 1)[-1] for job in jobs} == {"vae_next.onnx"}, "what fits is not built again"
    jobs.clear()
    run_command(command.add_command, [*argv, "--precision", "bf16"])
    assert len(jobs) == 4, "another precision is another engine"
    jobs.clear()
    monkeypatch.setattr(command, "module_version", lambda library: "1.8.0.1")
    run_command(command.add_command, [*argv, "--precision", "bf16"])
    assert len(jobs) == 4, "and so is one of another version than the installed one"


def half_built(job: BuildJob) -> None:
    """What a builder leaves that is stopped while it writes."""
    Path(job.target).parent.mkdir(exist_ok=True)
    Path(job.target + ".part").write_bytes(b"half")
    source = Path(job.source)
    source.with_name(f".{source.stem}.{job.arch}.{job.precision}.onnx").write_bytes(b"typed")


def hidden_or_half(bundle: Bundle) -> list[Path]:
    return [path for path in bundle.folder.rglob("*") if path.name.startswith(".") or path.suffix == ".part"]


def test_ctrl_c_leaves_no_half_engine_and_the_next_run_goes_on(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def interrupted(job: BuildJob) -> BuildResult:
        if built:
            half_built(job)
            raise KeyboardInterrupt
        built.append(job.source)
        return fake_build(job)

    monkeypatch.setattr(command, "_build_in_subprocess", interrupted)
    argv = ["--bundle", str(bundle.folder), "--gpu", "sm86,sm89", "--parts", "denoiser"]
    assert cli.main(["build-engines", *argv]) == 130
    assert hidden_or_half(bundle) == []
    assert list(bundles.load(bundle.folder).manifest.engines) == ["denoiser-sm86"]
    jobs: list[BuildJob] = []
    monkeypatch.setattr(command, "_build_in_subprocess", lambda job: (jobs.append(job), fake_build(job))[1])
    assert cli.main(["build-engines", *argv]) == 0
    assert [job.arch for job in jobs] == ["sm89"]


def test_a_disk_that_fills_up_is_named_with_what_to_do(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(arguments: list[str], input: str, **_: object) -> subprocess.CompletedProcess[str]:
        half_built(BuildJob(**json.loads(input)))
        said = "Traceback ..\nOSError: [Errno 28] No space left on device\n"
        return subprocess.CompletedProcess(arguments, 1, "", said)

    monkeypatch.setattr(command.subprocess, "run", full)
    argv = ["--bundle", str(bundle.folder), "--gpu", "sm89", "--parts", "denoiser"]
    assert run_command(command.add_command, argv) == 1
    told = capsys.readouterr().err
    assert "the disk is full" in told and "denoiser-sm89.engine" in told and "run it again" in told
    assert hidden_or_half(bundle) == []


def test_unknown_gpu_and_part_are_refused(bundle: Bundle) -> None:
    with pytest.raises(ConfigError, match="--gpu: unknown name; found 'sm70'; expected of sm75"):
        run_command(command.add_command, ["--bundle", str(bundle.folder), "--gpu", "sm70"])
    with pytest.raises(ConfigError, match="--parts: unknown name; found 'text_tower'"):
        run_command(command.add_command, ["--bundle", str(bundle.folder), "--gpu", "sm89", "--parts", "text_tower"])


def test_profiles_hold_every_prompt_of_the_window(bundle: Bundle) -> None:
    (prompts,) = command.profiles("predictor", bundle)
    least, usual, most = prompts["tokens"]
    assert least <= usual <= most <= bundle.manifest.geometry.window_tokens
    # Three strengths, each with two tags, follow the longest prompt.
    cached = prompts["cached_tokens"]
    assert cached[:2] == (0, usual - 266) and cached[2] >= most + 9 and prompts["read_tokens"][0] == 1
    past = HistoryTurn("Mia waves.", GameState(1, 2, 3, 4), np.zeros((226, 8), np.float16))
    prompt = PromptBuilder.from_bundle(bundle).build("Tobo runs.", [past] * 2)
    for tokens in (prompt.history, prompt.turn):
        assert tokens is not None
        assert tokens.ids.shape[1] <= most
        assert prompts["history_tokens"][0] <= len(tokens.history_shots) <= prompts["history_tokens"][2]
        assert prompts["read_tokens"][0] <= len(tokens.readout) <= prompts["read_tokens"][2]
    assert [ranges["batch"] for ranges in command.profiles("denoiser", bundle)] == [(2, 2, 2), (1, 1, 1)]
    with pytest.raises(ConfigError, match="longest prompt is too short"):
        command.profiles("predictor", bundle, 100)


def test_library_that_is_not_there_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    job = BuildJob(str(tmp_path / "a.onnx"), str(tmp_path / "a.engine"), "no_such_tensorrt", "sm90", "fp16")
    built = build(job)
    assert "no_such_tensorrt is not installed" in built.error and asdict(built)["bytes"] == 0
