"""A tiny release to change into the forms that people have, and the functions that change it."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tiny_release import PICTURE
from torch import Tensor

from animegamer_export.build.weight_source import ExportSource, from_checkpoints
from animegamer_export.checkpoints.key_names import DIFFUSION, PEFT

Tensors = dict[str, Tensor]
LAYER = f"{PEFT}model.layers.0.self_attn.q_proj"
NORM = f"{PEFT}model.layers.0.input_layernorm"
QKV = f"{DIFFUSION}transformer.layers.0.attention.query_key_value"
LOW_RANK = {"r": 32, "lora_alpha": 32, "peft_type": "LORA", "lora_dropout": 0.05, "bias": "none", "use_dora": False}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


@dataclass
class Tree:
    """A release's folders. alpha: as of --alpha; expected: weights that are to differ from the release's."""

    folder: Path
    alpha: dict[str, float] = field(default_factory=dict)
    expected: Tensors = field(default_factory=dict)

    @property
    def mistral(self) -> Path:
        return self.folder / "Mistral-7B-Instruct-v0.1"

    @property
    def weights(self) -> Path:
        return self.mistral / "model.safetensors"

    @property
    def mllm(self) -> Path:
        return self.folder / "AnimeGamer/MLLM-Qiqi"

    @property
    def steps(self) -> Path:
        return self.folder / "AnimeGamer/VDM_Decoder-Qiqi"

    @property
    def vae(self) -> Path:
        return self.folder / "CogVideoX-2b-sat/vae/3d-vae.pt"

    def adapter(self) -> Tensors:
        return dict(torch.load(self.mllm / "pytorch_model.bin", weights_only=True))

    def denoiser(self) -> Tensors:
        return dict(torch.load(self.steps / "1/mp_rank_00_model_states.pt", weights_only=True)["module"])

    def base(self) -> Tensors:
        return load_file(self.weights)

    def trained(self, tensors: Mapping[str, Any], name: str = "pytorch_model.bin", wrapper: str = "") -> None:
        """The predictor's file in place of the release's."""
        (self.mllm / "pytorch_model.bin").unlink(missing_ok=True)
        write(self.mllm / name, tensors, wrapper)

    def decoder(self, tensors: Tensors, name: str = "1/mp_rank_00_model_states.pt", **how: Any) -> None:
        """The denoiser's file in place of the release's."""
        shutil.rmtree(self.steps / "1", ignore_errors=True)
        write(self.steps / name, tensors, **how)

    def language(self, tensors: Tensors, name: str = "model.safetensors") -> None:
        self.weights.unlink()
        write(self.mistral / name, tensors)

    def settings(self, path: str = "config.json", **changed: object) -> None:
        """The language model's config.json, or another's with its settings."""
        config = {**json.loads((self.mistral / "config.json").read_text(encoding="utf-8")), **changed}
        (self.mistral / path).write_text(json.dumps(config), encoding="utf-8")

    def low_rank(self, **changed: object) -> None:
        (self.mllm / "adapter_config.json").write_text(json.dumps({**LOW_RANK, **changed}), encoding="utf-8")

    def tokenizer(self, folder: Path, change: Callable[..., object], *how: int) -> None:
        """The language model's tokenizer, changed, in this folder."""
        model = ModelProto.FromString((self.mistral / "tokenizer.model").read_bytes())
        change(model, *how)
        (folder / "tokenizer.model").write_bytes(model.SerializeToString())

    def read(self) -> ExportSource:
        return from_checkpoints(self.folder, "Qiqi", *PICTURE, self.alpha)


def write(
    path: Path, tensors: Mapping[str, Any], wrapper: str = "", inside: str = "", notes: dict[str, str] | None = None
) -> None:
    """As safetensors, torch.save or two shards with an index, by the name; inside: before each shard's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".index.json"):
        stem, _, suffix = path.name.removesuffix(".index.json").rpartition(".")
        shards = {f"{stem}-0000{n + 1}-of-00002.{suffix}": sorted(tensors)[n::2] for n in range(2)}
        for name, keys in shards.items():
            write(path.parent / name, {key: tensors[key] for key in keys})
        weight_map = {key: inside + name for name, keys in shards.items() for key in keys}
        path.write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    elif path.suffix == ".safetensors":
        save_file({key: value.contiguous() for key, value in tensors.items()}, path, notes)
    else:
        torch.save({wrapper: tensors, "epoch": 3} if wrapper else tensors, path)


def archive(name: str) -> bytes:
    """A zip file with a file of this name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr(name, "")
    return content.getvalue()


def renamed(tensors: Tensors, old: str, new: str) -> Tensors:
    return {key.replace(old, new): value for key, value in tensors.items()}


def merged(tree: Tree) -> Tensors:
    """What PEFT's merge_and_unload leaves of the adapter."""
    found, tensors = Tensors(), tree.adapter()
    for key, value in tensors.items():
        if ".base_layer" in key:
            down, up = (tensors[key.replace("base_layer", f"lora_{one}.default")] for one in "AB")
            found[key.replace(".base_layer", "")] = value + up @ down
        elif ".lora_" not in key and ".original_module" not in key:
            found[key.replace(".modules_to_save.default", "")] = value
    return {key.replace("base_model.model.", ""): value for key, value in found.items()}


def merged_denoiser(tree: Tree) -> Tensors:
    tensors = tree.denoiser()
    found = {key: value for key, value in tensors.items() if ".matrix_" not in key and ".original." not in key}
    for key, value in tensors.items():
        if ".original." in key:
            pairs = range(3 if "query_key_value" in key else 1)
            layer = key.removesuffix(".original.weight")
            added = [tensors[f"{layer}.matrix_B.{n}"] @ tensors[f"{layer}.matrix_A.{n}"] / 64 for n in pairs]
            found[f"{layer}.weight"] = value + torch.cat(added)
    return found


def peft_folder(tree: Tree) -> None:
    """The adapter as PEFT saves it, and the rest in a file beside it."""
    tensors, adapter, rest = tree.adapter(), Tensors(), Tensors()
    for key, value in tensors.items():
        if ".lora_" in key or ".modules_to_save" in key:
            adapter[key.removeprefix("llm.").replace(".modules_to_save", "").replace(".default", "")] = value
        elif ".base_layer" not in key and ".original_module" not in key:
            rest[key] = value
    tree.trained(rest, "model.safetensors")
    write(tree.mllm / "adapter_model.safetensors", adapter)
    tree.low_rank(target_modules=TARGETS, modules_to_save=["input_layernorm"], base_model_name_or_path="mistralai/x")


def merged_beside_adapter(tree: Tree) -> None:
    """A merged model that was saved into the adapter's folder."""
    whole = merged(tree)
    peft_folder(tree)
    tree.trained(without(whole, "norm"), "model.safetensors")


def some_layers(tree: Tree) -> None:
    """PEFT's folder with LoRA on all but one kind of layer, and norms and other weights from the language model."""
    peft_folder(tree)
    path = tree.mllm / "adapter_model.safetensors"
    save_file(without(load_file(path), "up_proj", "norm"), path)
    tree.low_rank(target_modules=[one for one in TARGETS if one != "up_proj"])
    for layer in range(2):
        tree.expected[f"blocks.{layer}.up.weight"] = tree.base()[f"model.layers.{layer}.mlp.up_proj.weight"]


def scaled(tensors: Tensors, rank: int, factor: float = 1.0, of: str = "") -> Tensors:
    """The same LoRA at another rank, whose further rows are zero; up is multiplied by `factor`."""
    found = dict(tensors)
    for key, value in tensors.items():
        if of in key and (".lora_A." in key or ".matrix_A." in key):
            found[key] = torch.cat([value, torch.zeros(rank - len(value), value.shape[1])])
        elif of in key and (".lora_B." in key or ".matrix_B." in key):
            found[key] = factor * torch.cat([value, torch.zeros(len(value), rank - value.shape[1])], 1)
    return found


def padded(tensors: Tensors) -> Tensors:
    """Embedding and head with rows of noise up to a multiple of 64."""
    found = dict(tensors)
    for key in (PEFT + "model.embed_tokens.weight", PEFT + "lm_head.weight"):
        rows = -len(found[key]) % 64
        assert rows
        found[key] = torch.cat([found[key], torch.randn(rows, found[key].shape[1])])
    return found


def tied(tree: Tree) -> None:
    tensors = merged(tree)
    del tensors["llm.lm_head.weight"]
    tree.trained(tensors, "model.safetensors")
    tree.settings("../AnimeGamer/MLLM-Qiqi/config.json", tie_word_embeddings=True)
    tree.expected["head.weight"] = tensors["llm.model.embed_tokens.weight"]


def stale_index(tree: Tree) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (tree.mistral / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def index_with(tree: Tree, inside: str) -> None:
    tensors = tree.base()
    tree.weights.unlink()
    write(tree.mistral / "model.safetensors.index.json", tensors, inside=inside)


def vae_inside(tree: Tree, difference: float) -> None:
    vae = torch.load(tree.vae, weights_only=True)["state_dict"]
    inside = {f"first_stage_model.{key}": (value + difference).bfloat16() for key, value in vae.items()}
    tree.decoder({**tree.denoiser(), **inside, "conditioner.embedder": torch.zeros(2)}, wrapper="module")


def quantised(tree: Tree, *suffixes: str) -> None:
    key = "model.layers.0.self_attn.q_proj."
    weights = {k: v for k, v in tree.base().items() if not k.startswith(key)}
    tree.language({**weights, **{key + one: torch.zeros(4, dtype=torch.uint8) for one in suffixes}})


def make_pieces(model: ModelProto, number: int) -> None:
    model.Clear()
    for one in range(number):
        model.pieces.add(piece=f"p{one}" if one else "<unk>", type=1 if one else 2)


def two_embeddings(tree: Tree) -> None:
    """The parts of T5's folder that are read first, with another embedding for its encoder."""
    folder = tree.folder / "t5-v1_1-xxl"
    folder.mkdir()
    (tree.folder / "CLIP-ViT-B-16-laion2B-s34B-b88K").mkdir()
    (folder / "config.json").write_text('{"model_type": "t5", "feed_forward_proj": "gated-gelu"}', encoding="utf-8")
    twins = {"shared.weight": torch.zeros(2, 2), "encoder.embed_tokens.weight": torch.ones(2, 2)}
    save_file(twins, folder / "model.safetensors")


def without(tensors: Tensors, *parts: str) -> Tensors:
    return {key: value for key, value in tensors.items() if not any(part in key for part in parts)}
