"""Which weight of an ONNX file is which of a network: the exports' names and forms back to the state dict's.

Most initializers carry the names of the module that was exported. Folding takes the names of matrices that are only
read transposed and of the vae's group norms; those are told by the order in which the graph uses them, which is the
order in which the network does, and all of them must be there with their shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from animegamer_rt.errors import BackendError

from .onnx_reader import INT4, Weight, Weights
from .packed_linear import PackedLinear

ROUNDED = re.compile(r"\.(fp16|bf16)$")
TRANSPOSED = ".transposed"
TAPS = 3
"""A causal convolution looks at three frames; its export has a 2-D convolution for each (export: vae)."""

State = dict[str, Tensor | PackedLinear]
Send = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class _Found:
    """Weights by the state dict's names (or a form of them), and how the nameless are used."""

    path: str
    named: dict[str, Weight]
    nameless: tuple[tuple[str, Weight], ...]
    send: Send

    def take(self, name: str) -> Tensor:
        """A named weight, turned back if it was stored turned."""
        if name in self.named:
            return self.send(self.named.pop(name).tensor())
        return self.send(self.named.pop(name + TRANSPOSED).tensor()).t().contiguous()

    def has(self, name: str) -> bool:
        return name in self.named or name + TRANSPOSED in self.named


def load_predictor(network: nn.Module, weights: Weights, send: Send) -> None:
    """Fills a `models.Predictor` from predictor.onnx; `send` puts each weight where it is wanted.

    Matrices in 4 or 8 bits stay so: their layers become `PackedLinear`s.
    """
    found = _sorted(weights, lambda name: name.removeprefix("predictor."), network, send)
    state = _plain(found, network)
    _fill(state, _matrices(found), [name for name in network.state_dict() if name not in state], found)
    _load(network, state, weights)


def load_encoder(network: nn.Module, weights: Weights, send: Send) -> None:
    """Fills a `models.Encoder` from encoder.onnx."""
    found = _sorted(weights, lambda name: name, network, send)
    state = _plain(found, network)
    _fill(state, _matrices(found), [name for name in network.state_dict() if name not in state], found)
    _load(network, state, weights)


def load_denoiser(network: nn.Module, weights: Weights, send: Send) -> Tensor:
    """Fills a `models.Denoiser` from denoiser.onnx; returns the constant shot [226, D] of the unguided row."""

    def renamed(name: str) -> str:
        return re.sub(r"^blocks\.(\d+)\.block\.", r"blocks.\1.", name.removeprefix("denoiser."))

    found = _sorted(weights, renamed, network, send, extra=r"unconditional|blocks\.\d+\.(weights|biases)\.\d")
    state = _plain(found, network)
    unconditional = found.take("unconditional")[0]
    for name in network.state_dict():
        split = re.fullmatch(r"(blocks\.\d+)\.attention\.qkv\.(weight|bias)", name)
        if split:
            parts = "weights" if split[2] == "weight" else "biases"
            state[name] = torch.cat([found.take(f"{split[1]}.{parts}.{which}") for which in range(3)])
    _fill(state, _matrices(found), [name for name in network.state_dict() if name not in state], found)
    _load(network, state, weights)
    return unconditional


def load_vae(network: nn.Module, weights: Weights, send: Send) -> None:
    """Fills a `models.VaeDecoder` from vae_first.onnx, where frames are a batch of 2-D pictures."""

    def renamed(name: str) -> str:
        name = re.sub(r"^stages\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2.", name.removeprefix("decoder."))
        name = re.sub(r"^upsamples\.(\d+)\.", r"stages.\1.upsample.", name)
        return re.sub(r"(norm_in|norm_out)\.(weight|bias)$", r"\1.norm.\2", name)

    found = _sorted(weights, renamed, network, send, extra=r".*\.weights\.\d")
    state: State = {}
    for name, like in network.state_dict().items():
        if found.has(name):
            whole = found.take(name)
            # A norm's factors are stored by group, a stacked convolution's bias with two blocks of zeros.
            state[name] = whole.flatten()[: like.numel()] if like.ndim == 1 else whole.unsqueeze(2)
        elif found.has(stem := name.removesuffix("weight") + "weights.0"):
            state[name] = _convolution([found.take(stem)] + list(_rest(found, stem)), like.shape[0])
    for kind, operator in (("weight", "Mul"), ("bias", "Sub")):
        missing = [name for name in network.state_dict() if name not in state and name.endswith(f".norm.{kind}")]
        by_group = [weight for used, weight in found.nameless if used == operator and len(weight.shape) == 3]
        _fill(state, [send(weight.tensor()).flatten() for weight in by_group], missing, found)
    _load(network, state, weights)


def _rest(found: _Found, first: str) -> Iterator[Tensor]:
    for which in range(1, TAPS):
        if found.has(name := f"{first[:-1]}{which}"):
            yield found.take(name)


def _convolution(taps: list[Tensor], channels: int) -> Tensor:
    """Weight [out, in, 3, h, w] of a causal convolution, from three taps or from one stack of them."""
    if len(taps) == 1:
        taps = list(taps[0].split(channels))
    return torch.stack(taps, dim=2)


def _sorted(
    weights: Weights, renamed: Callable[[str], str], network: nn.Module, send: Send, extra: str = r"(?!)"
) -> _Found:
    """Tells the weights that have the network's names, or those of `extra`, from the nameless."""
    known = set(network.state_dict())
    names = {}
    for stored in weights.by_name:
        name = renamed(ROUNDED.sub("", stored))
        bare = name.removesuffix(TRANSPOSED)
        if bare in known or re.fullmatch(extra, bare):
            names[stored] = name
    nameless = [(use.operator, use.weight) for use in weights.uses if use.weight.is_float]
    return _Found(
        str(weights.path),
        {name: weights.by_name[stored] for stored, name in names.items()},
        tuple((operator, weight) for operator, weight in nameless if weight.name not in names),
        send,
    )


def _plain(found: _Found, network: nn.Module) -> State:
    return {name: found.take(name) for name in network.state_dict() if found.has(name)}


def _matrices(found: _Found) -> list[Tensor | PackedLinear]:
    """Nameless matrices in the order of use, turned back: a linear layer's is [out, in], a product's [in, out]."""
    matrices = (weight for operator, weight in found.nameless if operator == "MatMul" and len(weight.shape) == 2)
    return [_packed(weight, found) or found.send(weight.tensor()).t().contiguous() for weight in matrices]


def _packed(weight: Weight, found: _Found) -> PackedLinear | None:
    """The layer of a matrix [in, out] that is stored in 4 or 8 bits; None of any other."""
    if weight.scales is None:
        return None
    scales = weight.scales.tensor()
    # Of blocks of inputs, or one an output.
    by_output = scales.t() if scales.ndim == 2 and weight.axis == 0 else scales[:, None]
    try:
        layer = PackedLinear.pack(weight.tensor().t(), by_output, weight.dtype == INT4)
    except (ValueError, IndexError) as error:
        raise BackendError(
            f"the scales of {weight.name} are not those that export writes", where=found.path, found=str(error)
        ) from error
    layer.codes, layer.scales = found.send(layer.codes), found.send(layer.scales)
    return layer


def _fill(state: State, nameless: Sequence[Tensor | PackedLinear], missing: list[str], found: _Found) -> None:
    """The nameless in the place of the missing, both in order."""
    if len(nameless) != len(missing):
        raise BackendError(
            "the part's graph is not one that export writes",
            where=found.path,
            found=f"{len(nameless)} weights without a name",
            expected=f"{len(missing)}: {', '.join(missing[:3])} ..",
            do="build the bundle again with this version",
        )
    state.update(zip(missing, nameless, strict=True))


def _load(network: nn.Module, state: Mapping[str, Tensor | PackedLinear], weights: Weights) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    wrong = {name: shape for name, shape in expected.items() if name not in state or tuple(state[name].shape) != shape}
    if wrong:
        name, shape = next(iter(wrong.items()))
        raise BackendError(
            f"the part's weights are not the network's: {name} and {len(wrong) - 1} more",
            where=weights.path,
            found=tuple(state[name].shape) if name in state else "nothing",
            expected=shape,
            do="build the bundle again with this version",
        )
    whole = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    for name, layer in state.items():
        if isinstance(layer, PackedLinear):
            place = name.removesuffix(".weight")
            network.set_submodule(place, layer)
            whole |= layer.state_dict(prefix=f"{place}.")
    network.load_state_dict(whole, assign=True)
