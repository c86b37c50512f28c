"""Memory of the PyTorch backend at full size, counted on tensors without data, against docs/TORCH.md.

Nothing is measured: workspaces of libraries and the driver are not counted.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.gpu.parts import pack
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from animegamer_export.build.sizes import FULL
from animegamer_export.parts.predictor import example_prompt
from animegamer_rt.backends.torch import vae_decoder
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.kernels import Kernels
from animegamer_rt.backends.torch.loader import EngineSetup, build_engines
from animegamer_rt.backends.torch.networks import Models
from animegamer_rt.backends.torch.rowwise_linear import FP8, INT8, RowwiseLinear
from animegamer_rt.bundle.denoise_plan import build_plan
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.noise_schedule import even_timesteps
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.models.tiny_decoder import TinyDecoder, TinyDecoderSize
from animegamer_rt.models.vae import VaeDecoder
from animegamer_rt.profiling import gpu_memory
from animegamer_rt.stages.predictor import prefill_prompt

ROOT = Path(__file__).resolve().parents[3]
GIB = 2**30
DRIVER_AND_LIBRARIES = gpu_memory.LIBRARIES_BYTES
WINDOW = 4096
"""Tokens of the predictor's history window in a bundle that does not say another."""
HISTORY_TURNS, WORDS = 4, 36
"""A bundle's longest history unless it says another, and 266 tokens a turn."""
SMALL, ROUNDED_TO, PAGE = 2**20, 512, 20 * 2**20
"""Bytes: what PyTorch's allocator cuts from blocks of 2 MiB of its own, what it rounds up to, and the pages in which it
returns larger blocks to the GPU."""
PLAN = build_plan(even_timesteps(50))
TURBO = build_plan([999, 319, 19], guidance=[1.0] * 3, branches=["conditional"] * 3, noise_steps=50)


class Block:
    """One block of memory, cut as PyTorch's caching allocator does: the smallest hole that is large enough, from its
    beginning; holes that touch become one (c10/cuda/CUDACachingAllocator.cpp). `over`: bytes that found no hole."""

    def __init__(self, size: int) -> None:
        self.over, self._holes, self._taken = 0, {0: size}, dict[int, tuple[int, int]]()

    def take(self, name: int, size: int) -> None:
        size = -(-size // ROUNDED_TO) * ROUNDED_TO
        fitting = [(hole, start) for start, hole in self._holes.items() if hole >= size]
        if not fitting:
            self.over += size
            return
        hole, start = min(fitting)
        del self._holes[start]
        if hole > size:
            self._holes[start + size] = hole - size
        self._taken[name] = start, size

    def give(self, name: int) -> None:
        start, size = self._taken.pop(name, (0, 0))
        size += self._holes.pop(start + size, 0) if size else 0
        before = [at for at, hole in self._holes.items() if size and at + hole == start]
        for at in before:
            start, size = at, self._holes[at] + size
        if size:
            self._holes[start] = size

    @property
    def fragments(self) -> int:
        """Bytes between what is taken that cannot be returned to the GPU: they share a page with something."""
        pages = {page for at, size in self._taken.values() for page in range(at // PAGE, (at + size - 1) // PAGE + 1)}
        return len(pages) * PAGE - sum(size for _, size in self._taken.values())


class Counted(TorchDispatchMode):
    """Bytes of all storages made inside that are alive, and the most that ever were. `block`: new ones are cut from it,
    at first from the whole card."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.block = Block(2**50)
        self._seen: dict[int, tuple[int, Block]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note((args, kwargs), made_here=False)
        out = func(*args, **(kwargs or {}))
        self._note(out, made_here=True)
        return out

    def _note(self, tensors: Any, made_here: bool) -> None:
        for tensor in (leaf for leaf in tree_leaves(tensors) if isinstance(leaf, Tensor)):
            storage = tensor.untyped_storage()
            if storage._cdata not in self._seen:
                size = storage.nbytes() if made_here else 0
                self._seen[storage._cdata] = size, self.block
                self.live += size
                self.peak = max(self.peak, self.live)
                if size > SMALL:
                    self.block.take(storage._cdata, size)
                weakref.finalize(storage, self._gone, storage._cdata)

    def _gone(self, which: int) -> None:
        size, block = self._seen.pop(which, (0, self.block))
        self.live -= size
        block.give(which)


class CountedDevice(TorchDevice):
    """A card of so many bytes, whose tensors have no numbers; it records what is reserved and pinned."""

    def __init__(self, card: float, counted: Counted) -> None:
        super().__init__(torch.bfloat16)
        self.card, self.counted, self.host, self.block = card, counted, 0, 0
        self.pins = set[int]()

    def free_bytes(self) -> float:
        return self.card - DRIVER_AND_LIBRARIES - (self.counted.live - self.host)

    def reserve(self, size: int) -> None:
        self.block = max(self.block, size)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        self.host += math.prod(shape) * dtype.itemsize
        card, self.counted.block = self.counted.block, Block(0)
        pinned = super().pinned(shape, dtype)
        self.counted.block = card
        self.pins.add(pinned.untyped_storage()._cdata)
        return pinned

    def defragment(self, network: nn.Module) -> None:
        weights = (*network.parameters(), *network.buffers())
        there = [weight for weight in weights if weight.untyped_storage()._cdata not in self.pins]
        on_host = [(weight.shape, weight.dtype) for weight in there]
        for weight in there:
            weight.data = torch.empty(0, dtype=weight.dtype)
        for weight, (shape, dtype) in zip(there, on_host, strict=True):
            weight.data = torch.empty(shape, dtype=dtype)

    def to_host(self, tensor: Tensor) -> Any:
        return SimpleNamespace(numpy=lambda: np.zeros(tensor.shape, np.float32))


def channels_last(x: Tensor, weight: Tensor, bias: Tensor, padding: Any) -> Tensor:
    """A convolution's result in the layout of what it was given, as cuDNN makes it; the CPU's would be turned back."""
    frames = (x.shape[2] - 2,) if x.ndim == 5 else ()
    made = x.new_empty((len(x), *frames, *x.shape[-2:], len(weight)))
    return made.movedim(-1, 1)


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes that a turn at full size holds. host: in pinned memory; over: what did not fit into the block.

    fragments: holes between what is kept.
    """

    description: str
    weights: dict[str, int]
    kept: int
    fragments: int
    host: int
    block: int
    over: int
    running: dict[str, int]

    @property
    def together(self) -> int:
        """A prompt may be read while the denoiser or the vae runs."""
        return self.kept + self.running["predictor"] + self.block


def read(network: nn.Module) -> nn.Module:
    """A network without memory, with tensors as a bundle's file stores them."""
    for module in network.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(torch.empty(weight.shape, dtype=torch.bfloat16), requires_grad=False))
        for name, codes in list(module.named_buffers(recurse=False)):
            module.register_buffer(name, torch.empty(codes.shape, dtype=codes.dtype))
    return network


RUN: dict[tuple[object, ...], tuple[int, int]] = {}
"""Part and all that its memory depends on -> the most that it took, and what did not fit into the block: each is run
once, whatever card comes first."""


def held(card: float, products: torch.dtype | None, light: bool, kernels: bool) -> Held:
    """A predictor in 4 bits, a denoiser with these products and the vae, opened on such a card for a turn.

    light: with the tiny decoder and three unguided steps, the plan `turbo`. kernels: with ours.
    """
    plan = TURBO if light else PLAN
    running, over = {}, 0
    with FakeTensorMode(allow_non_fake_inputs=True), Counted() as counted:
        torch_device = CountedDevice(card, counted)
        ours = Kernels("none is called") if kernels else None
        setup = EngineSetup(torch_device, FULL.geometry(WINDOW), [plan], rowwise=products, kernels=ours)
        with torch.device("meta"):
            denoiser, predictor = Denoiser(FULL.denoiser), Predictor(FULL.predictor)
            decoder = TinyDecoder(TinyDecoderSize()) if light else VaeDecoder(FULL.vae)
            pack(predictor)
        by_name = {"denoiser": denoiser, "predictor": predictor, "vae": decoder}  # in the order of `load_models`
        for network in by_name.values():
            setup.convert(read(network))
        constant = torch.empty(FULL.denoiser.shot_tokens, FULL.denoiser.hidden, dtype=torch.bfloat16)
        parts = build_engines(setup, Models(predictor, denoiser, decoder, constant))
        kept, host, fragments = counted.live - torch_device.host, torch_device.host, counted.block.fragments

        def prompt() -> None:
            prefill_prompt(parts.predictor, example_prompt(predictor, HISTORY_TURNS, WORDS))

        def denoise() -> None:
            latent = np.zeros((1, 5, 16, 60, 90), np.float32)
            denoising = parts.denoiser.start(latent, np.zeros(constant.shape, np.float32), 10.0)
            denoising.step(plan.coefficients()[0], float(plan.steps[0].timestep), plan.steps[0].rows, latent)
            denoising.latent()

        def paint() -> None:
            latent = np.zeros((1, 3, 16, 60, 90), np.float32)
            _, caches = parts.vae.first(latent, (0, 1, 2), False)
            parts.vae.next(latent[:, :2], caches, (0, 1, 2), False)

        for name, work, depends in (
            ("predictor", prompt, ["embeddings" in parts.device]),
            ("denoiser", denoise, [products, light, torch_device.block]),
            ("vae", paint, [parts.device.partition("vae in slices")[1:], light, torch_device.block]),
        ):
            if (key := (name, *depends)) not in RUN:
                counted.peak, before, counted.block = counted.live, counted.live, Block(torch_device.block)
                work()
                RUN[key] = counted.peak - before, counted.block.over if name != "predictor" else 0
            running[name], too_much = RUN[key]
            over += too_much
        weights = {
            name: sum(weight.nbytes for weight in (*network.parameters(), *network.buffers()))
            for name, network in by_name.items()
        }
    return Held(parts.device, weights, kept, fragments, host, torch_device.block, over, running)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU's libraries make of tensors and the CPU's do not."""
    plain, by_int8 = torch.nn.functional, RowwiseLinear.product

    def product(layer: RowwiseLinear, rows: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
        if layer.dtype == INT8:
            return by_int8(layer, rows, scale, dtype)
        return rows.new_empty((len(rows), len(layer.weight)), dtype=dtype)

    stand_ins = SimpleNamespace(conv2d=channels_last, conv3d=channels_last, silu=plain.silu, linear=plain.linear)
    monkeypatch.setattr(vae_decoder, "functional", stand_ins)
    monkeypatch.setattr(RowwiseLinear, "product", product)
    monkeypatch.setattr(RowwiseLinear, "sums", lambda layer, rows: torch._int_mm(rows, layer.weight.t()))
    monkeypatch.setattr(nn.Linear, "reset_parameters", lambda layer: None)  # numbers that nobody sees take most time


IN_SLICES = ", vae in slices"
ON_HOST = f"{IN_SLICES}, its caches in host memory"
MODULATIONS = ", modulation weights and embeddings in host memory"
CARDS = [
    (8, "fp8", FP8, True, MODULATIONS),
    (12, "int8", INT8, False, ON_HOST),
    (12, "fp8", FP8, False, ON_HOST),
    (16, "fp8", FP8, False, IN_SLICES),
    (24, "bf16", None, False, ""),
]
CARD_NAMES = [f"{gb}-gb-{name}" for gb, name, *_ in CARDS]


@pytest.mark.parametrize(("gb", "name", "products", "light", "words"), CARDS, ids=CARD_NAMES)
def test_card_holds_a_turn_at_full_size_as_the_table_says(
    gb: int, name: str, products: torch.dtype | None, light: bool, words: str, as_on_a_gpu: None, full: Bundle
) -> None:
    """With the vae and CFG pairs: every plan. With the light decoder, single rows and our kernels: `turbo`."""
    turn = held(gb * 1e9, products, light, kernels=light)
    assert turn.description.partition(" threads")[2] == words
    assert turn.over == 0, "graphs would take more than the block that is reserved for them"
    assert turn.together + turn.fragments <= gb * 1e9 - DRIVER_AND_LIBRARIES
    said = gpu_memory.with_torch(full, "turbo" if light else "exact", name, gb * 1e9)
    assert said.peak_bytes == pytest.approx(turn.together + DRIVER_AND_LIBRARIES, rel=0.05)
    assert said.kept == pytest.approx(turn.kept, rel=0.02)
    assert said.prompt == pytest.approx(turn.running["predictor"], rel=0.25)
    parts = [("predictor", "in `int4-qdq`"), ("denoiser", f"in `{name}`"), ("vae", "in slices" if words else "whole")]
    sizes = {part: f"{turn.weights[part] / GIB:.1f} | {turn.running[part] / GIB:.1f}" for part, _ in parts}
    rows = [f"| {part} {how} | {sizes[part]} |" for part, how in parts if not light]
    card = turn.kept, turn.running["predictor"], turn.block, turn.together, turn.host
    named = f"`{name}`, `turbo`" if light else f"`{name}`"
    rows.append(f"| {gb} GB | {named} | " + " | ".join(f"{size / GIB:.1f}" for size in card) + " |")
    table = (ROOT / "docs" / "TORCH.md").read_text()
    assert [row for row in rows if row not in table] == []
