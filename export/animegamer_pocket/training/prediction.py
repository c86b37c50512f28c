"""Trains pocket's predictor (the paper's phase two): prompt with history -> next shot (squared error) and strengths.

Prompts come from the runtime's `PromptBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from animegamer_export.distill.optimiser import Optimisers, PhaseConfig, autocast, device_of
from animegamer_export.distill.progress import Progress
from animegamer_export.parts.predictor import read_prompt
from animegamer_rt.models.predictor import Predictor
from animegamer_rt.stages.prompt import HistoryTurn, Prompt, PromptBuilder
from animegamer_rt.state.game import STRENGTH_VALUES, STRENGTHS, GameState

STATE_WEIGHT = 0.4
STATE_EVERY = 4  # steps: the four strengths are learned ten times faster than the shot
LABEL_WEIGHT = 0.5
HISTORY_NOISE = 0.15  # on the encoder's earlier shots, because predictions are inexact
STRENGTH_CHOICES = len(STRENGTHS)
ROLLOUT_SHARE = 0.5
"""Share of the rollout phase's prompts with the predictor's own earlier shots; the others have the encoder's."""


@dataclass(frozen=True, slots=True)
class GameTurns:
    """Training games for the predictor; a game has `turns` rows.

    states: the state of each row. shots: the encoder's, float16 [N, 226, D]. labels: scene labels of each turn, float32
    [N, L] (`scene_labels`). weights: float64 [N], sampling weights among the same turns of other games.
    """

    instructions: Sequence[str]
    states: Sequence[GameState]
    shots: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    turns: int

    @property
    def games(self) -> int:
        """Number of games."""
        return len(self.instructions) // self.turns


@dataclass(frozen=True, slots=True)
class _Batch:
    ids: Tensor
    history_index: Tensor
    masks: Tensor
    shots: Tensor
    readouts: list[int]
    choices: Tensor
    chosen: Tensor


def train_predictor(
    predictor: Predictor,
    prompt_builder: PromptBuilder,
    turns: GameTurns,
    history_turns: int,
    phase: PhaseConfig,
    ema: AveragedModel,
    progress: Progress,
    rollouts: np.ndarray | None = None,
) -> Iterator[dict[str, float]]:
    """Trains the predictor for one phase; yields each step's losses.

    A batch has the same turn of several games, each with its shot and, at every fourth step, its strengths. rollouts:
    None, or for the rollout phase the predictor's own shots of the first games (`roll_out_games`).
    """
    device = device_of(predictor)
    # Names change few of the shot's tokens, so squared error alone takes over an hour to learn them. A linear probe
    # that reads the scene's labels off the shot's hidden states cuts that to minutes (docs/LOG.md).
    probe = nn.Linear(predictor.size.hidden, turns.labels.shape[1]).to(device)
    networks = nn.ModuleList([predictor, probe])
    optimisers = Optimisers(networks, phase)
    progress.resume(networks=networks, ema=ema, optimisers=optimisers)
    predictor.train()
    for step in progress.remaining():
        rng, earlier = np.random.default_rng((progress.seed, step)), None
        if rollouts is None:
            # First turns alone, then one more turn of history per tenth of the phase.
            turn = int(rng.integers(min(turns.turns, 1 + 2 * turns.turns * step // phase.steps)))
        else:
            turn = int(rng.integers(turns.turns, size=2).max())  # favours later turns
            earlier = rollouts if rng.random() < ROLLOUT_SHARE else None
        known = turns.games if earlier is None else len(earlier) // turns.turns
        count = phase.batch * turns.turns // (turn + 1)  # more games with short histories: as many tokens per step
        weights = turns.weights[turn :: turns.turns][:known]
        games = rng.choice(known, count, replace=count > known, p=weights / weights.sum())
        rows = [int(game) * turns.turns + turn for game in games]
        examples = [_example(prompt_builder, turns, row, turn, history_turns, rng, earlier) for row in rows]
        batch = _collate(examples, count, device)
        with_state = step % STATE_EVERY == 0
        used = 2 * count if with_state else count
        losses = {}
        with autocast(device):
            hidden = predictor(batch.ids[:used], batch.history_index[:used], batch.masks[:used], batch.shots)
            tokens = turns.shots.shape[1]
            queries = torch.stack([hidden[i, start : start + tokens] for i, start in enumerate(batch.readouts)])
            predicted = predictor.output_resampler(queries)
            probed = probe(queries.mean(dim=1))
        target = torch.from_numpy(turns.shots[rows]).to(device).float()
        losses["shot"] = F.mse_loss(predicted.float(), target)
        labels = torch.from_numpy(turns.labels[rows]).to(device)
        losses["labels"] = F.binary_cross_entropy_with_logits(probed.float(), labels)
        if with_state:
            with autocast(device):
                slots = hidden[count:].gather(1, batch.choices.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
                logits = predictor.head(slots)
            losses["state"] = F.cross_entropy(logits.float().flatten(0, 1), batch.chosen.flatten())
        loss = losses["shot"] + LABEL_WEIGHT * losses["labels"] + STATE_WEIGHT * losses.get("state", 0.0)
        optimisers.step(loss, step)
        ema.update_parameters(predictor)
        yield {name: loss.item() for name, loss in losses.items()}
    predictor.eval()


def _example(
    prompt_builder: PromptBuilder,
    turns: GameTurns,
    row: int,
    turn: int,
    history_turns: int,
    rng: np.random.Generator,
    rollouts: np.ndarray | None,
) -> tuple[Prompt, list[int]]:
    """A turn's prompt, and the token ids of its state.

    The history has shots from `rollouts`, or else the encoder's with noise.
    """
    past = []
    for earlier in range(row - min(turn, history_turns), row):
        if rollouts is None:
            shot = turns.shots[earlier] + HISTORY_NOISE * rng.standard_normal(turns.shots[earlier].shape)
        else:
            shot = rollouts[earlier]
        past.append(HistoryTurn(turns.instructions[earlier], turns.states[earlier], shot.astype(np.float16)))
    answer: list[int] = []
    for name, fixed in zip(STRENGTHS, [*prompt_builder.between_slots, ()], strict=True):
        answer += [prompt_builder.strength_ids[STRENGTH_VALUES.index(getattr(turns.states[row], name))], *fixed]
    return prompt_builder.build(turns.instructions[row], past), answer


def _collate(examples: Sequence[tuple[Prompt, list[int]]], count: int, device: torch.device) -> _Batch:
    """Pads and stacks: first the rows that read shots, then those that read states. The mask hides the padding."""
    length = max(sum(run.ids.shape[1] for run in prompt.runs) + len(answer) for prompt, answer in examples)
    ids = np.zeros((2 * count, length), np.int64)
    index = np.full((2 * count, length), -1, np.int64)
    masks = np.broadcast_to(np.tri(length, dtype=np.bool_), (2 * count, length, length)).copy()
    choices = np.zeros((count, STRENGTH_CHOICES), np.int64)
    chosen = np.zeros((count, STRENGTH_CHOICES), np.int64)
    shots: list[np.ndarray] = []
    starts, first_row = [], 0
    for i, (prompt, answer) in enumerate(examples):
        for row, (written, injected, allowed) in zip((i, count + i), _rows(prompt), strict=True):
            size = len(written)
            ids[row, :size] = written
            index[row, :size] = np.where(injected >= 0, injected + first_row, -1)
            masks[row, :size, :size] = allowed
        ids[count + i, size : size + len(answer)] = answer
        places = size - 1 + np.arange(STRENGTH_CHOICES) * 3  # a strength and two fixed tokens per slot
        choices[i], chosen[i] = places, np.asarray(answer)[::3]
        shots.append(prompt.runs[0].history_shots)
        first_row += len(shots[-1])
        starts.append(size - prompt.turn.ids.shape[1] + int(prompt.turn.readout[0]))
    arrays = (
        torch.from_numpy(array).to(device) for array in (ids, index, masks, np.concatenate(shots), choices, chosen)
    )
    tokens, injected_at, mask, history, choice_places, chosen_strengths = arrays
    return _Batch(tokens, injected_at, mask, history, starts, choice_places, chosen_strengths)


def _rows(prompt: Prompt) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Ids [L], history index [L] and mask [L, L] of the whole prompt, for the shot's and the state's read-out."""
    ids, rows = np.concatenate([run.ids[0] for run in prompt.runs]), []
    for row in range(2):
        index = np.concatenate([run.history_index[min(row, len(run.history_index) - 1)] for run in prompt.runs])
        mask = np.tri(len(ids), dtype=np.bool_)
        before = len(ids) - prompt.turn.ids.shape[1]
        mask[before:, before:] = prompt.turn.arrays()["masks"][row]
        rows.append((ids, index, mask))
    return rows


@torch.no_grad()
def roll_out_games(
    predictor: Predictor, prompt_builder: PromptBuilder, turns: GameTurns, games: Sequence[int], history_turns: int
) -> tuple[np.ndarray, float]:
    """Predicts every turn of the games, each after the predictor's own earlier shots and the true earlier states.

    Returns shots, float16 [len(games) * turns, 226, D], and the share of turns with the right motion level.
    """
    predictor.eval()
    shots = np.empty((len(games) * turns.turns, *turns.shots.shape[1:]), np.float16)
    right = 0
    for at, game in enumerate(games):
        past: list[HistoryTurn] = []
        for turn in range(turns.turns):
            row = game * turns.turns + turn
            state = turns.states[row]
            prompt = prompt_builder.build(turns.instructions[row], past[-history_turns:] if history_turns else [])
            shot, logits, *_ = read_prompt(predictor, prompt)
            shots[at * turns.turns + turn] = shot[0].half().cpu().numpy()
            allowed = logits[0, list(prompt_builder.strength_ids)]
            right += int(allowed.argmax()) - 5 == state.motion_level
            past.append(HistoryTurn(turns.instructions[row], state, shots[at * turns.turns + turn]))
    return shots, right / len(shots)
