"""Maps the weights of an ONNX file to the parameters of a network: names and layouts of the state dict.

Most initializers keep the parameter's name. Constant folding drops the names of matrices that are only read transposed
and of the vae's group norms. Those are assigned in the graph's order of use, which is the network's; their number and
every shape must match.
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
"""Frames that a causal convolution reads; export writes one 2-D convolution for each."""

State = dict[str, Tensor | PackedLinear]
ToDevice = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class _StoredWeights:
    """Weights by the state dict's names, and (operator, weight) of those without a name in order of use."""

    path: str
    named: dict[str, Weight]
    unnamed: tuple[tuple[str, Weight], ...]
    to_device: ToDevice

    def take(self, name: str) -> Tensor:
        """Removes and returns a named weight, transposed back if it is stored transposed."""
        if name in self.named:
            return self.to_device(self.named.pop(name).tensor())
        return self.to_device(self.named.pop(name + TRANSPOSED).tensor()).t().contiguous()

    def has(self, name: str) -> bool:
        return name in self.named or name + TRANSPOSED in self.named


def load_predictor(network: nn.Module, weights: Weights, to_device: ToDevice) -> None:
    """Fills a `models.predictor.Predictor` from predictor.onnx; `to_device` moves each weight to the device.

    Layers with 4-bit or 8-bit weights become PackedLinear. Raises BackendError, as the other loaders, for weights that
    are not this network's.
    """
    found = _by_name(weights, lambda name: name.removeprefix("predictor."), network, to_device)
    state = _take_named(found, network)
    _fill(state, _matrices(found), [name for name in network.state_dict() if name not in state], found)
    _load(network, state, weights)


def load_encoder(network: nn.Module, weights: Weights, to_device: ToDevice) -> None:
    """Fills a `models.encoder.Encoder` from encoder.onnx."""
    found = _by_name(weights, lambda name: name, network, to_device)
    state = _take_named(found, network)
    _fill(state, _matrices(found), [name for name in network.state_dict() if name not in state], found)
    _load(network, state, weights)


def load_denoiser(network: nn.Module, weights: Weights, to_device: ToDevice) -> Tensor:
    """Fills a `models.denoiser.Denoiser` from denoiser.onnx; returns the unconditional shot [226, D]."""

    def renamed(name: str) -> str:
        return re.sub(r"^blocks\.(\d+)\.block\.", r"blocks.\1.", name.removeprefix("denoiser."))

    found = _by_name(weights, renamed, network, to_device, extra=r"unconditional|blocks\.\d+\.(weights|biases)\.\d")
    state = _take_named(found, network)
    unconditional = found.take("unconditional")[0]
    for name in network.state_dict():
        split = re.fullmatch(r"(blocks\.\d+)\.attention\.qkv\.(weight|bias)", name)
        if split:
            parts = "weights" if split[2] == "weight" else "biases"
            state[name] = torch.cat([found.take(f"{split[1]}.{parts}.{which}") for which in range(3)])
    _fill(state, _matrices(found), [name for name in network.state_dict() if name not in state], found)
    _load(network, state, weights)
    return unconditional


def load_light_decoder(network: nn.Module, weights: Weights, to_device: ToDevice) -> None:
    """Fills a `models.light_decoder.LightDecoder`, or a `TinyDecoder`, from vae_light_first.onnx."""
    found = _by_name(weights, lambda name: name.removeprefix("decoder."), network, to_device)
    _load(network, _take_named(found, network), weights)


def load_vae(network: nn.Module, weights: Weights, to_device: ToDevice) -> None:
    """Fills a `models.vae.VaeDecoder` from vae_first.onnx, where frames are a batch of 2-D images."""

    def renamed(name: str) -> str:
        name = re.sub(r"^stages\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2.", name.removeprefix("decoder."))
        name = re.sub(r"^upsamples\.(\d+)\.", r"stages.\1.upsample.", name)
        return re.sub(r"(norm_in|norm_out)\.(weight|bias)$", r"\1.norm.\2", name)

    found = _by_name(weights, renamed, network, to_device, extra=r".*\.weights\.\d")
    state: State = {}
    for name, like in network.state_dict().items():
        if found.has(name):
            whole = found.take(name)
            # A norm's factors are stored by group; a stacked convolution's bias has two blocks of zeros behind it.
            state[name] = whole.flatten()[: like.numel()] if like.ndim == 1 else whole.unsqueeze(2)
        elif found.has(stem := name.removesuffix("weight") + "weights.0"):
            state[name] = _convolution([found.take(stem)] + list(_rest(found, stem)), like.shape[0])
    for kind, operator in (("weight", "Mul"), ("bias", "Sub")):
        missing = [name for name in network.state_dict() if name not in state and name.endswith(f".norm.{kind}")]
        by_group = [weight for used, weight in found.unnamed if used == operator and len(weight.shape) == 3]
        _fill(state, [to_device(weight.tensor()).flatten() for weight in by_group], missing, found)
    _load(network, state, weights)


def _rest(found: _StoredWeights, first: str) -> Iterator[Tensor]:
    for which in range(1, TAPS):
        if found.has(name := f"{first[:-1]}{which}"):
            yield found.take(name)


def _convolution(taps: list[Tensor], channels: int) -> Tensor:
    """The weight [out, in, 3, h, w] of a causal convolution, from its three taps or from one stack of them."""
    if len(taps) == 1:
        taps = list(taps[0].split(channels))
    return torch.stack(taps, dim=2)


def _by_name(
    weights: Weights, renamed: Callable[[str], str], network: nn.Module, to_device: ToDevice, extra: str = r"(?!)"
) -> _StoredWeights:
    """Separates the weights with the network's names, or names that match `extra`, from those without."""
    known = set(network.state_dict())
    names = {}
    for stored in weights.by_name:
        name = renamed(ROUNDED.sub("", stored))
        bare = name.removesuffix(TRANSPOSED)
        if bare in known or re.fullmatch(extra, bare):
            names[stored] = name
    unnamed = [(use.operator, use.weight) for use in weights.uses if use.weight.is_float]
    return _StoredWeights(
        str(weights.path),
        {name: weights.by_name[stored] for stored, name in names.items()},
        tuple((operator, weight) for operator, weight in unnamed if weight.name not in names),
        to_device,
    )


def _take_named(found: _StoredWeights, network: nn.Module) -> State:
    return {name: found.take(name) for name in network.state_dict() if found.has(name)}


def _matrices(found: _StoredWeights) -> list[Tensor | PackedLinear]:
    """The unnamed matrices in order of use, transposed from MatMul's [in, out] to a linear layer's [out, in]."""
    matrices = (weight for operator, weight in found.unnamed if operator == "MatMul" and len(weight.shape) == 2)
    return [_packed(weight, found) or found.to_device(weight.tensor()).t().contiguous() for weight in matrices]


def _packed(weight: Weight, found: _StoredWeights) -> PackedLinear | None:
    """The layer of a matrix [in, out] that is stored in 4 or 8 bits; None for any other."""
    if weight.scales is None:
        return None
    scales = weight.scales.tensor()
    try:
        # One scale for each block of inputs, or one for each output.
        by_output = scales.t() if scales.ndim == 2 and weight.axis == 0 else scales[:, None]
        layer = PackedLinear.pack(weight.tensor().t(), by_output, weight.dtype == INT4)
    except (ValueError, IndexError) as error:
        raise BackendError(
            f"the scales of {weight.name} do not fit its codes", where=found.path, found=str(error)
        ) from error
    for name, buffer in list(layer.named_buffers()):
        setattr(layer, name, found.to_device(buffer))
    return layer


def _fill(state: State, unnamed: Sequence[Tensor | PackedLinear], missing: list[str], found: _StoredWeights) -> None:
    """Assigns the unnamed weights to the missing parameters, both in order."""
    if len(unnamed) != len(missing):
        raise BackendError(
            "the graph was not written by this version of export",
            where=found.path,
            found=f"{len(unnamed)} weights without a name",
            expected=f"{len(missing)}: {', '.join(missing[:3])} ..",
            do="build the bundle again with this version",
        )
    state.update(zip(missing, unnamed, strict=True))


def _load(network: nn.Module, state: Mapping[str, Tensor | PackedLinear], weights: Weights) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    wrong = {name: shape for name, shape in expected.items() if name not in state or tuple(state[name].shape) != shape}
    if wrong:
        name, shape = next(iter(wrong.items()))
        raise BackendError(
            f"the weights do not fit the network: {name} and {len(wrong) - 1} more",
            where=weights.path,
            found=tuple(state[name].shape) if name in state else "nothing",
            expected=shape,
            do="build the bundle again with this version",
        )
    whole = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    for name, layer in state.items():
        if isinstance(layer, PackedLinear):
            module = name.removesuffix(".weight")
            network.set_submodule(module, layer)
            whole |= layer.state_dict(prefix=f"{module}.")
    network.load_state_dict(whole, assign=True)
