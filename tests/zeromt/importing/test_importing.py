"""What others trained computes the same here, and is refused by name where it cannot."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sentencepiece import SentencePieceProcessor
from torch.nn import functional as F

from data_pipeline.tokenizer import JOINT_FILE, SOURCE_FILE, TARGET_FILE, Tokenizer
from tests.conftest import Refused
from tests.model.notebooks import log_probabilities, tiny_notebook
from tests.zeromt.exporting.made import ENGLISH, FRENCH, greedy, make_run
from zeromt.cli.main import main
from zeromt.exporting.command import load_exact
from zeromt.importing.huggingface import load_huggingface
from zeromt.importing.pieces import read_vocabularies

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


def save_notebook(preset: str, tokenizer: Tokenizer, path: Path) -> Any:
    sizes = {"source_vocab": tokenizer.source_vocab_size, "target_vocab": tokenizer.target_vocab_size}
    notebook = tiny_notebook(preset, **sizes)
    save_file({name: t.contiguous() for name, t in notebook.state_dict().items()}, path)
    return notebook


def test_a_notebook_is_translated_with(separate: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = save_notebook("notebook_postnorm_es", separate, tmp_path / "state.safetensors")
    separate.save(tmp_path)
    options = ["--preset", "notebook_postnorm_es", "--tokenizer", str(tmp_path), "--num-heads", "3"]
    assert main(["import", str(tmp_path / "state.safetensors"), *options, "-o", str(tmp_path / "run")]) == 0
    trained = load_exact(tmp_path / "run")
    source, target = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 8, 9]])
    with torch.no_grad():
        ours = trained.model.output(trained.model(source, target)).log_softmax(-1)
        torch.testing.assert_close(ours, log_probabilities(notebook, source, target), rtol=0, atol=1e-5)
    assert main(["inspect", str(tmp_path / "run" / "checkpoints" / "step-00000000")]) == 0
    assert "zeromt import: weights only" in capsys.readouterr().out
    (tmp_path / "in").write_text("the cat\n\n")
    assert main(["translate", str(tmp_path / "run"), "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]) == 0
    assert len((tmp_path / "out").read_text().split("\n")) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["{state}", "--preset", "vaswani_huge", "--tokenizer", "{model}"],
            "preset: there is no preset 'vaswani_huge'",
        ),
        (["{state}", "--preset", "notebook_gelu_dk", "--tokenizer", "{model}", "--num-heads", "3"], "missing"),
        (["{state}", "--preset", "notebook_postnorm_es"], "--preset and --tokenizer"),
        (["{pickle}", "--preset", "notebook_postnorm_es", "--tokenizer", "{model}"], "is not a safetensors file"),
        (["{state}", "--preset", "notebook_postnorm_es", "--tokenizer", "{pickle}"], "is no SentencePiece model"),
        (
            ["{state}", "--preset", "notebook_postnorm_es", "--tokenizer", "{model}", "--num-heads", "3"],
            "--tokenizer: 90 source pieces",
        ),
        (["--huggingface", "{folder}", "--preset", "x"], "--huggingface: with --preset"),
        (["--huggingface", "{folder}"], "config.json cannot be read"),
    ],
)
def test_refuses_in_one_line(
    arguments: list[str], said: str, joint: Tokenizer, separate: Tokenizer, tmp_path: Path, refused: Refused
) -> None:
    save_notebook("notebook_postnorm_es", separate, tmp_path / "state")
    joint.save(tmp_path)
    torch.save({"a": torch.ones(1)}, tmp_path / "pickle")
    places = {n: tmp_path / n for n in ("state", "pickle")}
    filled = [a.format(**places, model=tmp_path / "tokenizer.model", folder=tmp_path) for a in arguments]
    assert said in refused("import", *filled, "-o", "run")
    assert not (tmp_path / "run").exists()


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


def check_same(folder: Path, theirs: Any, source: list[int], target: list[int]) -> None:
    """Of our ids: log-probabilities of every piece that theirs has, the rest impossible."""
    config = json.loads((folder / "config.json").read_text())
    model, _ = load_huggingface(folder)
    sizes = (theirs.get_input_embeddings().num_embeddings, theirs.get_output_embeddings().out_features)
    found = read_vocabularies(folder, config, sizes=sizes)
    their_source = torch.tensor([[found.source.rows[i] for i in source]])
    their_target = torch.tensor([[found.target.rows[i] for i in target]])
    with torch.no_grad():
        ours = F.log_softmax(model.output(model(torch.tensor([source]), torch.tensor([target]))), -1)
        expected = F.log_softmax(theirs(input_ids=their_source, decoder_input_ids=their_target).logits, -1)
    can = [i for i in range(len(found.target.rows)) if i not in found.target.never]
    assert sorted(found.target.rows[i] for i in can) == list(range(sizes[1]))
    torch.testing.assert_close(ours[..., can], expected[..., [found.target.rows[i] for i in can]], rtol=0, atol=1e-5)
    assert (ours[..., found.target.never] < -50).all()


@pytest.mark.parametrize("is_joint", [True, False])
def test_marian(is_joint: bool, joint: Tokenizer, separate: Tokenizer, tmp_path: Path) -> None:
    """Like Helsinki-NLP's: one vocabulary of two SentencePiece models, padding last, which also begins a target."""
    transformers = pytest.importorskip("transformers")
    files = {**joint.files(), **separate.files()}
    models = {
        side: SentencePieceProcessor(model_proto=files[JOINT_FILE if is_joint else name])
        for side, name in (("source", SOURCE_FILE), ("target", TARGET_FILE))
    }
    pieces = dict.fromkeys(m.id_to_piece(i) for m in models.values() for i in range(4, m.get_piece_size()))
    cut = models["source"].encode(ENGLISH[0], out_type=str)
    pieces.pop(max(cut, key=len))  # is in the SentencePiece model alone
    vocabulary = ["</s>", "<unk>", *[p for p in pieces if not p.startswith(">>")], ">>fra<<", "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(vocabulary)}))
    for side, m in models.items():
        (tmp_path / f"{side}.spm").write_bytes(m.serialized_model_proto())
    pad = len(vocabulary) - 1
    config = transformers.MarianConfig(
        **SIZES, vocab_size=len(vocabulary), pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0,
        forced_eos_token_id=0, activation_function="swish", scale_embedding=True,
    )  # fmt: skip
    theirs = shaken(transformers, "MarianMTModel", config)
    theirs.save_pretrained(tmp_path)
    for file in list(tmp_path.iterdir()):  # as in Hugging Face's cache, where every file is a link
        file.symlink_to(file.rename(tmp_path / f"blob of {file.name}"))
    _, ours = load_huggingface(tmp_path)
    assert ours.is_joint == is_joint
    check_same(tmp_path, theirs, [4, 9, 12, 30, 2], [1, 5, 8, 40])

    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path)
    lines = [*ENGLISH[:6], f">>fra<< {ENGLISH[7]}", "é ü"]
    rows = read_vocabularies(tmp_path, config.to_dict(), sizes=(pad + 1, pad + 1)).source.rows
    assert tokenizer(lines)["input_ids"] == [[rows[i] for i in (*ids, 2)] for ids in ours.encode_source(lines)]
    assert ours.decode_target(ours.encode_target(FRENCH[:5])) == FRENCH[:5]


@pytest.mark.parametrize("kind", ["nllb", "m2m100"])
def test_m2m100_and_nllb(kind: str, joint: Tokenizer, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = SentencePieceProcessor(model_proto=joint.files()[JOINT_FILE])
    pieces = [model.id_to_piece(i) for i in range(5, model.get_piece_size())]
    if kind == "nllb":  # as fairseq's: <unk>, <s>, </s>, then the pieces, which stand one place later in the model
        proto = fairseq_model(joint.files()[JOINT_FILE])
        codes = {4 + len(pieces): "eng_Latn", 5 + len(pieces): "fra_Latn"}
        added = [{"id": i, "content": c} for i, c in codes.items()]
        (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    else:
        proto = joint.files()[JOINT_FILE]
        vocabulary = {p: i for i, p in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
        (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
        codes = {4 + len(pieces): "__en__", 5 + len(pieces): "__fr__"}
        decoder = {str(i): {"content": c} for i, c in codes.items()}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    (tmp_path / "sentencepiece.bpe.model").write_bytes(proto)
    config = transformers.M2M100Config(
        **SIZES, vocab_size=len(pieces) + 9, scale_embedding=True, decoder_start_token_id=2, activation_function="relu"
    )
    theirs = shaken(transformers, "M2M100ForConditionalGeneration", config)
    theirs.save_pretrained(tmp_path)
    _, ours = load_huggingface(tmp_path)
    english, french = (">>eng_Latn<<", ">>fra_Latn<<") if kind == "nllb" else (">>en<<", ">>fr<<")
    assert set(ours.tags) == {english, french}
    rows = read_vocabularies(tmp_path, config.to_dict(), sizes=(len(pieces) + 9,) * 2).source.rows
    expected = [codes_id := 4 + len(pieces), *(4 + pieces.index(p) for p in model.encode(ENGLISH[0], out_type=str))]
    assert [rows[i] for i in ours.encode_source([f"{english} {ENGLISH[0]}"])[0]] == expected
    assert rows[ours.encode_source([french])[0][0]] == codes_id + 1
    check_same(tmp_path, theirs, [*ours.encode_source([f"{english} {ENGLISH[0]}"])[0], 2], [1, 9, 20, 31])


def fairseq_model(content: bytes) -> bytes:
    """A SentencePiece model with <unk>, <s>, </s> in front, as fairseq trained them; NLLB has the pieces one later."""
    from sentencepiece import sentencepiece_model_pb2

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


@pytest.mark.parametrize("options", [{}, {"norm_position": "post", "output_bias": True}])
def test_there_and_back(options: dict[str, Any], joint: Tokenizer, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = make_run(tmp_path / "run", joint, **options)
    places = [str(tmp_path / name) for name in ("run", "hugging", "back")]
    assert main(["export", places[0], "--format", "huggingface", "-o", places[1]]) == 0
    assert main(["import", "--huggingface", places[1], "-o", places[2]]) == 0
    back = load_exact(tmp_path / "back")
    assert back.tokenizer.source_vocabulary() == joint.source_vocabulary()
    assert greedy(back.model, back.tokenizer, ENGLISH[:8]) == greedy(model, joint, ENGLISH[:8])
