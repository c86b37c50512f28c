"""The network: words and the previous scene -> the requested scene."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from animegamer_pocket.world.scene import CHARACTERS, MOTIONS, OUTFITS, PLACES, SPOTS
from animegamer_rt.backends.interface import NOTES
from animegamer_rt.language.words import BUCKETS, MAX_WORDS

LEVELS = 5
SCENE_SIZES = (
    *(3 * len(OUTFITS) for _ in CHARACTERS),
    len(MOTIONS) + 1,
    LEVELS + 1,
    len(PLACES) + 1,
    3,
    len(SPOTS) + 1,
)
"""Number of values of each of a scene's ten numbers; the last value of the latter five is "no scene yet"."""

SCENE_NUMBERS = 2 * len(SCENE_SIZES) + len(CHARACTERS)
"""Of the input `scene`: the ten numbers, then 1 for each character that left last and has not returned, else 0, then
the ten numbers of the scene before, which "no, I said Dovan" and "wrong place" change."""

HEADS = {
    "people": (len(CHARACTERS), 3),
    "clothes": (len(CHARACTERS), len(OUTFITS)),
    "motion": (len(MOTIONS),),
    "level": (LEVELS,),
    "place": (len(PLACES),),
    "night": (2,),
    "position": (len(SPOTS),),
}
"""The outputs of the scene and their shapes, without the batch."""

WIDTH, LAYERS, ATTENTION_HEADS, MLP, PIECE_WIDTH = 192, 4, 6, 768, 96


class Block(nn.Module):
    """A transformer block, norms first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, MLP), nn.Linear(MLP, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x [B, T, D] -> [B, T, D]. mask: bool [B, 1, 1, T], True where a token is; None: all are."""
        batch, tokens, _ = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(batch, tokens, 3, ATTENTION_HEADS, WIDTH // ATTENTION_HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        # Unfused products are faster on a CPU at these lengths.
        scores = q @ k.transpose(-1, -2) * (WIDTH // ATTENTION_HEADS) ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e4)
        mixed = scores.softmax(-1).to(v.dtype) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))
        widened: Tensor = self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return x + widened


class Reader(nn.Module):
    """features int64 [B, W, GRAMS], scene int64 [B, SCENE_NUMBERS] -> the logits of `OUTPUTS`."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = nn.Embedding(BUCKETS, PIECE_WIDTH, padding_idx=0)
        nn.init.normal_(self.pieces.weight, std=0.1)
        with torch.no_grad():
            self.pieces.weight[0].zero_()
        self.word = nn.Sequential(
            nn.LayerNorm(PIECE_WIDTH), nn.Linear(PIECE_WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)
        )
        self.places = nn.Parameter(torch.randn(MAX_WORDS, WIDTH) * 0.02)
        self.scene = nn.ModuleList(nn.Embedding(size, WIDTH) for size in SCENE_SIZES)
        self.slots = nn.Parameter(torch.randn(len(SCENE_SIZES), WIDTH) * 0.02)
        self.left = nn.Parameter(torch.zeros(WIDTH))
        self.earlier = nn.ModuleList(nn.Embedding(size, WIDTH) for size in SCENE_SIZES)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        people = len(CHARACTERS)
        self.presence, self.clothes = nn.Linear(WIDTH, 3), nn.Linear(WIDTH, len(OUTFITS))
        tail = [HEADS[name][0] for name in ("motion", "level", "place", "night", "position")]
        self.tail = nn.ModuleList(nn.Linear(WIDTH, size) for size in tail)
        self.refused, self.notes = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, len(NOTES))
        self.unknown = nn.Linear(WIDTH, 1)
        self._people = people

    def forward(self, features: Tensor, scene: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
        """The logits in the order of `OUTPUTS`. mask: bool [B, W], True where a word is; None: all."""
        words = self.word(self._sum_of_pieces(features)) + self.places[: features.shape[1]]
        people = self._people
        now, left, earlier = scene.split((len(SCENE_SIZES), people, len(SCENE_SIZES)), 1)
        tables = zip(self.scene, self.earlier, strict=True)
        slots = [one(now[:, index]) + other(earlier[:, index]) for index, (one, other) in enumerate(tables)]
        state = torch.stack(slots, 1) + self.slots
        away = left[:, :, None].to(self.left.dtype) * self.left
        x = torch.cat([state[:, :people] + away, state[:, people:], words], 1)
        full = None
        if mask is not None:
            full = torch.cat([mask.new_ones(len(mask), len(SCENE_SIZES)), mask], 1)[:, None, None, :]
        for block in self.blocks:
            x = block(x, full)
        x = self.norm(x)
        heads = [self.presence(x[:, :people]), self.clothes(x[:, :people])]
        heads += [head(x[:, people + index]) for index, head in enumerate(self.tail)]
        refused, notes = self.refused(x[:, :people])[..., 0], self.notes(x[:, people])
        return (*heads, refused, notes, self.unknown(x[:, len(SCENE_SIZES) :])[..., 0])

    def _sum_of_pieces(self, features: Tensor) -> Tensor:
        if not self.training:
            summed: Tensor = self.pieces(features).sum(2)
            return summed
        bags: Tensor = nn.functional.embedding_bag(
            features.flatten(0, 1), self.pieces.weight, mode="sum", padding_idx=0
        )
        return bags.reshape(*features.shape[:2], PIECE_WIDTH)


OUTPUTS = (*HEADS, "refused", "notes", "unknown")
"""The heads, then `refused` [P], `notes` [NOTES] and `unknown` [W]."""
