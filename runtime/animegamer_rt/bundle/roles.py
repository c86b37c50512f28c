"""Names of roles, parts and graphs: which part of a bundle plays which role of a turn.

A role is a task in a turn. A part is one network of a bundle that performs it; by default it has the role's name, and a
plan may name another part for the roles of CHOICES. A graph is one ONNX file of a part, and one record of the
manifest's `parts`: the vae has two, for a clip's first and second chunk. No other module spells these names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

PREDICTOR, DENOISER, VAE, ENCODER = "predictor", "denoiser", "vae", "encoder"
TEXT_TOWER, IMAGE_TOWER, READER, PICTURE_READER = "text_tower", "image_tower", "reader", "picture_reader"
PLAY_ROLES = (PREDICTOR, DENOISER, VAE)
"""The roles of every turn."""
ROLES = (*PLAY_ROLES, ENCODER, TEXT_TOWER, IMAGE_TOWER, READER, PICTURE_READER)
CHOICES = (DENOISER, VAE)
"""The roles for which a plan may name a part. The predictor's shots belong to the session, whatever the plan."""
PICTURE_ROLES = (TEXT_TOWER, IMAGE_TOWER, ENCODER)
"""The roles that turn a picture into a shot, for a game that starts from one."""
DECODER, LIGHT_DECODER, TINY_DECODER = "decoder", "light_decoder", "tiny_decoder"
"""Kinds of network of a vae."""
NETWORKS: Mapping[str, str] = MappingProxyType(
    {PREDICTOR: PREDICTOR, DENOISER: DENOISER, VAE: DECODER, ENCODER: ENCODER}
)
"""Role -> kind of network of its default part."""
CACHE_PREFIX = "cache_"
"""Prefix of the names of the tensors that a graph passes to the next run: the vae's to its second chunk, the
predictor's keys and values."""
_CHUNKS: Mapping[str, tuple[str, ...]] = MappingProxyType({VAE: ("first", "next")})


def graph_names(role: str, part: str = "") -> tuple[str, ...]:
    """The graphs of a part (default: the role's own), in the order in which a turn runs them."""
    part = part or role
    return tuple(f"{part}_{chunk}" for chunk in _CHUNKS[role]) if role in _CHUNKS else (part,)


PLAY_GRAPHS = tuple(graph for role in PLAY_ROLES for graph in graph_names(role))
"""The graphs of the default parts of every turn."""


@dataclass(frozen=True, slots=True)
class PlanParts:
    """The part that plays each role of a plan."""

    predictor: str = PREDICTOR
    denoiser: str = DENOISER
    vae: str = VAE
    encoder: str = ENCODER

    def __getitem__(self, role: str) -> str:
        """The part of a role, which is its own name for the roles without a choice."""
        return str(getattr(self, role, role))

    def graphs(self, role: str) -> tuple[str, ...]:
        """The graphs of the part that plays a role."""
        return graph_names(role, self[role])

    def __str__(self) -> str:
        return ", ".join(f"{role} {self[role]}" for role in CHOICES)

    def own(self) -> Iterator[tuple[str, str]]:
        """(role, part) of the parts that are not the default ones."""
        yield from ((role, self[role]) for role in CHOICES if self[role] != role)


DEFAULT_PARTS = PlanParts()
