"""From tiny checkpoints in the published formats to a turn that equals the reference path's."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from live_server import LiveServer
from project import run_command
from tiny_release import ENCODER_SIZE, PICTURE, write_release
from torch import Tensor
from torch_engines import torch_engines
from tower_files import clip_features, write_open_clip, write_t5
from watching import FP16, Watching

from animegamer_client import Client, Frame
from animegamer_export.build.command import add_command
from animegamer_export.build.sizes import PARTS
from animegamer_export.build.steps import export, export_steps, run_step
from animegamer_export.build.weight_source import TOWER_PARTS, from_checkpoints
from animegamer_export.parts.streamed.parts import whole_encoder, with_weights
from animegamer_rt import cli
from animegamer_rt.backends.registry import open_engines, open_towers
from animegamer_rt.bundle.loader import Bundle, load
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import CheckpointError
from animegamer_rt.events import Event, FrameReady, StatePredicted
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.stages.image import prepare
from animegamer_rt.stages.image_start import encode_image_start, motion_ids, read_image_start
from animegamer_rt.state.game import Instruction
from animegamer_rt.video import write_png

SAT = "AnimeGamer/VDM_Decoder-Qiqi/1/mp_rank_00_model_states.pt"
ADAPTER = "AnimeGamer/MLLM-Qiqi/pytorch_model.bin"
CLIP = "CLIP-ViT-B-16-laion2B-s34B-b88K"
TEXTS = ("Mirel runs quickly at the beach.", "Mirel waves.")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_release(tmp_path_factory.mktemp("checkpoints"))
    write_t5(folder / "t5-v1_1-xxl", ENCODER_SIZE.text_width, 2)
    write_open_clip(folder / CLIP, ENCODER_SIZE.image_width)
    return folder


@pytest.fixture(scope="module")
def bundle(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    out = tmp_path_factory.mktemp("bundles") / "qiqi"
    given = [f"--precision={part}=fp32" for part in (*PARTS, *TOWER_PARTS)]
    assert (
        run_command(add_command, ["--checkpoints", str(release), "--picture", "32x48", "--out", str(out), *given]) == 0
    )
    return load(out)


def test_a_turn_equals_the_reference_paths(release: Path, bundle: Bundle) -> None:
    source = from_checkpoints(release, "Qiqi", *PICTURE)
    sizes, weights = source.sizes, source.weights
    reference = torch_engines(
        with_weights(Predictor(sizes.predictor), weights["predictor"]),
        with_weights(Denoiser(sizes.denoiser), weights["denoiser"], "denoiser."),
        whole_encoder(sizes.encoder, weights["encoder"]),
        with_weights(VaeDecoder(sizes.vae), weights["vae"]),
    )
    played = []
    for engines in (open_engines(bundle, EngineConfig(threads=1)), reference):
        session, events = Session.start(bundle, seed=7), list[Event]()
        for text in TEXTS:
            events += Pipeline.open(bundle, engines).run_turn(session, Instruction.parse(text))
        states = [event.game_state for event in events if isinstance(event, StatePredicted)]
        clip = np.stack([event.frame for event in events if isinstance(event, FrameReady)]).astype(np.int16)
        played.append((states, clip))
    (states, clip), (reference_states, reference_clip) = played
    assert states == reference_states
    assert clip.shape == (34, *PICTURE, 3) and clip.std() > 1
    assert np.abs(clip - reference_clip).max() <= 1


def test_published_files_become_a_clip_and_a_served_turn_with_a_predictor_in_4_bits(
    bundle: Bundle, tmp_path: Path
) -> None:
    """Then `play --plan fast` to an mp4, `serve` to a client; each twice, with the same frames."""
    out = tmp_path / "qiqi"
    quantize = ["quantize", str(bundle.folder), "--precision", "predictor=int4-qdq", "--out", str(out)]
    assert cli.main(quantize) == 0
    manifest = load(out).manifest
    assert manifest.parts["predictor"].precision == "int4-qdq"
    plans = {name: replace(plan, fidelity={"ssim": 0.9}) for name, plan in manifest.plans.items()}
    write_manifest(out, replace(manifest, plans=plans), changed=())  # as `search-plans` does
    (tmp_path / "story.txt").write_text(TEXTS[0], encoding="utf-8")
    games = []
    for name in ("one", "two"):
        game = ["--instructions", str(tmp_path / "story.txt"), "--out", str(tmp_path / name), "--seed", "7"]
        assert cli.main(["play", "--bundle", str(out), "--plan", "fast", *game]) == 0
        games.append(json.loads((tmp_path / name / "game.json").read_text(encoding="utf-8"))["turns"][0])
    assert games[0]["frames_sha256"] == games[1]["frames_sha256"]
    with av.open(str(tmp_path / "one" / "turn-001.mp4")) as clip:
        assert len(list(clip.decode(video=0))) == 17
    with LiveServer(out, tmp_path / "state", "--plan", "fast", device="cpu") as server:
        with Client(f"tcp://127.0.0.1:{server.ready().port}") as client:
            served = [
                np.stack([event.pixels for event in client.open(seed=7).turn(TEXTS[0]) if isinstance(event, Frame)])
                for _ in range(2)
            ]
    assert served[0].shape == (17, *PICTURE, 3) and served[0].std() > 1
    assert {hashlib.sha256(frames).hexdigest() for frames in served} == {games[0]["frames_sha256"]}


@torch.no_grad()
def test_a_game_starts_from_a_picture_with_the_towers_of_the_checkpoints(
    release: Path, bundle: Bundle, tmp_path: Path
) -> None:
    from transformers import T5EncoderModel

    source = np.random.default_rng(3).integers(0, 256, (56, 84, 3), np.uint8)
    write_png(tmp_path / "start.png", source)
    config = EngineConfig(threads=1)
    towers, encoder = open_towers(bundle, config), open_engines(bundle, config).encoder
    assert encoder is not None and (towers.tokens, towers.height, towers.width) == (30, 56, 56)
    turn, _ = encode_image_start(
        bundle, read_image_start(bundle, 2, tmp_path / "start.png", "gently wave"), towers, encoder
    )

    ids = motion_ids(bundle, "gently wave", 30)
    assert ids[0].tolist().index(1) > 0 and ids[0, -1] == 0  # the text is closed as T5 closes it, then padded
    text = T5EncoderModel.from_pretrained(release / "t5-v1_1-xxl").eval()(input_ids=torch.from_numpy(ids))
    library = write_open_clip(tmp_path / "clip", ENCODER_SIZE.image_width)
    image = clip_features(library, torch.from_numpy(prepare(source, 56, 56, 1.5)))
    made_of = from_checkpoints(release, "Qiqi", *PICTURE)
    reference = whole_encoder(made_of.sizes.encoder, made_of.weights["encoder"])
    expected = reference(text.last_hidden_state, image)[0].numpy()
    np.testing.assert_allclose(turn.shot, expected, atol=2e-3)


def test_all_that_is_missing_comes_in_one_error(release: Path, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "partly")
    (tmp_path / "partly/Mistral-7B-Instruct-v0.1/tokenizer.model").unlink()
    (tmp_path / "partly/AnimeGamer/VDM_Decoder-Qiqi/1/mp_rank_00_model_states.pt").unlink()
    with pytest.raises(CheckpointError) as caught:
        from_checkpoints(tmp_path / "partly", "Qiqi", *PICTURE)
    assert len(caught.value.missing) == 2
    assert "tokenizer.model" in caught.value.missing[0] and "mp_rank_00" in caught.value.missing[1]


def test_an_unknown_character_or_folder_is_named(release: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"--release \(Qiqi\)"):
        from_checkpoints(release, "Ponyo", *PICTURE)
    with pytest.raises(CheckpointError, match="none: no such folder"):
        from_checkpoints(tmp_path / "none", "Qiqi", *PICTURE)


POSITIONS = "model.diffusion_model.mixins.pos_embed.pos_embedding"


def change_tensors(path: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    saved = torch.load(path, weights_only=True)
    torch.save({"module": change(saved["module"])} if "module" in saved else change(saved), path)


def test_a_picture_of_another_height_and_width_is_refused_with_the_right_one(release: Path, tmp_path: Path) -> None:
    height, width = PICTURE
    for picture in ((width, height), (2 * height, width)):
        with pytest.raises(CheckpointError, match=rf"another frame size(?s:.*)pass --picture {height}x{width}$"):
            from_checkpoints(release, "Qiqi", *picture)
    shutil.copytree(release, tmp_path / "given")
    change_tensors(
        tmp_path / "given" / SAT, lambda tensors: {**tensors, POSITIONS: torch.zeros_like(tensors[POSITIONS])}
    )
    with pytest.raises(CheckpointError, match="position table matches no frame size"):
        from_checkpoints(tmp_path / "given", "Qiqi", *PICTURE)


def test_a_weight_that_the_precision_cannot_hold_ends_the_export(release: Path, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "given")
    tensors = torch.load(release / SAT, weights_only=True)["module"]
    tensors["model.diffusion_model.transformer.layers.1.mlp.dense_h_to_4h.weight"][3, 4] = 1e5
    torch.save({"module": tensors}, tmp_path / "given" / SAT)
    source = from_checkpoints(tmp_path / "given", "Qiqi", *PICTURE)
    with pytest.raises(CheckpointError, match=r"denoiser, .*1.*mlp_in\.weight: .*1e\+05 overflows fp16"):
        export(source, FP16, tmp_path / "b", Watching())
    assert [path.name for path in tmp_path.iterdir()] == ["given"]
    for step in export_steps(source, {"denoiser": "bf16"}):
        run_step(step, tmp_path, Watching())
    tensors["model.diffusion_model.transformer.final_layernorm.weight"][0] = torch.inf
    torch.save({"module": tensors}, tmp_path / "given" / SAT)
    (step, _) = export_steps(from_checkpoints(tmp_path / "given", "Qiqi", *PICTURE), {"denoiser": "bf16"})
    with pytest.raises(CheckpointError, match=r"denoiser\.final_norm\.weight: a weight is not finite"):
        run_step(step, tmp_path, Watching())
