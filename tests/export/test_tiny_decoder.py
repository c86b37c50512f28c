"""TAECVX, TAEHV's decoder for CogVideoX: read from its published form, it plays a plan in place of the vae.

The small networks here have the published file's names and layers, written from its description.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_hub import FakeHub, hub_of
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from animegamer_export.checkpoints.tiny_decoder import read_tiny_decoder
from animegamer_export.distill import add, files
from animegamer_export.fetch import light_decoder
from animegamer_export.parts.tiny_decoder import export_tiny_decoder
from animegamer_export.parts.vae import pixels
from animegamer_export.tensorrt.graph import strongly_typed
from animegamer_rt.backends.interface import Frames
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import PlanEntry
from animegamer_rt.bundle.roles import TINY_DECODER, VAE
from animegamer_rt.bundle.writer import write_manifest
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.errors import AnimeGamerError, CheckpointError, HubError
from animegamer_rt.models.tiny_decoder import TinyDecoder, TinyDecoderSize
from animegamer_rt.stages.vae import Vae

WIDTHS, SCALE = (16, 8, 8, 4), 1.5
LATENT = (5, 16, 4, 6)


class Memory(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        layers = [nn.Conv2d(2 * channels, channels, 3, padding=1)]
        layers += [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
        self.conv = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])

    def forward(self, x: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
        return functional.relu(x + self.conv(torch.cat([x, before], dim=1)))


class NewFrames(nn.Module):
    def __init__(self, channels: int, frames: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, frames * channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv(x)
        return out.reshape(-1, *x.shape[1:])


class Clamp(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x / 3) * 3


class Published(nn.Module):
    """A whole clip [5, 16, h, w] -> frames [17, 3, H, W] in about 0..1. It has its encoder's weights too."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        layers: list[nn.Module] = [Clamp(), nn.Conv2d(16, widths[0], 3, padding=1), nn.ReLU()]
        for wide, new, frames in zip(widths[:-1], widths[1:], (1, 2, 2), strict=True):
            layers += [Memory(wide) for _ in range(3)]
            layers += [nn.Upsample(scale_factor=2), NewFrames(wide, frames)]
            layers += [nn.Conv2d(wide, new, 3, padding=1, bias=False)]
        self.decoder = nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(widths[-1], 3, 3, padding=1))
        self.encoder = nn.Sequential(nn.Conv2d(3, 4, 3))

    def forward(self, latent: Tensor) -> Tensor:
        frames: Tensor = self.decoder(latent)
        return frames[3:]


@pytest.fixture(autouse=True)
def no_gradients() -> object:
    with torch.no_grad():
        yield


@pytest.fixture
def published() -> Published:
    torch.manual_seed(5)
    network = Published().eval()
    for weight in network.parameters():
        weight.copy_((1.6 * weight if weight.ndim > 1 else weight + 0.05).half().float())
    return network


@pytest.fixture
def file(published: Published, tmp_path: Path) -> Path:
    save_file(published.state_dict(), tmp_path / "taecvx.safetensors")
    return tmp_path / "taecvx.safetensors"


def latent(seed: int = 1, shape: tuple[int, ...] = LATENT) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", ["safetensors", "pth"])
def test_two_chunks_give_the_frames_of_the_published_network(published: Published, file: Path, kind: str) -> None:
    if kind == "pth":
        file = file.with_suffix(".pth")
        torch.save(published.state_dict(), file)
    decoder = read_tiny_decoder(file, SCALE)
    assert decoder.size == TinyDecoderSize(WIDTHS, scale=SCALE)
    expected = 2 * published(latent()) - 1
    first, caches = decoder(latent()[:3])
    rest, _ = decoder(latent()[3:], caches)
    assert [len(first), len(rest)] == [9, 8] and expected.std() > 0.05
    torch.testing.assert_close(torch.cat([first, rest]), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(decoder(latent())[0], expected, rtol=0, atol=1e-4)
    assert [tuple(cache.shape[1:]) for cache in caches] == decoder.size.cache_shapes(*LATENT[2:])


def test_the_published_sizes_are_the_usual_ones() -> None:
    with torch.device("meta"):
        ours, theirs = TinyDecoder(TinyDecoderSize()), Published((256, 128, 64, 64)).decoder
    assert sum(weight.numel() for weight in theirs.parameters()) == 9_844_611
    assert sum(weight.numel() for weight in ours.parameters()) > 9_844_611  # an upsampling is four convolutions in one


def test_each_backend_plays_what_the_network_draws(bundle: Bundle) -> None:
    """Of two stages, as the tiny bundle's frames are only four times as high as its latents."""
    torch.manual_seed(5)
    decoder = TinyDecoder(TinyDecoderSize((16, 8, 4), doubles_time=(True, True), scale=SCALE)).eval()
    for weight in decoder.parameters():
        weight.copy_((1.6 * weight).half().float())
    clip = latent(shape=(1, 5, 16, 8, 12))
    written = export_tiny_decoder(decoder, clip, bundle.folder, "vae_light")
    assert max(written.max_error.values()) <= 1
    manifest = bundle.manifest
    entry = PlanEntry(manifest.plans["exact"].plan, {"ssim": 1.0}, parts={VAE: "vae_light"})
    parts, sizes = {**manifest.parts, **written.parts}, {**manifest.sizes, TINY_DECODER: asdict(decoder.size)}
    lighter = write_manifest(
        bundle.folder, replace(manifest, parts=parts, sizes=sizes, plans={**manifest.plans, "x": entry})
    )
    assert lighter.fingerprint == bundle.fingerprint
    frames = decoder(clip[0] / SCALE)[0]
    true = pixels(frames, torch.tensor([2, 1, 0, 3]), torch.tensor([True])).numpy().astype(int)

    def played(device: str) -> Frames:
        engines = open_engines(lighter, EngineConfig(device, threads=None if "torch" in device else 1), plan="x")
        return np.stack(list(Vae(engines.vae).decode(clip.numpy(), "bgra32", flip=True)))

    assert true.shape == (17, 32, 48, 4) and true[..., :3].std() > 5
    for device in ("cpu", "torch-cpu"):
        assert np.abs(played(device) - true).max() <= 1
    for name in written.parts:  # TensorRT reads it
        strongly_typed(bundle.folder / f"{name}.onnx", bundle.folder / "typed.onnx", "fp16", ("cache_",))


def test_a_decoder_of_another_scale_is_refused_and_the_right_one_added(
    bundle: Bundle, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands in for the bundle's vae: the same decoder, at the bundle's scale."""
    scale = bundle.manifest.sizes["decoder"]["scale"]
    right, wrong = read_tiny_decoder(file, scale), read_tiny_decoder(file, 1.0 / scale**6)
    clips = [latent(seed, (1, 5, 16, 8, 12)) for seed in range(2)]
    colours = torch.arange(3), torch.tensor([False])
    frames = [pixels(right(clip[0] / scale)[0], *colours).numpy() for clip in clips]
    add._require_likeness(right, clips, frames, file)
    with pytest.raises(AnimeGamerError, match="draws other pictures.*at least 25 dB.*another model or scale"):
        add._require_likeness(wrong, clips, frames, file)
    assert isinstance(files.read_light_decoder(file, bundle), TinyDecoder)


def test_another_file_is_refused_in_words(published: Published, tmp_path: Path) -> None:
    state, path = published.state_dict(), tmp_path / "taehv.safetensors"
    del state["decoder.4.conv.2.bias"]
    state["decoder.22.weight"] = state["decoder.22.weight"][:2].clone()
    save_file(state, path)
    with pytest.raises(CheckpointError, match=r"decoder\.4\.conv\.2\.bias") as refused:
        read_tiny_decoder(path, SCALE)
    assert "decoder.22.weight" in str(refused.value)
    torch.save(nn.Linear(2, 2), tmp_path / "code.pth")
    with pytest.raises(CheckpointError, match="would run code"):
        read_tiny_decoder(tmp_path / "code.pth", SCALE)


def test_fetch_downloads_and_verifies_the_published_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, out = file.read_bytes(), tmp_path / "checkpoints"
    right = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    with hub_of(FakeHub({light_decoder.REPOSITORY: {light_decoder.PATH: content}}), tmp_path) as hub:
        monkeypatch.setattr(light_decoder, "ADDRESS", hub.address)
        with pytest.raises(HubError, match="not the published one"):
            light_decoder.fetch_light_decoder(out)
        monkeypatch.setattr(light_decoder, "BLOB", right)
        for _ in range(2):
            path = light_decoder.fetch_light_decoder(out)
            assert path == out / "taehv" / "taecvx.safetensors" and path.read_bytes() == content
        hub.pages = True
        path.unlink()
        with pytest.raises(HubError, match="not the published one"):
            light_decoder.fetch_light_decoder(out)
        path.write_bytes(b"another")
        with pytest.raises(CheckpointError, match="checksum differs"):
            light_decoder.fetch_light_decoder(out)
    monkeypatch.setattr(light_decoder, "ADDRESS", "http://127.0.0.1:9")
    path.unlink()
    with pytest.raises(HubError, match="no download from"):
        light_decoder.fetch_light_decoder(out)
