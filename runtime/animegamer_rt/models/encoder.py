"""The encoder: projects motion text features and image features to a shot, the denoiser's condition.

Source: MODEL.md section 1 (Encoder E_a).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

NORM_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class EncoderSize:
    """Sizes of the encoder; the full-size model's are 4096 (T5-XXL), 768 (ViT-B/16), 1920."""

    text_width: int
    image_width: int
    hidden: int
    text_tokens: int = 30
    image_tokens: int = 196


def projection(in_width: int, hidden: int) -> nn.Sequential:
    """Linear, erf GELU, Linear, from a tower's width to the shot's."""
    return nn.Sequential(nn.Linear(in_width, hidden), nn.GELU(), nn.Linear(hidden, hidden))


class Encoder(nn.Module):
    """Projects and normalises each modality; text tokens come first, then image tokens."""

    def __init__(self, size: EncoderSize) -> None:
        super().__init__()
        self.size = size
        self.text_projection = projection(size.text_width, size.hidden)
        self.image_projection = projection(size.image_width, size.hidden)
        self.text_norm = nn.LayerNorm(size.hidden, eps=NORM_EPSILON)
        self.image_norm = nn.LayerNorm(size.hidden, eps=NORM_EPSILON)

    def forward(self, text_features: Tensor, image_features: Tensor) -> Tensor:
        """text_features [B, 30, text_width], image_features [B, 196, image_width] -> shot [B, 226, D]."""
        text = self.text_norm(self.text_projection(text_features))
        image = self.image_norm(self.image_projection(image_features))
        return torch.cat([text, image], dim=1)

    def unconditional(self) -> Tensor:
        """The shot [226, D] of all-zero features: the constant condition of the unconditional row."""
        zeros, size = self.text_norm.weight.new_zeros, self.size
        # All tokens of one kind are equal, but computing each gives the same bits as a whole batch.
        shot = self(zeros(1, size.text_tokens, size.text_width), zeros(1, size.image_tokens, size.image_width))
        constant: Tensor = shot[0]
        return constant
