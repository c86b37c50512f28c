"""Parity of the encoder, the denoiser and whole sampling trajectories."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from animegamer_export.checkpoints.files import open_tensors
from animegamer_export.checkpoints.key_names import DENOISER as DENOISER_NAMES
from animegamer_export.checkpoints.releases import denoiser_weight_map
from animegamer_export.checkpoints.weight_map import LowRankScale, make_weight_map, wanted_shapes
from animegamer_export.parity.checks import DENOISER, ENCODER, SAMPLER, SCHEDULE, Check, compare, count_differences
from animegamer_export.parity.fixtures import FixtureFolder, FixtureSet
from animegamer_export.parts.streamed.parts import with_weights
from animegamer_export.support.plans import exact_plan
from animegamer_rt.bundle import noise_schedule
from animegamer_rt.bundle.denoise_plan import DenoisePlan
from animegamer_rt.errors import CheckpointError
from animegamer_rt.models.denoiser import Denoiser, DenoiserSize
from animegamer_rt.models.denoiser_step import DenoiserStep
from animegamer_rt.models.encoder import Encoder, EncoderSize


def encoder_size(fixture: FixtureSet) -> EncoderSize:
    """Sizes of the encoder from a fixture's config."""
    size = fixture.config
    return EncoderSize(size["text_h"], size["ip_h"], size["hidden"], size["text_tokens"], size["ip_tokens"])


def denoiser_size(fixture: FixtureSet) -> DenoiserSize:
    """Sizes of the denoiser from a fixture's config."""
    size = fixture.config
    return DenoiserSize(
        hidden=size["hidden"],
        layers=size["layers"],
        heads=size["heads"],
        time_width=size["tdim"],
        latent_height=size["lh"],
        latent_width=size["lw"],
        latent_frames=size["T_latent"],
        latent_channels=size["in_channels"],
        patch=size["patch"],
        shot_tokens=size["text_tokens"] + size["ip_tokens"],
        height_interpolation=float(fixture.config["height_interpolation"]),
        width_interpolation=float(fixture.config["width_interpolation"]),
    )


def networks(folder: FixtureFolder, fixture: FixtureSet) -> tuple[Denoiser, Encoder]:
    """Denoiser (LoRA merged, as at runtime) and encoder with the weights that the fixture names."""
    weights = folder.parent(fixture, "dit_weights")
    with torch.device("meta"):
        denoiser, encoder = Denoiser(denoiser_size(weights)), Encoder(encoder_size(weights))
    low_rank = LowRankScale(float(weights.config["lora_alpha"]))
    weight_map = denoiser_weight_map(open_tensors(weights.tensors, weights.where), denoiser, encoder, low_rank)
    return with_weights(denoiser, weight_map, "denoiser.", folder.dtype), with_weights(
        encoder, weight_map, "encoder.", folder.dtype
    )


def check_encoder(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """The shot of recorded tower features, with the set's own weights or those of its suffix."""
    with torch.device("meta"):
        encoder = Encoder(encoder_size(fixture))
    names = {DENOISER_NAMES.checkpoint_name(f"encoder.{name}") for name in encoder.state_dict()}
    weights = {key: value for key, value in fixture.tensors.items() if key.startswith("model.")}
    if not weights:
        stored = folder.parent(fixture, "dit_weights").tensors
        weights = {key: stored[key] for key in names & stored.keys()}
    file = open_tensors(weights, fixture.where)
    weight_map = make_weight_map(file, wanted_shapes({"encoder.": encoder}), DENOISER_NAMES, what="encoder")
    shot = with_weights(encoder, weight_map, "encoder.", folder.dtype)(
        fixture.tensors["t5_features"], fixture.tensors["clip_features"]
    )
    return [compare("shot", shot, fixture.tensors["mix_embedding"], ENCODER)]


def check_unconditional(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """The constant shot of the unconditional row."""
    _, encoder = networks(folder, fixture)
    return [compare("unconditional shot", encoder.unconditional(), fixture.tensors["uncond_embedding"], ENCODER)]


def _pair(fixture: FixtureSet, encoder: Encoder) -> Tensor:
    return torch.cat([encoder.unconditional()[None], fixture.tensors["aroutput"]])


def check_step(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """One network call on a CFG pair."""
    denoiser, encoder = networks(folder, fixture)
    v = denoiser(
        fixture.tensors["x"], fixture.tensors["timesteps"], fixture.tensors["flow_idx"], _pair(fixture, encoder)
    )
    constant = fixture.tensors["uncond_embedding"]
    checks = [
        compare("v", v, fixture.tensors["output"], DENOISER),
        compare("unconditional shot", encoder.unconditional(), constant, ENCODER),
    ]
    if "crossattn" in fixture.tensors:
        # Row 0 of the recorded tower features is the unconditional row; row 1's shot was replaced by `aroutput`.
        shot = encoder(fixture.tensors["crossattn"][:1], fixture.tensors["ip_cond"][:1])[0]
        checks.append(compare("shot of the unconditional features", shot, constant, ENCODER))
    return checks


def check_inner(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """Inner activations of the step with the same suffix."""
    step = folder.named(fixture.name.replace("dit_inter", "dit_step"), fixture)
    denoiser, encoder = networks(folder, step)
    shot = _pair(step, encoder)
    patches = denoiser.embed_patches(step.tensors["x"])
    embedding = denoiser.time(step.tensors["timesteps"]) + denoiser.motion(step.tensors["flow_idx"])
    x = torch.cat([shot, patches + denoiser.positions], dim=1)
    checks = [
        compare("embedding", embedding, fixture.tensors["emb"], DENOISER),
        compare("tokens", torch.cat([shot, patches], dim=1), fixture.tensors["word_embed_out"], DENOISER),
        compare("tokens with positions", x, fixture.tensors["tokens_plus_pos"], DENOISER),
    ]
    for layer, block in enumerate(denoiser.blocks):
        x = block(x, torch.nn.functional.silu(embedding))
        if f"layer{layer}_out" in fixture.tensors:
            checks.append(compare(f"block {layer}", x, fixture.tensors[f"layer{layer}_out"], DENOISER))
    return checks


def check_schedule(fixture: FixtureSet, plan: DenoisePlan) -> list[Check]:
    """Timesteps, noise levels and guidance of the plan against the recorded ones."""

    def series(what: str, ours: list[float], key: str) -> Check:
        return compare(what, torch.tensor(ours, dtype=torch.float64), fixture.tensors[key], SCHEDULE)

    timesteps = [step.timestep for step in plan]
    levels = [*(float(level) for level in noise_schedule.signal_levels(timesteps)), 1.0]
    checks = [
        count_differences("timesteps", timesteps, fixture.tensors["timesteps"].tolist()),
        series("guidance", [step.guidance for step in plan], "guidance"),
        series("signal levels", levels, "alphas_cumprod_sqrt"),
        series("signal levels of the network", [step.coefficients.signal for step in plan], "alphas_quantised"),
        series("full schedule", [float(level) for level in noise_schedule.full_signal_levels()], "full_schedule_1000"),
    ]
    for key, ours in (("timesteps", timesteps), ("guidance", [step.guidance for step in plan])):
        if key in fixture.description:
            listed = torch.tensor(fixture.description[key], dtype=torch.float64)
            checks.append(
                compare(f"{key} of the description", torch.tensor(ours, dtype=torch.float64), listed, SCHEDULE)
            )
    if "step_index" in fixture.tensors:
        # The reference's guidance formula takes this for a step's index.
        indices = [len(plan) - timestep for timestep in timesteps]
        checks.append(count_differences("guidance index", indices, fixture.tensors["step_index"].tolist()))
    return checks


def check_sampler(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """A whole trajectory with the recorded noise, through the plan and the denoiser's step."""
    plan = exact_plan(fixture.description["num_steps"])
    checks = check_schedule(fixture, plan)
    denoiser, encoder = networks(folder, fixture)
    step = DenoiserStep(denoiser, encoder.unconditional())
    latent = fixture.tensors["init_noise"]
    zeros = torch.zeros_like(latent)
    noise_used = fixture.tensors["noise_used"]
    draws = sum(step.coefficients.c_noise != 0.0 for step in plan)
    if len(noise_used) != draws:
        raise CheckpointError(
            f"noise_used has {len(noise_used)} entries, {draws} steps draw noise", where=fixture.where
        )
    x0, difference = zeros, zeros
    motion_scope = torch.tensor([float(fixture.description["flow"])])
    coefficients = torch.from_numpy(plan.coefficients())
    for k, planned in enumerate(plan):
        latent, x0, difference = step(
            latent,
            x0,
            noise_used[k : k + 1] if k < len(noise_used) else zeros,
            difference,
            coefficients[k],
            torch.tensor([float(planned.timestep)]),
            motion_scope,
            fixture.tensors["aroutput"],
            torch.tensor(planned.rows),
        )
        for what, ours, key in (("latent", latent, f"x_after_{k}"), ("x0", x0, f"denoised_{k}")):
            if key in fixture.tensors:
                checks.append(compare(f"{what} of step {k}", ours, fixture.tensors[key], SAMPLER))
    checks.append(compare("final latent", latent, fixture.tensors["final"], SAMPLER))
    return checks


def check_discarded(folder: FixtureFolder, fixture: FixtureSet) -> list[Check]:
    """The order of the reference's random numbers: replaying its seed gives the recorded noise."""
    base, suffix = fixture.name.split("_discarded_")
    sampler = folder.named(f"{base}_{suffix}", fixture)
    seed = re.search(r"manual_seed\((\d+)\)", fixture.description["description"])
    if seed is None:
        raise CheckpointError("the description lacks torch.manual_seed(..)", where=fixture.where)
    generator = torch.Generator().manual_seed(int(seed.group(1)))
    shape = sampler.tensors["init_noise"].shape

    def draw() -> Tensor:
        return torch.randn(shape, generator=generator)

    first = draw()
    used, discarded = [draw()], []
    for _ in range(fixture.tensors["noise_discarded"].shape[0]):
        discarded.append(draw())
        used.append(draw())
    return [
        compare("first latent", first, sampler.tensors["init_noise"], SCHEDULE),
        compare("noise used", torch.cat(used), sampler.tensors["noise_used"], SCHEDULE),
        compare("noise discarded", torch.cat(discarded), fixture.tensors["noise_discarded"], SCHEDULE),
    ]
