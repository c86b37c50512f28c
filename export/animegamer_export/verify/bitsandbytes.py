"""Measures the predictor in torch with bitsandbytes' layers, on the CPU, against the same network in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from bitsandbytes.nn.modules import Linear4bit, Linear8bitLt
from torch import nn

from animegamer_export.evaluate.metrics import relative_error
from animegamer_export.quantize.exclusions import fp16_exclusions
from animegamer_export.verify.bundles import SampleCounts, predictor_figures
from animegamer_rt.backends.registry import open_engines
from animegamer_rt.backends.torch.predictor import Predictor
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.roles import PREDICTOR
from animegamer_rt.engine_config import EngineConfig
from animegamer_rt.pipeline import Pipeline

OUTLIER = 6.0
"""Inputs with a larger magnitude are multiplied at 16 bits: LLM.int8()'s threshold (Dettmers et al. 2022)."""


def _int8(inputs: int, outputs: int, bias: bool) -> nn.Module:
    return Linear8bitLt(inputs, outputs, bias, has_fp16_weights=False, threshold=OUTLIER)


def _nf4(inputs: int, outputs: int, bias: bool) -> nn.Module:
    return Linear4bit(inputs, outputs, bias, torch.float32, quant_type="nf4")  # type: ignore[no-untyped-call]


LAYERS: Mapping[str, Callable[[int, int, bool], nn.Module]] = {"Linear8bitLt": _int8, "Linear4bit, nf4": _nf4}


def rows(bundle: Bundle, instructions: int) -> Iterator[dict[str, Any]]:
    """One row for each kind of layer: errors of weights and shot, and how many strengths are equal."""
    true = Pipeline.open(bundle, open_engines(bundle, EngineConfig("torch-cpu")))
    for name, layer in LAYERS.items():
        engines = open_engines(bundle, EngineConfig("torch-cpu"))
        errors = replace_linears(cast(Predictor, engines.predictor).network, layer)
        tried = replace(true, predictor=Pipeline.open(bundle, engines).predictor)
        figures = predictor_figures(tried, true, SampleCounts(instructions))
        yield {"precision": name, "weight_error": float(np.mean(errors)), "layers": len(errors), **figures}


@torch.no_grad()
def replace_linears(network: nn.Module, layer: Callable[[int, int, bool], nn.Module]) -> list[float]:
    """Replaces each Linear that our schemes quantise; returns the relative error of each weight."""
    errors, keeps = [], fp16_exclusions(PREDICTOR)
    for name, old in list(network.named_modules()):
        if not isinstance(old, nn.Linear) or keeps(f"{name}."):
            continue
        new = layer(old.in_features, old.out_features, old.bias is not None)
        new.load_state_dict(old.state_dict())
        new.to("cpu")  # where bitsandbytes makes its codes
        owner, _, own = name.rpartition(".")
        setattr(network.get_submodule(owner), own, new)
        zero = 0 if old.bias is None else old.bias
        weight = (new(torch.eye(old.in_features)) - zero).T
        errors.append(relative_error(weight.numpy(), old.weight.numpy()))
    return errors
