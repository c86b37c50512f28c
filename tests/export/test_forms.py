"""Checkpoints in every form that people have: each loads and gives the release's weights, or is refused in words.

One tiny release in the published formats is changed into each form.
"""

from __future__ import annotations

import re
import shutil
from argparse import Namespace
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from changed_release import (
    LAYER,
    NORM,
    QKV,
    Tensors,
    Tree,
    archive,
    index_with,
    make_pieces,
    merged,
    merged_beside_adapter,
    merged_denoiser,
    padded,
    peft_folder,
    quantised,
    renamed,
    scaled,
    some_layers,
    stale_index,
    tied,
    two_embeddings,
    vae_inside,
    without,
    write,
)
from safetensors.torch import save
from tiny_release import write_release

from animegamer_export.build.weight_source import ExportSource
from animegamer_export.checkpoints.files import WRAPPERS
from animegamer_export.checkpoints.key_names import DIFFUSION, PEFT
from animegamer_rt.errors import CheckpointError

NORM_COPY = f"{NORM}.modules_to_save.default.weight"
TRAINERS_CONFIG = "../AnimeGamer/MLLM-Qiqi/config.json"


LOADS: dict[str, Callable[[Tree], object]] = {
    "published": lambda t: None,
    "predictor as safetensors": lambda t: t.trained(t.adapter(), "model.safetensors"),
    "predictor in shards of safetensors": lambda t: t.trained(t.adapter(), "model.safetensors.index.json"),
    "predictor in shards of torch.save": lambda t: t.trained(t.adapter(), "pytorch_model.bin.index.json"),
    **{f"predictor under {one}": lambda t, one=one: t.trained(t.adapter(), wrapper=one) for one in WRAPPERS},
    **{
        f"predictor with the prefix {prefix}": lambda t, prefix=prefix: t.trained(
            {prefix + key: value for key, value in t.adapter().items()}
        )
        for prefix in ("module.", "_orig_mod.", "model.")
    },
    "predictor of FSDP": lambda t: t.trained(renamed(t.adapter(), ".self_attn", "._fsdp_wrapped_module.self_attn")),
    "predictor as a folder of PEFT": peft_folder,
    "predictor merged": lambda t: t.trained(merged(t)),
    "predictor merged, as safetensors": lambda t: t.trained(renamed(merged(t), "llm.", ""), "model.safetensors"),
    "predictor merged, embedding and head tied": tied,
    "predictor merged, beside its adapter's config": lambda t: (
        t.trained(merged(t), "model.safetensors"),
        t.low_rank(lora_alpha=64, use_dora=True),
    ),
    "predictor with a padded vocabulary": lambda t: t.trained(padded(t.adapter())),
    "predictor of rank 64 with --alpha": lambda t: (t.trained(scaled(t.adapter(), 64)), t.alpha.update(predictor=64)),
    "predictor of rank 64 by its config": lambda t: (
        t.trained(scaled(t.adapter(), 64)),
        t.low_rank(r=64, lora_alpha=64),
    ),
    "predictor of mixed ranks by its config": lambda t: (
        t.trained(scaled(t.adapter(), 64, 2, of=".v_proj.")),
        t.low_rank(rank_pattern={"v_proj": 64}),
    ),
    "predictor of another alpha": lambda t: (t.trained(scaled(t.adapter(), 32, 0.5)), t.low_rank(lora_alpha=64)),
    "predictor with rank-stabilised LoRA": lambda t: t.low_rank(lora_alpha=32**0.5, use_rslora=True),
    "predictor with LoRA on some layers by its config": some_layers,
    "an adapter's name with a dash": lambda t: t.trained(renamed(t.adapter(), ".default", ".style-v2")),
    "an adapter that PEFT describes in full": lambda t: t.low_rank(
        auto_mapping={"base_model_class": "MistralForCausalLM"}, exclude_modules=["lm_head"], layers_to_transform=[0, 1]
    ),
    "lazily negated weights": lambda t: (
        t.trained({k: torch._neg_view(-v) for k, v in t.adapter().items()}),
        t.decoder({k: torch._neg_view(-v) for k, v in t.denoiser().items()}, wrapper="module"),
    ),
    "Mistral as torch.save": lambda t: t.language(t.base(), "pytorch_model.bin"),
    "Mistral with a stale index": stale_index,
    "Mistral with an index of ./names": lambda t: index_with(t, "./"),
    "Mistral with an index of .\\names": lambda t: index_with(t, ".\\"),
    **{
        f"config.json and latest in {encoding}": lambda t, encoding=encoding: [
            path.write_bytes(path.read_text().encode(encoding))
            for path in (t.mistral / "config.json", t.steps / "latest")
        ]
        for encoding in ("utf-8-sig", "utf-16")
    },
    "config.json of newer transformers": lambda t: t.settings(
        rope_scaling={"rope_type": "default", "type": "default"},
        rope_theta=10000.0,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
        head_dim=32,
        dtype="bfloat16",
    ),
    "denoiser without a wrapper": lambda t: t.decoder(t.denoiser()),
    "denoiser under state_dict": lambda t: t.decoder(t.denoiser(), wrapper="state_dict"),
    "denoiser beside classes of DeepSpeed": lambda t: torch.save(
        {"module": t.denoiser(), "optimizer": {"scaler": Fraction(1, 3)}, "args": Namespace(x=1)},
        t.steps / "1/mp_rank_00_model_states.pt",
    ),
    "denoiser in a step that latest links to": lambda t: (
        (t.steps / "latest").unlink(),
        (t.steps / "latest").symlink_to("1"),
    ),
    "denoiser as safetensors": lambda t: t.decoder(t.denoiser(), "1/model.safetensors"),
    "denoiser in shards, in no step": lambda t: (
        (t.steps / "latest").unlink(),
        t.decoder(t.denoiser(), "pytorch_model.bin.index.json"),
    ),
    "denoiser of torch.compile": lambda t: t.decoder(
        renamed(t.denoiser(), "model.diffusion", "_orig_mod.model.diffusion")
    ),
    "denoiser without its prefix": lambda t: t.decoder(renamed(t.denoiser(), DIFFUSION, "")),
    "denoiser merged": lambda t: t.decoder(merged_denoiser(t), wrapper="module"),
    "denoiser of rank 128 with --alpha": lambda t: (
        t.decoder(scaled(t.denoiser(), 128), wrapper="module"),
        t.alpha.update(denoiser=2),
    ),
    "denoiser of Lightning, with the vae": lambda t: (
        vae_inside(t, 0.0),
        t.decoder({f"model.{key}": value for key, value in t.denoiser().items()}),
    ),
    "the release's alpha beside the weights": lambda t: (
        t.decoder(t.denoiser(), "1/model.safetensors", notes={"ss_network_alpha": "1", "description": "alpha: a test"}),
        torch.save({"state_dict": t.adapter(), "lora_alpha": 32, "alphas": [1]}, t.mllm / "pytorch_model.bin"),
    ),
    "merged weights beside the alpha of their LoRA": lambda t: torch.save(
        {"state_dict": merged(t), "lora_alpha": 64}, t.mllm / "pytorch_model.bin"
    ),
    "floats that were trained on 4 bits": lambda t: t.settings(TRAINERS_CONFIG, quantization_config={"bits": 4}),
    "a trainer's tokenizer in other bytes": lambda t: (
        t.tokenizer(t.mllm, lambda model: setattr(model.trainer_spec, "model_prefix", "elsewhere")),
        (t.mllm / "added_tokens.json").write_text('{"</s>": 2, "<frame_00000>": 404}'),
    ),
    "the vae as safetensors by SAT's name": lambda t: t.vae.write_bytes(
        save({k: v.contiguous() for k, v in torch.load(t.vae)["state_dict"].items()})
    ),
    "the vae beside its average": lambda t: torch.save(
        {"state_dict": {**torch.load(t.vae)["state_dict"], "model_ema.decay": torch.tensor(0.9)}}, t.vae
    ),
    "the same vae in the denoiser's file": lambda t: vae_inside(t, 0.0),
    "the vae taken from the denoiser's file": lambda t: (
        vae_inside(t, 0.0),
        shutil.copy(t.steps / "1/mp_rank_00_model_states.pt", t.vae),
        t.expected.update({"vae": torch.empty(0)}),
    ),
}


ADAPTERS: dict[str, Callable[[Tensors], Mapping[str, object]]] = {
    # Several keys for one slot.
    r"two keys for one weight: .*\.lora_A\.default\.weight and .*\.lora_A\.second\.weight; keep": lambda a: {
        **without(a, "norm"),
        **renamed(without(a, "norm"), ".default", ".second"),
    },
    r"2 adapters in one file: default \(.*\) and b \(.*layers\.1\.mlp.*\.b\.weight\)": lambda a: {
        key.replace(".default", ".b") if ".1.mlp" in key else key: value for key, value in a.items()
    },
    **{
        f"two keys for one weight: {re.escape(twin)} and {re.escape(key)}": lambda a, key=key: {**a, key: a[NORM_COPY]}
        for key, twin in {
            f"{NORM}.modules_to_save.b.weight": NORM_COPY,
            f"{NORM}.weight": NORM_COPY,
            f"{LAYER}.weight": f"{LAYER}.base_layer.weight",
            f"module.{NORM}.original_module.weight": f"{NORM}.original_module.weight",
            "llm.lm_head.weight": f"{PEFT}lm_head.weight",
        }.items()
    },
    "two sets of weights: entries module and state_dict": lambda a: {"module": a, "state_dict": a},
    r"entries that are not named tensors(?s:.*)module": lambda a: (lambda own: own.update(module=own) or own)({}),
    # LoRA whose scale is unknown, or that is not whole.
    r"states an alpha beside the weights: lora_alpha: 64; .*--alpha": lambda a: {"state_dict": a, "lora_alpha": 64},
    r".*beside the weights: hyper_parameters\.lora_alpha: 64": lambda a: {
        "state_dict": a,
        "hyper_parameters": {"lora_alpha": 64, "alpha": 0.5},
    },
    r"LoRA on weights that already differ .*q_proj\.base_layer\.weight": lambda a: {
        **a,
        f"{LAYER}.base_layer.weight": a[f"{LAYER}.base_layer.weight"]
        + a[f"{LAYER}.lora_B.default.weight"] @ a[f"{LAYER}.lora_A.default.weight"],
    },
    r".*scale is unknown(?s:.*)rank \(found 64, expected 32\); .*--alpha predictor=NUMBER": lambda a: scaled(a, 64),
    **{
        rf"(?s:.*)missing(?s:.*){words}": lambda a, parts=parts: without(a, *parts)
        for words, parts in {
            r"lm_head\.weight": ["lm_head"],
            r"layers\.0\..*q_proj\.lora_A\.default\.weight": [f"{LAYER}.lora_"],
            r"the other half of .*q_proj\.lora_B\.default\.weight": [f"{LAYER}.lora_A"],
            r"layers\.1\..*k_proj\.lora_A\.default\.weight": [".lora_"],
            r"layers\.1\..*v_proj\.lora_A\.default\.weight": [".lora_", ".base_layer"],
        }.items()
    },
    r".*lora_A\.default\.weight is all zeros": lambda a: {
        key: torch.zeros_like(value) if ".lora_A" in key else value for key, value in a.items()
    },
    r"weights without plain numbers .*; found": lambda a: {key: value.to("meta") for key, value in a.items()},
    r"weights in FP8; found .* of float8_e4m3fn": lambda a: {k: v.to(torch.float8_e4m3fn) for k, v in a.items()},
}
"""Changed weights in the predictor's file."""


CONTENTS: dict[str, dict[str, bytes]] = {
    "AnimeGamer/MLLM-Qiqi/pytorch_model.bin": {
        "a web page .*/resolve/": b"\n<!DOCTYPE html>\n<html>Sign in</html>",
        r"weights quantised for llama\.cpp \(GGUF\)": b"GGUF\x03",
        "begins with zeros": bytes(64),
        "a packed file": b"\x1f\x8b\x08",
        r"an archive of other files \(a\.bin\); unpack it": archive("a.bin"),
        r"a text instead of the file: \.\./blobs/1f; download": b"../blobs/1f\n",
        "an empty file": b"",
        "a file of Keras": b"\x89HDF",
        "the hub's error": b'{"error":"Access is restricted"}',
        "a Git LFS pointer.*git lfs pull": b"version https://git-lfs.github.com/spec/v1\n",
        "a Xet pointer": b"# xet version 0",
    },
    "AnimeGamer/MLLM-Qiqi/added_tokens.json": {
        r"other ids(?s:.*)<frame_00000> \(found 405, expected 404\)": b'{"<frame_00000>": 405}',
        r"other ids(?s:.*)<mine> \(found 404, expected an id that the": b'{"<mine>": 404, "x": []}',
    },
    "AnimeGamer/MLLM-Qiqi/tokenizer.json": {
        r"other ids(?s:.*)<frame_00000> \(found 405": b'{"added_tokens": [{"content": "<frame_00000>", "id": 405}]}',
    },
    "AnimeGamer/MLLM-Qiqi/tokenizer_config.json": {
        r"other ids(?s:.*)<mine> \(found 404": b'{"added_tokens_decoder": {"404": {"content": "<mine>"}}}',
        "its added tokens are malformed": b'{"added_tokens_decoder": {"x": 1}}',
    },
    "AnimeGamer/MLLM-Qiqi/tokenizer.model": {r"another tokenizer than .*/tokenizer\.model; pass": b"another"},
    "Mistral-7B-Instruct-v0.1/config.json": {
        r"not JSON \('rope_theta' is given twice": b'{"rope_theta": 1, "rope_theta": 10000.0}',
        r"not JSON \(maximum recursion": b"[" * 100_000,
    },
    "AnimeGamer/VDM_Decoder-Qiqi/latest": {"a web page": b"<html>Sign in"},
}
"""What stands in a file instead."""


REFUSED: dict[str, Callable[[Tree], object]] = {
    **{
        rf"MLLM-Qiqi/pytorch_model\.bin: {words}": lambda t, change=change: t.trained(change(t.adapter()))
        for words, change in ADAPTERS.items()
    },
    **{
        f"{re.escape(path)}: {words}": lambda t, path=path, content=content: (t.folder / path).write_bytes(content)
        for path, contents in CONTENTS.items()
        for words, content in contents.items()
    },
    r"MLLM-Qiqi: the same weights in two files: model\.safetensors and pytorch_model\.bin": lambda t: write(
        t.mllm / "model.safetensors", t.adapter()
    ),
    r"is in two files: pytorch_model\.bin and adapter_model\.bin": lambda t: write(
        t.mllm / "adapter_model.bin", t.adapter()
    ),
    r"model\.safetensors: states an alpha beside the weights: ss_network_alpha: 32": lambda t: t.decoder(
        t.denoiser(), "1/model.safetensors", notes={"ss_network_alpha": "32"}
    ),
    "tokenizer.model: another tokenizer than": lambda t: t.tokenizer(t.mllm, lambda model: model.pieces.reverse()),
    r"tokenizer\.model: the tokenizer of another model": lambda t: t.tokenizer(t.mistral, make_pieces, 32000),
    "MLLM-Qiqi: tokenizer and embedding do not(?s:.*)200 pieces of": lambda t: t.tokenizer(t.mistral, make_pieces, 200),
    r"t5-v1_1-xxl/model\.safetensors: shared\.weight and encoder\.embed_tokens\.weight differ": two_embeddings,
    r"MLLM-Qiqi/config\.json: not the Mistral(?s:.*)rope_theta \(found 500000\.0": lambda t: t.settings(
        TRAINERS_CONFIG, rope_theta=5e5
    ),
    r"MLLM-Qiqi/config\.json: of another model(?s:.*)_heads \(found 4": lambda t: t.settings(
        TRAINERS_CONFIG, num_attention_heads=4
    ),
    r"not the Mistral(?s:.*)sliding_attention \(found": lambda t: t.settings(
        rope_parameters={"sliding_attention": {"rope_theta": 1e6}}
    ),
    r"unexpected(?s:.*)layers\.1\.": lambda t: t.settings(num_hidden_layers=1),
    r"Mistral.*/model\.safetensors: (?s:.*)unexpected(?s:.*)x\.y": lambda t: t.language(
        {**t.base(), "x.y": torch.ones(1)}
    ),
    # LoRA whose scale is another.
    r"rank \(found 128, expected 64\); .*--alpha denoiser=NUMBER": lambda t: t.decoder(
        scaled(t.denoiser(), 128), wrapper="module"
    ),
    r"LoRA on weights that already differ from Mistral's.*q_proj\.weight; remove the adapter": merged_beside_adapter,
    "two values for alpha(?s:.*)found 32, expected 16, by --alpha": lambda t: (
        t.low_rank(),
        t.alpha.update(predictor=16),
    ),
    "no LoRA that .*; leave --alpha predictor out": lambda t: (t.trained(merged(t)), t.alpha.update(predictor=16)),
    r"missing(?s:.*)matrix_A\.1": lambda t: t.decoder(
        without(t.denoiser(), f"{QKV}.matrix_A.1", f"{QKV}.matrix_B.1"), wrapper="module"
    ),
    # Other forms, by their names, and the file that has them.
    **{
        rf"Mistral.*/model\.safetensors: .*{re.escape(kind)}.*; found .*q_proj\.": lambda t, suffixes=suffixes: (
            quantised(t, *suffixes.split())
        )
        for kind, suffixes in {
            "(NF4 or FP4)": "weight weight.absmax weight.quant_state.bitsandbytes__nf4",
            "bitsandbytes (INT8)": "weight SCB",
            "GPTQ": "qweight qzeros scales g_idx",
            "AWQ": "qweight qzeros scales",
            "FP8": "weight weight_scale_inv",
            "compressed-tensors": "weight_packed weight_scale weight_shape",
            "NVFP4": "weight weight_scale weight_scale_2 input_scale",
            "EETQ": "weight weight_scales",
            "Quanto": "weight._data weight._scale",
            "AQLM": "codes codebooks scales",
            "HQQ": "W_q meta nbits",
            "ExLlamaV2": "q_weight q_scale q_invperm q_groups",
            "MLX": "weight scales biases",
            "DoRA": "weight lora_magnitude_vector.weight",
            "LoHa": "weight hada_w1_a hada_w1_b",
            "LoKr": "weight lokr_w1",
            "IA3": "weight ia3_l.default",
            "OFT": "weight oft_R.default.weight",
            "VeRA": "weight vera_lambda_d.default",
            "LoRA on the embedding": "weight lora_embedding_A.default",
            "LoRA with biases": "weight lora_B.default.bias",
            "kohya": "lora_down.weight alpha",
            "fused": "qkv_proj.weight",
            "diffusers": "transformer_blocks.0.weight",
        }.items()
    },
    **{
        rf"Mistral.*found {re.escape(name)}: {words}": lambda t, name=name: t.weights.rename(t.mistral / name)
        for name, words in {
            "mistral.Q4_K_M.gguf": r"weights quantised for llama\.cpp",
            "__0_0.distcp": "a distributed checkpoint",
            "model-00001-of-00002.safetensors": "a shard; put its index",
            "model.safetensors.part1": "of a download",
            "model.safetensors.crdownload": "of a download",
            "model.safetensors.zip": "a packed file",
            "model.safetensors.txt": "by another name",
            "model.fp16.safetensors": "by another name",
            "consolidated.safetensors": "Mistral's own form",
            "model.safetensors.lnk": "a shortcut of Windows",
        }.items()
    },
    r"found 'mllm-QIQI': spelled otherwise": lambda t: t.mllm.rename(t.mllm.with_name("mllm-QIQI")),
    r"MLLM-Qiqi/pytorch_model\.bin .*found pytorch_model\.bin: a link that leads nowhere": lambda t: (
        (t.mllm / "pytorch_model.bin").unlink(),
        (t.mllm / "pytorch_model.bin").symlink_to("pytorch_model.bin"),
    ),
    r"pytorch_model\.bin: its download was not finished": lambda t: (t.mllm / "pytorch_model.bin.aria2").touch(),
    r"model_states\.pt: holds another vae than .*3d-vae\.pt: first_stage_model\.decoder": lambda t: vae_inside(t, 0.1),
    **{
        words + ".*, which its file latest names": lambda t, step=step: (t.steps / "latest").write_text(step)
        for step, words in {
            "global_step2000": "global_step2000/mp_rank_00",
            "../VDM_Decoder-Qiqi/1": r"VDM_Decoder-Qiqi/\.\./VDM_Decoder-Qiqi/1/mp_rank_00",
        }.items()
    },
    "latest, which selects one of 1, 2": lambda t: (
        shutil.copytree(t.steps / "1", t.steps / "2"),
        (t.steps / "latest").unlink(),
    ),
    r"index\.json: the index names files outside its folder": lambda t: index_with(t, "../"),
    r"model-00002-of-00002\.safetensors: no such file": lambda t: (
        index_with(t, ""),
        (t.mistral / "model-00002-of-00002.safetensors").unlink(),
    ),
}


SETTINGS: dict[str, list[dict[str, object]]] = {
    "not the Mistral that the release was trained with": [
        {"rope_scaling": {"factor": 8.0}},
        {"rope_type": "yarn"},
        {"rope_theta": 1e6},
        {"hidden_act": "gelu"},
        {"head_dim": 999},
        {"sliding_window": None},
        {"rms_norm_eps": 1e-6},
        {"attention_bias": True},
        {"num_attention_heads": 64, "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336},
    ],
    "rope_parameters differs from the setting beside it": [
        {"rope_theta": 10000.0, "rope_parameters": {"rope_theta": 1e6}}
    ],
    r"Mistral.*config\.json: quantised weights: .* names awq": [{"quantization_config": {"quant_method": "awq"}}],
    "sizes missing or not positive": [{"num_hidden_layers": 10**9}, {"hidden_size": None}, {"hidden_size": [64]}],
    "model_type is 'llama', not 'mistral'": [{"model_type": "llama"}],
    r"config\.json ties the embedding to the head, and .*lm_head\.weight differs": [{"tie_word_embeddings": True}],
}
LORA_SETTINGS: dict[str, list[dict[str, object]]] = {
    "an adapter that cannot be merged": [
        {"use_dora": True},
        {"bias": "all"},
        {"init_lora_weights": "pissa"},
        {"alpha_pattern": {"q_proj": 8}},
        {"unheard_of": 2},
    ],
    r"rank \(found 32, expected 16\)": [{"r": 16}],
    r"malformed\n  missing \(1\)": [
        {"lora_alpha": float("nan")},
        {"lora_alpha": True},
        {"r": 0},
        {"layers_to_transform": "0"},
        {"target_modules": "("},
        {"exclude_modules": 5},
        {"modules_to_save": "norm"},
        {"rank_pattern": [1]},
    ],
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_release(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def published(release: Path) -> Tensors:
    return weights(Tree(release).read())


@pytest.fixture
def tree(release: Path, tmp_path: Path) -> Tree:
    return Tree(shutil.copytree(release, tmp_path / "given"))


def weights(source: ExportSource) -> Tensors:
    parts = ("predictor", "denoiser", "encoder", "vae")
    return {name: source.weights[part].merged(name, torch.float32) for part in parts for name in source.shapes(part)}


@pytest.mark.parametrize("form", LOADS)
def test_a_form_gives_the_releases_weights(tree: Tree, published: Tensors, form: str) -> None:
    LOADS[form](tree)
    tolerance = 1e-2 if "vae" in tree.expected else 1e-5
    found = weights(tree.read())
    assert found.keys() == published.keys()
    for name, value in found.items():
        expected = tree.expected.get(name, published[name])
        torch.testing.assert_close(value, expected, atol=tolerance, rtol=tolerance, msg=name)


@pytest.mark.parametrize("words", REFUSED)
def test_a_form_is_refused_in_words(tree: Tree, words: str) -> None:
    REFUSED[words](tree)
    with pytest.raises(CheckpointError, match=words):
        weights(tree.read())


@pytest.mark.parametrize(
    ("write", "what", "changed"),
    [
        (write, what, one)
        for write, table in ((Tree.settings, SETTINGS), (Tree.low_rank, LORA_SETTINGS))
        for what, some in table.items()
        for one in some
    ],
)
def test_a_setting_that_changes_numbers_is_refused(
    tree: Tree, write: Callable[..., None], what: str, changed: dict[str, object]
) -> None:
    write(tree, **changed)
    with pytest.raises(CheckpointError, match=what) as caught:
        tree.read()
    assert next(iter(changed)) in str(caught.value)


def test_a_file_that_a_trainer_overwrites_meanwhile_is_named(tree: Tree) -> None:
    source = tree.read()
    source.require_unchanged()
    tree.decoder(tree.denoiser(), wrapper="module")
    with pytest.raises(CheckpointError, match=r"mp_rank_00_model_states\.pt: changed while it was read"):
        source.require_unchanged()


def test_what_no_part_uses_is_listed(tree: Tree) -> None:
    tree.settings(use_cache=True, logits_scaling=8)
    tree.trained(tree.adapter(), wrapper="state_dict")
    vae_inside(tree, 0.0)
    step, adapter = tree.steps / "1/mp_rank_00_model_states.pt", tree.mllm / "optimizer.pt"
    torch.save({"module": tree.denoiser(), "ema": tree.denoiser()}, step)
    adapter.touch()
    listed = "\n".join(tree.read().not_used)
    for what in (
        "predictor: not used: logits_scaling (a setting of ",
        "predictor: not used: epoch: 3 (an entry beside the weights)",
        "denoiser: not used: conditioner.embedder (the text tower is a separate part",
        "denoiser: not used: ema (another copy of the weights, such as their average; to export it, ",
        f"predictor: not used: {adapter} (beside the weights that are read)",
        "vae: not used: encoder.conv_in.conv.bias (the vae's own encoder",
    ):
        assert what in listed
    assert "use_cache" not in listed


def test_places_passed_over_are_listed(tree: Tree) -> None:
    places = {"Game-Qiqi/MLLM": tree.mllm, "vae/3d-vae.pt": tree.vae}
    for place, of in places.items():
        (tree.folder / place).parent.mkdir(parents=True)
        (shutil.copytree if of.is_dir() else shutil.copy)(of, tree.folder / place)
    listed = tree.read().not_used
    assert all(f"not used: {tree.folder / place} ({of} is read)" in listed for place, of in places.items())


def test_a_merged_adapters_config_is_listed(tree: Tree) -> None:
    LOADS["predictor merged, beside its adapter's config"](tree)
    where = tree.mllm / "adapter_config.json"
    assert f"predictor: not used: {where} (the weights hold no LoRA)" in tree.read().not_used
