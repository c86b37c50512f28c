"""Parity of the predictor: both read-outs, both ways to treat the history, and greedy decoding.

The runtime never decodes freely; the fixtures do, because their random weights follow no template.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from animegamer_export.checkpoints.added_tokens import added_tokens
from animegamer_export.checkpoints.files import open_tensors
from animegamer_export.checkpoints.predictor import predictor_weight_map
from animegamer_export.checkpoints.weight_map import LowRankScale, WeightMap
from animegamer_export.parity.checks import PREDICTOR, PREDICTOR_MERGED, SCHEDULE, Check, compare, count_differences
from animegamer_export.parity.fixtures import FixtureFolder, FixtureSet
from animegamer_export.parts.predictor import Answer, empty_cache, read, read_prompt
from animegamer_export.parts.streamed.parts import with_weights
from animegamer_rt.backends.interface import TokenBatch
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.predictor import Predictor, PredictorSize
from animegamer_rt.stages.prompt import Prompt, build_readouts

# Added tokens follow the 32000 pieces (MODEL.md section 2); a fixture's vocabulary is reduced to the ids in use.
ORIGINAL_IDS = {token: 32000 + number for number, token in enumerate(added_tokens())}


class LowRankLinear(nn.Module):
    """A linear layer with separate LoRA factors, as in the recordings."""

    def __init__(self, weight: Tensor, down: Tensor, up: Tensor, scale: float) -> None:
        super().__init__()
        self.weight, self.down, self.up, self.scale = weight, down, up, scale

    def forward(self, x: Tensor) -> Tensor:
        """[.., in] -> [.., out]."""
        linear = nn.functional.linear
        return linear(x, self.weight) + linear(linear(x, self.down), self.up) * self.scale


def predictor_size(weights: FixtureSet) -> PredictorSize:
    """Sizes of the predictor from a weight set's config."""
    size = weights.config
    return PredictorSize(
        hidden=size["hidden"],
        layers=size["layers"],
        heads=size["heads"],
        kv_heads=size["kv"],
        mlp=size["inter"],
        vocabulary=size["vocab"],
        shot_width=size["rep"],
        rms_eps=float(size["rms_norm_eps"]),
        rope_theta=float(size["rope_theta"]),
        sliding_window=size["sliding_window"],
        shot_tokens=size["num_queries"],
    )


def predictors(folder: FixtureFolder, fixture: FixtureSet) -> dict[str, Predictor]:
    """The predictor with separate LoRA factors, and with merged ones as at runtime."""
    weights = folder.parent(fixture, "mllm_weights")
    made = {}
    for kind in ("factors apart", "factors merged"):
        with torch.device("meta"):
            predictor = Predictor(predictor_size(weights))
        weight_map = predictor_weight_map(
            open_tensors(weights.tensors, weights.where), predictor, LowRankScale(float(weights.config["alpha"]))
        )
        made[kind] = with_weights(predictor, weight_map, dtype=folder.dtype)
        if kind == "factors apart":
            _separate_low_rank(predictor, weight_map)
    return made


def _separate_low_rank(predictor: Predictor, weight_map: WeightMap) -> None:
    """Replaces every merged linear layer by its weight and its factors."""
    for name in weight_map.sources:
        for down, up, scale in weight_map.low_rank(name):
            parent, _, attribute = name.removesuffix(".weight").rpartition(".")
            layer = LowRankLinear(weight_map.weight(name), down, up, scale)
            setattr(predictor.get_submodule(parent), attribute, layer)


class FrameTokenScores:
    """The reference's logits processor, whose effect the recorded logits contain.

    After `<frame>` or one of its first 100 frame tokens the next of them is forced; otherwise all of them and
    `</frame>` score exactly 0.
    """

    def __init__(self, weights: FixtureSet, fixture: FixtureSet) -> None:
        stated = re.search(r"num_vid_gen_tokens=(\d+)", fixture.description["description"])
        count = int(stated.group(1)) if stated else 0
        tokens = ["<frame>", *added_tokens()[:count], "</frame>"]
        squeezed = {original: new for new, original in enumerate(weights.description["new2old_token_ids"])}
        absent = [token for token in tokens if ORIGINAL_IDS[token] not in squeezed]
        if absent:
            raise CheckpointError("the vocabulary lacks frame tokens", where=weights.where, missing=absent)
        self.sequence = [squeezed[ORIGINAL_IDS[token]] for token in tokens] if count else []

    def apply(self, logits: Tensor, last: int) -> Tensor:
        """Logits [1, V] after the token `last`."""
        if not self.sequence:
            return logits
        scores = logits.clone()
        if last in self.sequence[:-1]:
            forced = self.sequence[self.sequence.index(last) + 1]
            scores[:, forced] = scores.max() + 10.0
        else:
            scores[:, self.sequence[1:]] = 0.0
        return scores


def check_predictor(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """Masks, embeddings, both read-outs and both texts: as the reference computes them, and as the runtime does.

    The first has separate LoRA factors and a run per read-out; the second merges the factors and reads the history once
    for both, in another order of operations.
    """
    weights = folder.parent(fixture, "mllm_weights")
    scores = FrameTokenScores(weights, fixture)
    prompt = _Prompt(fixture)
    checks = [
        count_differences("attention mask", prompt.open_mask.flatten().tolist(), prompt.recorded_mask()),
        count_differences("prompt ids", prompt.original_ids(weights), fixture.tensors["original_ids"][0].tolist()),
        count_differences("query places", prompt.queries.tolist(), fixture.tensors["ids_gen_mask"][0].tolist()),
    ]
    for kind, predictor in predictors(folder, fixture).items():
        played = kind == "factors merged"
        variant = kind if played else ""
        checks += [replace(check, variant=variant) for check in _check(predictor, prompt, scores, played)]
    return checks


def _check(predictor: Predictor, prompt: _Prompt, scores: FrameTokenScores, played: bool) -> list[Check]:
    tolerance = PREDICTOR_MERGED if played else PREDICTOR
    fixture, ids = prompt.fixture, prompt.ids
    index = prompt.history_index
    embeddings = predictor.inject(predictor.embedding(ids), index[None], prompt.shots)
    hidden = predictor(ids, index[None], prompt.open_mask[None], prompt.shots)
    checks = [
        compare("embeddings", embeddings, fixture.tensors["inputs_embeds"], SCHEDULE),
        compare("last hidden states", hidden, fixture.tensors["last_hidden"], tolerance),
        compare("last logits", predictor.head(hidden[:, -1]), fixture.tensors["last_logits"], tolerance),
    ]
    starts = {"output": ids.shape[1] - predictor.size.shot_tokens, "output_at_query_positions": prompt.first_query}
    ignored = torch.full_like(index, -1)
    for variant, state_index in (("reference", ignored), ("embeds_honoured", index)):
        for key, start in starts.items():
            answer = (
                read_prompt(predictor, prompt.played(state_index, start))
                if played
                else _read_apart(predictor, prompt, state_index, start)
            )
            checks.append(compare(f"shot ({key})", answer[0], fixture.tensors[key], tolerance))
        text, raw = _greedy(predictor, answer, int(ids[0, -1]), scores, fixture, variant)
        checks += [
            count_differences(f"text ({variant})", text, fixture.tensors[f"text_ids_{variant}"].tolist()),
            count_differences(
                f"text of the description ({variant})", text, fixture.description["text"].get(variant, ())
            ),
            compare(f"text logits ({variant})", raw, fixture.tensors[f"text_logits_{variant}"], tolerance),
            compare(f"text scores ({variant})", raw, fixture.tensors[f"text_scores_{variant}"], tolerance),
        ]
    return checks


def _read_apart(predictor: Predictor, prompt: _Prompt, state_index: Tensor, start: int) -> Answer:
    """Each read-out in its own run."""
    shot_row = prompt.row(prompt.history_index, prompt.open_mask, start)
    state_row = prompt.row(state_index, prompt.causal_mask, start)
    shot, *_ = read(predictor, shot_row, empty_cache(predictor))
    return shot, *read(predictor, state_row, empty_cache(predictor))[1:]


def _greedy(
    predictor: Predictor, answer: Answer, last: int, scores: FrameTokenScores, fixture: FixtureSet, variant: str
) -> tuple[list[int], Tensor]:
    """As many greedy tokens as were recorded, and the logits of each."""
    text: list[int] = []
    seen: list[Tensor] = []
    count = len(fixture.tensors[f"text_ids_{variant}"])
    while len(text) < count:
        if text:
            following = TokenBatch.text(np.array([last]), predictor.size.shot_width)
            answer = read(predictor, following, answer[2:])
        scored = scores.apply(answer[1], last)
        last = int(scored.argmax())
        text.append(last)
        seen.append(scored)
    return text, torch.cat(seen)


class _Prompt:
    """The prompt of a set: ids, masks and positions of earlier shots."""

    def __init__(self, fixture: FixtureSet) -> None:
        self.fixture = fixture
        self.ids = fixture.tensors["input_ids"]
        length = self.ids.shape[1]
        # -1 marks the current turn's queries.
        self.queries = queries = fixture.tensors["attention_mask"][0] == -1
        self.causal_mask = torch.ones(length, length, dtype=torch.bool).tril()
        self.open_mask = self.causal_mask | (queries[:, None] & queries[None])
        self.first_query = int(queries.nonzero()[0])
        stated = fixture.description["query_range"]
        if stated != [self.first_query, int(queries.nonzero()[-1])]:
            raise CheckpointError(f"query_range is {stated}, which contradicts the mask", where=fixture.where)
        history = fixture.tensors["ids_cmp_mask"][0]
        self.history_index = torch.full((length,), -1, dtype=torch.long)
        self.history_index[history] = torch.arange(int(history.sum()))
        self.shots = fixture.tensors["video_embeds"][0].flatten(0, -2)
        self.history_tokens = int(history.nonzero()[-1]) + 1 if history.any() else 0

    def row(self, history_index: Tensor, mask: Tensor, readout_start: int) -> TokenBatch:
        """One read-out alone."""
        plain = TokenBatch.text(self.ids[0].numpy(), self.shots.shape[-1])
        return replace(
            plain,
            history_index=history_index[None].numpy(),
            masks=mask[None].numpy(),
            history_shots=self.shots.numpy(),
            readout=np.arange(readout_start, readout_start + int(self.queries.sum())),
        )

    def played(self, state_index: Tensor, readout_start: int) -> Prompt:
        """Both read-outs as at runtime: the history separately where shot and state see the same history."""
        return build_readouts(
            self.ids[0].numpy(),
            torch.stack([self.history_index, state_index]).numpy(),
            self.shots.numpy(),
            queries=range(self.first_query, self.first_query + int(self.queries.sum())),
            readout_start=readout_start,
            history_tokens=self.history_tokens if torch.equal(state_index, self.history_index) else 0,
        )

    def original_ids(self, weights: FixtureSet) -> list[int]:
        """The prompt in the ids of the full vocabulary."""
        original = weights.description["new2old_token_ids"]
        return [original[token] for token in self.ids[0].tolist()]

    def recorded_mask(self) -> list[bool]:
        """The recorded mask, unpacked."""
        packed = self.fixture.tensors["mask_packed"].numpy()
        bits = np.unpackbits(packed, axis=1)[:, : self.ids.shape[1]]
        mask: list[bool] = bits.astype(bool).flatten().tolist()
        return mask
