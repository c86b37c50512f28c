"""Claims about the vae decoder that need no recording."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from animegamer_rt.models.vae import CACHE_FRAMES, VaeDecoder, VaeSize

TINY = VaeSize(channels=4, multipliers=(1, 2, 2, 2), res_blocks=0, latent_channels=3, norm_groups=2)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def tiny(size: VaeSize = TINY) -> VaeDecoder:
    torch.manual_seed(0)
    return VaeDecoder(size)


def latent(frames: int) -> Tensor:
    return torch.randn(1, 3, frames, 2, 3, generator=torch.Generator().manual_seed(1))


def test_two_chunks_give_nine_and_eight_frames_and_the_same_caches() -> None:
    decoder = tiny()
    with torch.no_grad():
        first, caches = decoder(latent(5)[:, :, :3])
        second, again = decoder(latent(5)[:, :, 3:], caches)
        assert first.shape == (1, 3, 9, 16, 24) and second.shape == (1, 3, 8, 16, 24)
        assert torch.equal(torch.cat([first, second], dim=2), decoder.decode(latent(5)))
    assert len(caches) == len(again) == decoder.cache_count == 2 * 2 + 4 * 2 + 2
    assert [cache.shape for cache in caches] == [cache.shape for cache in again]
    assert {cache.shape[2] for cache in caches} == {CACHE_FRAMES}


def test_chunked_is_not_whole_because_norms_are_per_chunk() -> None:
    decoder = tiny()
    with torch.no_grad():
        assert not torch.allclose(decoder.decode(latent(5)), decoder(latent(5))[0], atol=1e-3)


def test_the_past_is_seen_and_the_future_is_not() -> None:
    decoder = tiny()
    changed = latent(5).clone()
    changed[:, :, 3:] += 1.0
    with torch.no_grad():
        before, caches = decoder(latent(5)[:, :, :3])
        assert torch.equal(before, decoder.decode(changed)[:, :, :9])
        other = [cache + 1.0 for cache in caches]
        seen, _ = decoder(latent(5)[:, :, 3:], other)
        assert not torch.allclose(seen, decoder(latent(5)[:, :, 3:], caches)[0])


def test_every_parameter_learns() -> None:
    decoder = tiny()
    decoder.decode(latent(5)).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in decoder.parameters())
