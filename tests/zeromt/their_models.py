"""Small checkpoints as Transformers' own classes save them, with random weights of which none is 0 or 1."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from data_pipeline.tokenizer import JOINT_FILE
from tests.zeromt.made import make_tokenizer
from zeromt.cli.main import main

TENSORS = "model.safetensors"
SIZES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 40,
}


def shaken(transformers: Any, name: str, config: Any) -> Any:
    """A model of Transformers with no weight left at 0 or 1."""
    torch.manual_seed(1)
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "embed_positions" not in key:
                parameter.add_(0.2 * torch.randn(parameter.shape))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model


def save_marian(
    folder: Path, *, models: Sequence[bytes] = (), without: str = "", max_shard_size: str = "1GB", **options: Any
) -> Any:
    """As Helsinki-NLP's: EOS 0, unknown 1, padding last, which also begins a target. The model.

    Args:
        folder: of the checkpoint.
        models: SentencePiece's, of the source and of the target; there is a tag, then.
        without: a piece that is in these alone.
        max_shard_size: of a file of weights.
        options: of the configuration.
    """
    transformers = pytest.importorskip("transformers")
    folder.mkdir(exist_ok=True)
    pieces: dict[str, None] = {}
    for side, content in zip(("source", "target"), models or [make_tokenizer().files()[JOINT_FILE]] * 2, strict=True):
        (folder / f"{side}.spm").write_bytes(content)
        model = SentencePieceProcessor(model_proto=content)
        pieces |= dict.fromkeys(model.id_to_piece(i) for i in range(5, model.get_piece_size()))
    pieces.pop(without, None)
    vocabulary = ["</s>", "<unk>", *pieces, *([">>fra<<"] if models else []), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(vocabulary)}))
    pad = len(vocabulary) - 1
    ids = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0, "forced_eos_token_id": 0}
    sizes = {**SIZES, **ids, "vocab_size": len(vocabulary), "activation_function": "swish", "scale_embedding": True}
    theirs = shaken(transformers, "MarianMTModel", transformers.MarianConfig(**{**sizes, **options}))
    theirs.save_pretrained(folder, max_shard_size=max_shard_size)
    return theirs


def save_nllb(folder: Path, **options: Any) -> Any:
    """As facebook's, but small, with its SentencePiece model. The model."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(exist_ok=True)
    content = fairseq_model(make_tokenizer().files()[JOINT_FILE])
    (folder / "sentencepiece.bpe.model").write_bytes(content)
    size = SentencePieceProcessor(model_proto=content).get_piece_size() + 1
    codes = {size: "eng_Latn", size + 1: "fra_Latn"}
    added = {"added_tokens_decoder": {str(i): {"content": code, "special": True} for i, code in codes.items()}}
    settings = {"tokenizer_class": "NllbTokenizer", "additional_special_tokens": list(codes.values()), **added}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    sizes = {**SIZES, **ids, "vocab_size": size + 4, "scale_embedding": True, "activation_function": "relu"}
    theirs = shaken(transformers, "M2M100ForConditionalGeneration", transformers.M2M100Config(**{**sizes, **options}))
    theirs.save_pretrained(folder)
    return theirs


def fairseq_model(content: bytes) -> bytes:
    """A SentencePiece model with <unk>, <s>, </s> in front, as fairseq trained them; NLLB has the pieces one later."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(content)
    kept = list(proto.pieces)
    del proto.pieces[:]
    for piece in (kept[3], kept[1], kept[2], *kept[5:]):
        proto.pieces.add().CopyFrom(piece)
    spec = proto.trainer_spec
    spec.unk_id, spec.bos_id, spec.eos_id, spec.pad_id = 0, 1, 2, -1
    converted: bytes = proto.SerializeToString()
    return converted


def edit(path: Path, **changes: Any) -> None:
    """Set fields of a JSON file; a value of None takes the field out."""
    tree = json.loads(path.read_text()) if path.exists() else {}
    tree |= changes
    path.write_text(json.dumps({name: value for name, value in tree.items() if value is not None}))


def edit_tensors(path: Path, more: Mapping[str, torch.Tensor] | None = None, *, without: str = "") -> None:
    """Take a tensor out of a safetensors file, or put others in."""
    tensors = {name: t for name, t in load_file(path).items() if name != without}
    save_file({**tensors, **(more or {})}, path, metadata={"format": "pt"})


def imported(folder: Path, output: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What an import says."""
    capsys.readouterr()
    assert main(["import", "--huggingface", str(folder), "-o", str(output), *options]) == 0
    return capsys.readouterr().out
