"""A game that starts from a picture: how it is read, the turn 0 it makes, how long it counts, what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps, PngImagePlugin
from tiny_towers import add_towers

import fakes
from animegamer_rt.backends.registry import open_engines, open_towers
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import MotionTokenizer
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import AnimeGamerError, BundleError, ConfigError, InstructionError, PictureError
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.session import Session
from animegamer_rt.stages.image import centre_crop, decode_picture, prepare, read_picture
from animegamer_rt.stages.image_start import NEUTRAL, encode_image_start, motion_ids, read_image_start
from animegamer_rt.stages.picture_formats import decodable
from animegamer_rt.stages.prompt import HistoryTurn, PromptBuilder
from animegamer_rt.state.game import CharacterState, Instruction
from animegamer_rt.video import write_png

CAPTION = "Character: Mia; Motion: gently wave; Background: day town."


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return add_towers(fakes.write_bundle(tmp_path_factory.mktemp("bundles") / "tiny"))


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "start.png"
    write_png(path, np.full((32, 48, 3), 204, np.uint8))
    return path


def opening(bundle: Bundle, image: Path, motion: str = "gently wave") -> HistoryTurn:
    encoder = open_engines(bundle, EngineConfig(threads=1)).encoder
    assert encoder is not None
    towers = open_towers(bundle, EngineConfig(threads=1))
    return encode_image_start(bundle, read_image_start(bundle, 2, image, motion), towers, encoder)[0]


def test_turn_zero_is_the_encoders_shot_of_picture_and_motion(bundle: Bundle, image: Path) -> None:
    turn = opening(bundle, image)
    assert (turn.text, turn.game_state) == ("Motion: gently wave.", NEUTRAL)
    assert turn.shot.shape == (226, 8) and turn.shot.dtype == np.float16
    words = PromptBuilder.from_bundle(bundle).encode_text("gently wave")
    np.testing.assert_allclose(turn.shot[: len(words), 0], np.array(words) / 1000, rtol=1e-3)
    assert (turn.shot[len(words) : 30] == 0).all()
    np.testing.assert_allclose(turn.shot[30:], 204 / 127.5 - 1, rtol=1e-3)


def test_whole_caption_tells_the_prompt_more_and_the_tower_only_the_motion(bundle: Bundle, image: Path) -> None:
    start = read_image_start(bundle, 2, image, f"  {CAPTION} ")
    assert (start.caption, start.motion) == (CAPTION, "gently wave")
    assert (opening(bundle, image, CAPTION).shot == opening(bundle, image).shot).all()
    assert read_image_start(bundle, 2, image, "gently wave.").caption == "Motion: gently wave."


def test_next_turns_continue_from_the_picture_until_it_leaves_the_window(bundle: Bundle, image: Path) -> None:
    predictor = Pipeline.open(bundle, open_engines(bundle, EngineConfig(threads=1))).predictor
    begun, plain = Session.start(bundle, seed=7), Session.start(bundle, seed=7)
    assert begun.history_turns == 2
    begun.start_from(opening(bundle, image))
    shots = []
    for turn in range(1, 4):
        instruction = Instruction(f"Mia waves {turn} times.")
        seen = [past.text for past in begun.history]
        assert seen == ["Motion: gently wave.", *(f"Mia waves {n} times." for n in (1, 2))][max(0, turn - 2) :][:turn]
        shots.append((predictor.predict(begun.history, instruction), predictor.predict(plain.history, instruction)))
        begun.commit(instruction, shots[-1][0])
        plain.commit(instruction, shots[-1][1])
    assert begun.turns == 3
    assert (shots[0][0].shot != shots[0][1].shot).any(), "the first turn sees the picture"
    character = CharacterState()
    for played in begun.log:
        character = character.after(played.game_state)
    assert begun.character == character, "turn 0 moves none of the character's values"
    begun.rewind(0, predictor.predict)
    assert [past.text for past in begun.history] == ["Motion: gently wave."]


def test_text_is_cut_so_that_its_end_stays(bundle: Bundle) -> None:
    words = PromptBuilder.from_bundle(bundle).encode_text("wave " * 40)
    assert motion_ids(bundle, "wave " * 40, 30).tolist() == [words[:30]]
    closed = replace(bundle.manifest, motion_tokenizer=MotionTokenizer(space_first=True, end=2))
    ids = motion_ids(Bundle(bundle.folder, closed), "wave " * 40, 30)
    assert ids.shape == (1, 30) and ids[0, -1] == 2
    short = motion_ids(Bundle(bundle.folder, closed), "wave", 30)[0].tolist()
    assert short[-1] == 0 and 2 in short
    assert short[: short.index(2)] != PromptBuilder.from_bundle(bundle).encode_text("wave"), "a space mark goes first"


def test_bundle_without_the_parts_says_which(tmp_path: Path, image: Path) -> None:
    plain = fakes.write_bundle(tmp_path / "plain")
    with pytest.raises(BundleError, match=r"plain: the bundle cannot start a game.*no text_tower, image_tower, enc"):
        read_image_start(plain, 2, image, "gently wave")
    whole = add_towers(plain)
    parts = {name: part for name, part in whole.manifest.parts.items() if name != "image_tower"}
    with pytest.raises(BundleError, match="found no image_tower; expected text_tower, image_tower, encoder"):
        read_image_start(write_manifest(whole.folder, replace(whole.manifest, parts=parts)), 2, image, "gently wave")


@pytest.mark.parametrize(
    ("motion", "window", "kind", "said"),
    [
        (" ... ", 2, InstructionError, "empty"),
        ("Character: Mia.", 2, InstructionError, "the caption has no motion"),
        ("gently wave", 0, ConfigError, "no turn would see the picture.*--history-turns 1"),
    ],
)
def test_what_cannot_start_a_game_is_refused(
    bundle: Bundle, image: Path, motion: str, window: int, kind: type[AnimeGamerError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        read_image_start(bundle, window, image, motion)


RANDOM = np.random.default_rng(11)


def picture(height: int, width: int) -> np.ndarray:
    return RANDOM.integers(0, 256, (height, width, 3), np.uint8)


def reference(pixels: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """The reference's resize, by torch: kornia's Gaussian blur (mirrored borders), then bicubic, corners aligned."""
    for dimension, target in ((2, height), (3, width)):
        factor = pixels.shape[dimension] / target
        sigma = max((factor - 1) / 2, 0.001)
        size = int(max(4 * sigma, 3)) // 2 * 2 + 1
        taps = torch.arange(size) - size // 2
        kernel = torch.exp(-(taps**2) / (2 * sigma**2))
        kernel = (kernel / kernel.sum()).expand(3, 1, -1)
        lying = dimension == 3
        pad = (size // 2, size // 2, 0, 0) if lying else (0, 0, size // 2, size // 2)
        weight = kernel[:, :, None] if lying else kernel[..., None]
        pixels = F.conv2d(F.pad(pixels, pad, mode="reflect"), weight, groups=3)
    return F.interpolate(pixels, (height, width), mode="bicubic", align_corners=True)


@pytest.mark.parametrize("sides", [(480, 720, 224, 224), (60, 90, 224, 224), (301, 97, 32, 48)])
def test_resizing_is_the_references(sides: tuple[int, int, int, int]) -> None:
    source_height, source_width, height, width = sides
    source = picture(source_height, source_width)
    found = prepare(source, height, width, source_width / source_height)
    expected = reference(torch.from_numpy(source).permute(2, 0, 1)[None].float() / 127.5 - 1, height, width)
    assert found.shape == (1, 3, height, width) and found.dtype == np.float32
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-5)


@pytest.mark.parametrize(("sides", "kept"), [((40, 100), (40, 60)), ((100, 60), (40, 60)), ((1, 5000), (1, 2))])
def test_middle_of_the_clips_shape_is_cut_out(sides: tuple[int, int], kept: tuple[int, int]) -> None:
    source = picture(*sides)
    part = centre_crop(source, 1.5)
    assert part.shape[:2] == kept
    top, left = (sides[0] - kept[0]) // 2, (sides[1] - kept[1]) // 2
    assert (part == source[top : top + kept[0], left : left + kept[1]]).all()


def test_png_is_read_exactly_and_what_is_transparent_is_white(tmp_path: Path) -> None:
    source = picture(16, 21)
    Image.fromarray(source).save(tmp_path / "a.png")
    assert (read_picture(tmp_path / "a.png") == source).all()
    alpha = np.zeros((16, 21, 1), np.uint8)
    alpha[:4] = 255
    Image.fromarray(np.concatenate([source, alpha], axis=2)).save(tmp_path / "b.png")
    found = read_picture(tmp_path / "b.png")
    assert (found[:4] == source[:4]).all() and (found[4:] == 255).all()


@pytest.mark.parametrize("kind", ["jpg", "png", "webp"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_picture_is_turned_as_its_camera_says(tmp_path: Path, orientation: int, kind: str) -> None:
    source = np.zeros((32, 64, 3), np.uint8)
    source[:16, :16], source[:16, 48:] = 250, 120  # three corners that differ
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"turned.{kind}"
    Image.fromarray(source).save(path, quality=95, exif=exif)
    shown = np.asarray(ImageOps.exif_transpose(Image.open(path).convert("RGB"))).astype(int)
    assert shown.shape == ((64, 32, 3) if orientation > 4 else (32, 64, 3))
    assert np.abs(read_picture(path).astype(int) - shown).max() < 40  # decoders differ at edges


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match=r"none\.png: no such picture"):
        read_picture(tmp_path / "none.png")
    with pytest.raises(PictureError, match="not a readable picture"):
        read_picture(tmp_path)


def test_huge_picture_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    Image.new("1", (10_000, 5_001)).save(tmp_path / "huge.png")
    assert (tmp_path / "huge.png").stat().st_size < 100_000
    with pytest.raises(
        PictureError, match=r"huge\.png: the picture is too large; found 10000 x 5001; .* 50 megapixels"
    ):
        read_picture(tmp_path / "huge.png")


FORMATS = ("png", "jpg", "webp")
SOURCE = np.random.default_rng(5).integers(0, 256, (48, 64, 3), np.uint8)


def saved(folder: Path, suffix: str, **options: object) -> bytes:
    Image.fromarray(SOURCE).save(folder / f"whole.{suffix}", **options)
    return (folder / f"whole.{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", FORMATS)
def test_common_formats_are_read_whatever_their_names(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "picture.m3u8").write_bytes(saved(tmp_path, suffix))
    assert read_picture(tmp_path / "picture.m3u8").shape == SOURCE.shape


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("suffix", [*FORMATS, "progressive"])
def test_a_picture_that_was_cut_short_is_refused(tmp_path: Path, suffix: str, share: float) -> None:
    progressive = {"progressive": True} if suffix == "progressive" else {}
    content = saved(tmp_path, "jpg" if progressive else suffix, **progressive)
    (tmp_path / "half").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(PictureError, match="half: not a readable picture"):
        read_picture(tmp_path / "half")


def test_the_end_of_a_thumbnail_is_not_the_pictures(tmp_path: Path) -> None:
    content = saved(tmp_path, "jpg")
    thumbnail = b"Exif\0\0" + content[:2000] + b"\xff\xd9"
    inside = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    whole = content[:2] + inside + content[2:]
    (tmp_path / "whole.jpg").write_bytes(whole)
    assert read_picture(tmp_path / "whole.jpg").shape == SOURCE.shape
    (tmp_path / "half.jpg").write_bytes(whole[: len(whole) - 1000])
    with pytest.raises(PictureError, match="a truncated file"):
        read_picture(tmp_path / "half.jpg")


def test_a_small_file_cannot_cost_much(tmp_path: Path) -> None:
    notes = PngImagePlugin.PngInfo()
    notes.add_text("story", "a" * 10_000_000, zip=True)
    png = saved(tmp_path, "png", pnginfo=notes, icc_profile=bytes(10_000_000))
    assert (decode_picture(png) == SOURCE).all()
    assert b"zTXt" in png and b"iCCP" in png
    assert not re.search(b"zTXt|iCCP", decodable(png, "png_pipe"))  # FFmpeg would inflate them
    jpeg = saved(tmp_path, "jpg", progressive=True)
    scan = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    with pytest.raises(PictureError, match="more than 100 scans"):
        decode_picture(jpeg[:-2] + 100 * scan + jpeg[-2:])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.m3u8", "#EXTM3U\n#EXTINF:1,\nwhole.png\n"),
        ("list.ffconcat", "ffconcat version 1.0\nfile 'whole.png'\n"),
        ("stream.sdp", "v=0\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n"),
        ("list.mpd", "<?xml version='1.0'?><MPD><BaseURL>whole.png</BaseURL></MPD>"),
        ("drawing.svg", "<svg xmlns='http://www.w3.org/2000/svg'><image href='whole.png'/></svg>"),
        ("story.txt", "a story"),
    ],
)
def test_a_file_that_names_other_files_is_no_picture(tmp_path: Path, name: str, text: str) -> None:
    saved(tmp_path, "png")
    (tmp_path / name).write_text(text)
    with pytest.raises(PictureError, match="no image data"):
        read_picture(tmp_path / name)


def test_a_pipe_or_a_device_is_no_picture() -> None:
    with pytest.raises(PictureError, match="not a regular file"):
        read_picture(Path("/dev/zero"))
