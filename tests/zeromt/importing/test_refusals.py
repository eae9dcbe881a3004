"""Checkpoints that would compute, cut or search otherwise than Transformers does are refused by name, in one line."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from data_pipeline.tokenizer import JOINT_FILE
from tests.conftest import Refused
from tests.zeromt.exporting.made import make_tokenizer
from tests.zeromt.importing.made import INDEX, TENSORS, edit, edit_tensors, resave, save_marian, save_nllb

Harm = Callable[[Path], object]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`marian`, `untied` and `shards` of it, `nllb`, and `new`, with a tokenizer.json alone."""
    pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("checkpoints")
    save_marian(root / "marian")
    save_marian(root / "untied", tie_word_embeddings=False)
    save_marian(root / "shards", tie_word_embeddings=False, max_shard_size="4KB")
    save_nllb(root / "nllb")
    resave(root / "nllb", root / "new")
    return root


def setting(file: str, name: str, value: object) -> Harm:
    return lambda folder: edit(folder / file, **{name: value})


def tensors(more: Mapping[str, torch.Tensor] | None = None, *, without: str = "") -> Harm:
    return lambda folder: edit_tensors(folder / TENSORS, more, without=without)


def written(file: str, content: str) -> Harm:
    return lambda folder: (folder / file).write_text(content)


def shard_of(folder: Path, name: str) -> Path:
    return folder / str(json.loads((folder / INDEX).read_text())["weight_map"][name])


FEED_FORWARD = "model.decoder.layers.0.fc1.weight"


def put_in_two(folder: Path) -> None:
    value = torch.zeros_like(load_file(shard_of(folder, FEED_FORWARD))[FEED_FORWARD])
    edit_tensors(shard_of(folder, "final_logits_bias"), {FEED_FORWARD: value})


def in_tokenizer(part: str, value: object) -> Harm:
    """A part of tokenizer.json, or of one of its parts."""
    first, _, second = part.partition(".")

    def harm(folder: Path) -> None:
        tree = json.loads((folder / "tokenizer.json").read_text())
        tree[first] = {**tree[first], second: value} if second else value
        (folder / "tokenizer.json").write_text(json.dumps(tree))

    return harm


def pickled(folder: Path) -> None:
    (folder / TENSORS).unlink()
    torch.save({}, folder / "pytorch_model.bin")


CONFIG: dict[str, object] = {
    "model_type": "t5",
    "normalize_embedding": True,
    "layernorm_embedding": True,
    "normalize_before": True,
    "add_final_layer_norm": True,
    "static_position_embeddings": False,
    "do_blenderbot_90_layernorm": True,
    "activation_function": "gelu_new",
    "decoder_attention_heads": 1,
    "decoder_ffn_dim": 48,
    "tie_encoder_decoder": True,
    "is_decoder": True,
    "quantization_config": {"load_in_8bit": True},
    "auto_map": {"AutoModel": "own.py"},
    "architectures": ["MarianForCausalLM"],
    "tokenizer_class": "T5Tokenizer",
    "scale_embedding": "yes",
    "pad_token_id": True,
    "eos_token_id": None,
}
GENERATION: dict[str, object] = {
    "num_beams": "four",
    "length_penalty": "long",
    "bad_words_ids": [[5]],
    "suppress_tokens": [5, 87],
    "decoder_start_token_id": 3,
    "eos_token_id": [0, 7],
    "forced_eos_token_id": 7,
    "forced_bos_token_id": 7,
}
TOKENIZER = "tokenizer_config.json"
ROWS: list[tuple[str, Harm, str]] = [
    *(("marian", setting("config.json", name, value), name.removesuffix("_class")) for name, value in CONFIG.items()),
    *(("marian", setting("generation_config.json", name, value), name) for name, value in GENERATION.items()),
    ("marian", setting("generation_config.json", "num_beams", 1000), "generation_config.json: beam: 1000"),
    ("marian", setting("config.json", "vocab_size", 60), "(60, 16)"),
    ("marian", setting("config.json", "encoder_layers", 3), "layers.2.self_attn.q_proj.weight is missing in"),
    ("marian", pickled, "has no model.safetensors"),
    ("marian", written("adapter_config.json", "{}"), "holds an adapter"),
    ("marian", tensors(without="model.shared.weight"), "model.encoder.embed_tokens.weight is missing, and so is"),
    ("marian", tensors(without="final_logits_bias"), "final_logits_bias is missing"),
    ("marian", tensors(without="model.encoder.layers.1.fc2.bias"), "model.encoder.layers.1.fc2.bias is missing in"),
    ("marian", tensors({"model.encoder.layers.2.fc1.weight": torch.ones(16)}), "holds model.encoder.layers.2.fc1.wei"),
    ("marian", tensors({"model.encoder.layer_norm.weight": torch.ones(16)}), "which no marian model"),
    ("marian", tensors({"final_logits_bias": torch.ones(1, 3)}), "final_logits_bias has 3 numbers"),
    ("marian", tensors({"model.shared.weight": torch.ones(20, 16)}), "model.encoder.embed_tokens.weight is (20, 16)"),
    ("marian", tensors({"model.decoder.layers.0.fc1.bias": torch.ones(24).to(torch.int8)}), "fc1.bias is int8 (24,)"),
    *(
        ("untied", tensors(without=name), f"{name} is missing, which config")
        for name in ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    ),
    ("shards", lambda folder: shard_of(folder, FEED_FORWARD).unlink(), FEED_FORWARD),
    (
        "shards",
        lambda folder: edit_tensors(shard_of(folder, FEED_FORWARD), without=FEED_FORWARD),
        "index.json promises",
    ),
    ("shards", put_in_two, f"holds {FEED_FORWARD}"),
    ("shards", lambda folder: save_file({"a": torch.zeros(1)}, folder / TENSORS), "holds two checkpoints"),
    ("shards", written(INDEX, "{"), "cannot be read"),
    ("shards", written(INDEX, '{"weight_map": {"a": 1}}'), "has no weight_map"),
    ("shards", written(INDEX, '{"weight_map": {"a": "../model.safetensors"}}'), "names ../model.safetensors"),
    ("shards", lambda folder: (folder / INDEX).unlink(), "and no model.safetensors.index.json, only model-00001-of-"),
    ("nllb", setting(TOKENIZER, "legacy_behaviour", True), "legacy_behaviour"),
    ("nllb", setting(TOKENIZER, "tokenizer_class", "SMALL100Tokenizer"), "tokenizer_class"),
    ("nllb", setting(TOKENIZER, "sp_model_kwargs", {"enable_sampling": True}), "sp_model_kwargs"),
    ("nllb", setting(TOKENIZER, "added_tokens_decoder", {"5": {"content": "<glossary>"}}), "<glossary>"),
    ("nllb", setting(TOKENIZER, "added_tokens_decoder", {"900": {"content": "deu_Latn"}}), "none for deu_Latn"),
    ("nllb", setting(TOKENIZER, "added_tokens_decoder", None), "no file says which pieces are languages"),
    ("nllb", setting(TOKENIZER, "src_lang", "xxx_Latn"), "src_lang"),
    (
        "nllb",
        lambda folder: (folder / "sentencepiece.bpe.model").write_bytes(make_tokenizer().files()[JOINT_FILE]),
        "sentencepiece.bpe.model begins with <pad>, <s>, </s>",
    ),
    ("new", in_tokenizer("model.type", "WordPiece"), "model 'WordPiece'"),
    ("new", in_tokenizer("model.dropout", 0.1), "dropout 0.1"),
    ("new", in_tokenizer("model.end_of_word_suffix", "</w>"), "end_of_word_suffix"),
    ("new", in_tokenizer("model.merges", []), "which SentencePiece would make"),
    ("new", in_tokenizer("normalizer", {"type": "Lowercase"}), "normalizer"),
    ("new", in_tokenizer("pre_tokenizer", {"type": "Digits"}), "pre_tokenizer"),
    ("new", in_tokenizer("pre_tokenizer", None), "pre_tokenizer"),
    ("new", lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer"),
]


@pytest.mark.parametrize(("kind", "harm", "said"), ROWS)
def test_refused(kind: str, harm: Harm, said: str, checkpoints: Path, tmp_path: Path, refused: Refused) -> None:
    harm(Path(shutil.copytree(checkpoints / kind, tmp_path / "theirs")))
    assert said in refused("import", "--huggingface", "theirs", "-o", "run")
    assert not (tmp_path / "run").exists()
