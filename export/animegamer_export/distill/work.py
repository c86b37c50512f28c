"""The work of `animegamer-rt distill` in its folder: shots, targets, student, clips, decoder; nothing is made twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from animegamer_export.evaluate.turns import plan_engines
from animegamer_rt.backends.torch.card import check_gpu
from animegamer_rt.backends.torch.device import TorchDevice
from animegamer_rt.backends.torch.networks import read_network, refuse_quantised
from animegamer_rt.bundle.files import require_space
from animegamer_rt.bundle.loader import Bundle
from animegamer_rt.bundle.manifest import Geometry
from animegamer_rt.bundle.roles import DEFAULT_PARTS, DENOISER
from animegamer_rt.engine_config import GPU_DEVICES, EngineConfig
from animegamer_rt.errors import ConfigError
from animegamer_rt.models.denoiser import Denoiser
from animegamer_rt.models.light_decoder import LightDecoder, LightDecoderSize
from animegamer_rt.pipeline import Pipeline
from animegamer_rt.profiling.libraries import check_libraries

from .decoder import decoder_loss, decoder_optimisers, start
from .files import earlier, read_student, student_plan, teacher_hash, write_light_decoder, write_student, write_whole
from .optimiser import product_dtype
from .progress import Progress
from .student import (
    Steps,
    draw_latents,
    lower_rank,
    recompute_blocks,
    student_loss,
    student_optimisers,
    trained_bytes,
    trained_weights,
)
from .training import train
from .turns import (
    CLIPS,
    GAMES_EACH,
    SHOTS,
    TEACHER,
    Game,
    Rows,
    Shard,
    draw_targets,
    fill,
    predict_shots,
    read_shard,
    repeated,
    shard_path,
)

NO_SPACE_HINT = "free some space, or ask for fewer --pairs"
SEEDS_EACH, FIRST_SEED = 1000, 40000
"""Noise seeds of a shard."""
RECOMPUTED_WIDTH = 1024
"""Denoisers at least as wide recompute their blocks in training; pocket's has 192, the full size 1920."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the command's options ask for."""

    teacher: str
    timesteps: Sequence[int]
    pairs: int
    rank: int
    batch: int
    student_steps: int
    decoder_steps: int
    student: str = ""
    """The sha256 of a finished student's file."""


def decoder_size(geometry: Geometry) -> LightDecoderSize:
    """The light decoder's size: the default one's last stages, as many as double the latent's side to the video's."""
    stages = (geometry.height // geometry.latent_height).bit_length() - 1
    size = LightDecoderSize(latent_channels=geometry.latent_channels)
    return replace(size, channels=size.channels[-stages:], blocks=size.blocks[-stages:])


class Distillation:
    """A bundle's distillation in a folder, which holds one at a time."""

    def __init__(
        self, bundle: Bundle, folder: Path, recipe: Recipe, games: Sequence[Game], config: EngineConfig
    ) -> None:
        """Raises BackendError without the GPU, or for weights that no training can read; PlanError for impossible
        timesteps, OutputError if a disk has too little room, and ConfigError for the folder of another distillation.
        """
        refuse_quantised(bundle)
        self.bundle, self.folder, self.recipe, self.config = bundle, folder, recipe, config
        if config.device in GPU_DEVICES:
            check_libraries(replace(config, device="torch"), reader=False)
            check_gpu()
        self.device = torch.device("cuda" if config.device in GPU_DEVICES else "cpu")
        self.teacher, self._steps = teacher_hash(bundle), Steps(student_plan(recipe.timesteps), self.device)
        self.games = repeated(games, recipe.pairs)
        self.numbers = range(-(-len(self.games) // GAMES_EACH))
        self._require_space()
        content = hashlib.sha256(json.dumps(self.games).encode()).hexdigest()
        made_by = {"bundle": bundle.fingerprint, "steps": bundle.steps_hash(recipe.teacher)}
        self._require_same({**asdict(recipe), **made_by, "games": content})

    def _require_space(self) -> None:
        geometry, files = self.bundle.manifest.geometry, self.bundle.manifest.files
        weights = sum(files[name].bytes for name in self.bundle.manifest.parts[DENOISER].data_files) // 2
        shot, frames = geometry.shot_tokens * geometry.shot_width, geometry.frames * geometry.height * geometry.width
        turn = 2 * shot + 2 * 2 * int(np.prod(geometry.latent_shape)) + 3 * frames
        held = sum(path.stat().st_size for path in self.folder.iterdir())
        # A checkpoint has up to four float32 numbers for each weight, and is written before the last one is removed.
        work, added = max(0, self.recipe.pairs * turn + 2 * 4 * 4 * weights - held), 2 * 2 * weights
        one_disk = self.folder.stat().st_dev == self.bundle.folder.stat().st_dev
        require_space(self.folder, work + added * one_disk, NO_SPACE_HINT)
        require_space(self.bundle.folder, added, NO_SPACE_HINT)

    def _require_same(self, asked: dict[str, object]) -> None:
        mark = self.folder / "distill.json"
        with earlier(mark):
            found = json.loads(mark.read_text(encoding="utf-8")) if mark.exists() else asked
        if found != asked:
            other = [name for name in asked if found.get(name) != asked[name]]
            raise ConfigError(
                "the folder has what another distillation made",
                where=self.folder,
                found={name: found.get(name) for name in other},
                expected={name: asked[name] for name in other},
                do="give the options that it was started with, or another --work folder",
            )
        write_whole(mark, lambda unfinished: unfinished.write_text(json.dumps(asked, indent=1)))

    def train_student(self) -> Path:
        """Draws the teacher's targets, trains the student on them and writes it; its file."""
        path, recipe = self.folder / "student.safetensors", self.recipe
        if path.exists():
            return path
        self._fill(TEACHER, draw_targets)
        network, weights = self._trainable()
        print(f"student: {trained_bytes(network) / 2**30:.2f} GiB without activations", flush=True)
        train(
            network,
            student_optimisers(network, recipe.student_steps, recipe.batch, recipe.rank),
            student_loss(network, self._steps, Rows(self.folder, [SHOTS, TEACHER], self.numbers), recipe.batch),
            Progress("student", recipe.student_steps, self.folder / "student.checkpoint"),
        )
        write_student(path, trained_weights(network, weights), self.teacher, recipe.timesteps)
        return path

    def train_decoder(self, student: Path) -> Path:
        """Draws the student's latents and the vae's frames of them, trains the light decoder and writes it; its file.

        Raises CheckpointError or BundleError for a student that is not this bundle's.
        """
        path, recipe = self.folder / "light_decoder.safetensors", self.recipe
        if path.exists():
            return path
        network = read_student(student, self.bundle)[0].to(self.device)
        shape = self.bundle.manifest.geometry.latent_shape[1:]

        def draw_clips(pipeline: Pipeline, shots: Shard) -> Shard:
            latents = draw_latents(network, self._steps, shots, shape)
            frames = [np.stack(list(pipeline.vae.decode(one[None].float().numpy()))) for one in latents]
            return {"latent": latents, "frames": torch.from_numpy(np.stack(frames))}

        self._fill(CLIPS, draw_clips)
        clips, decoder = (
            Rows(self.folder, [CLIPS], self.numbers),
            LightDecoder(decoder_size(self.bundle.manifest.geometry)),
        )
        start(decoder, clips)
        decoder.to(self.device)
        train(
            decoder,
            decoder_optimisers(decoder, recipe.decoder_steps),
            decoder_loss(decoder, clips, recipe.decoder_steps),
            Progress("light decoder", recipe.decoder_steps, self.folder / "decoder.checkpoint"),
        )
        write_light_decoder(path, decoder)
        return path

    def _fill(self, kind: str, make: Callable[[Pipeline, Shard], Shard]) -> None:
        """Makes the missing shards of a kind, and those of the shots, with one pipeline that is released at the end."""
        if all(shard_path(self.folder, kind, number).exists() for number in self.numbers):
            return
        name = self.recipe.teacher
        pipeline = Pipeline.open(self.bundle, plan_engines(self.bundle, self.config)(name), name)

        def shots(number: int) -> Shard:
            games = self.games[number * GAMES_EACH : (number + 1) * GAMES_EACH]
            return predict_shots(pipeline, games, FIRST_SEED + number * SEEDS_EACH)

        fill(self.folder, SHOTS, self.numbers, shots)
        fill(self.folder, kind, self.numbers, lambda number: make(pipeline, read_shard(self.folder, SHOTS, number)))

    def _trainable(self) -> tuple[Denoiser, dict[str, Tensor]]:
        """The student before its training, on the device, and the teacher's weights as they are stored."""
        network: Denoiser = read_network(self.bundle, TorchDevice(torch.float32), DEFAULT_PARTS, DENOISER)[0]
        weights = {name: weight.detach().clone() for name, weight in network.named_parameters()}
        network.float().requires_grad_(True)
        if self.recipe.rank:
            torch.manual_seed(0)
            lower_rank(network, self.recipe.rank, product_dtype(self.device))
        if network.size.hidden >= RECOMPUTED_WIDTH:
            recompute_blocks(network)
        return network.to(self.device), weights
