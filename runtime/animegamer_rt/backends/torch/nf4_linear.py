"""Linear layers whose weight stays in NF4 on the device, multiplied by bitsandbytes: the predictor's.

A bundle's codes and scales already have bitsandbytes' layout. bitsandbytes is not a dependency of this backend: it is
imported when a bundle with such a layer is loaded. **No GPU has run it yet.**
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from animegamer_rt.errors import BackendError

INSTALL = "pip install 'bitsandbytes>=0.50'"


class Nf4Linear(nn.Module):
    """A linear layer without a bias: K inputs, N outputs, and one scale for each block of b weights of a row.

    codes: uint8 [N * K / 2], two weights a byte, row by row, the first in the high half. scales: float32 [N * K / b],
    the largest magnitude of each block.

    Raises BackendError where bitsandbytes is not installed, and ValueError where codes and scales do not form blocks.
    """

    codes: Tensor
    scales: Tensor
    levels: Tensor

    def __init__(self, codes: Tensor, scales: Tensor, outputs: int, inputs: int, block: int) -> None:
        super().__init__()
        try:
            library: Any = importlib.import_module("bitsandbytes")
        except ModuleNotFoundError as error:
            raise BackendError(
                "bitsandbytes, which multiplies nf4 weights, is not installed",
                do=f"run: {INSTALL}; or quantise with predictor=int4-qdq",
            ) from error
        self._library = library
        # bitsandbytes 0.50 multiplies wrongly on a CPU where a block spans two rows.
        if not block or inputs % block:
            raise ValueError(f"blocks of {block} in rows of {inputs}; quantise with a smaller --block")
        if (2 * codes.numel(), block * scales.numel()) != (outputs * inputs,) * 2:
            raise ValueError(f"{codes.numel()} bytes and {scales.numel()} scales for {outputs} x {inputs} weights")
        self.shape, self.block = (outputs, inputs), block
        self.register_buffer("codes", codes.flatten())
        self.register_buffer("scales", scales.flatten().float())
        self.register_buffer("levels", library.functional.get_4bit_type("nf4", device="cpu"), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N] in the dtype of x."""
        product: Tensor = self._library.matmul_4bit(x, self.codes[None], self._state(x.dtype))
        return product

    def weight(self, dtype: torch.dtype) -> Tensor:
        """The dequantised weight [N, K] in this dtype."""
        found: Tensor = self._library.functional.dequantize_4bit(self.codes[:, None], self._state(dtype))
        return found

    def _state(self, dtype: torch.dtype) -> Any:
        shape = torch.Size(self.shape)
        return self._library.functional.QuantState(self.scales, shape, self.levels, self.block, "nf4", dtype)
