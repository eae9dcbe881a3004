"""What others trained computes the same here, and text is cut as there."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentencepiece import SentencePieceProcessor
from torch.nn import functional as F

from data_pipeline.tokenizer import JOINT_FILE, SOURCE_FILE, TARGET_FILE, Tokenizer
from tests.model.notebooks import log_probabilities, tiny_notebook
from tests.zeromt.made import ENGLISH, FRENCH, greedy, make_run
from tests.zeromt.their_models import (
    TENSORS,
    edit,
    edit_tensors,
    save_marian,
    save_nllb,
)
from zeromt.cli.main import main
from zeromt.formats.check import load_exact
from zeromt.importing.huggingface import Loaded, load_checkpoint

SOURCE, TARGET = [4, 9, 12, 30, 2], [1, 5, 8, 40]


def save_notebook(preset: str, tokenizer: Tokenizer, path: Path) -> Any:
    sizes = {"source_vocab": tokenizer.source_vocab_size, "target_vocab": tokenizer.target_vocab_size}
    notebook = tiny_notebook(preset, **sizes)
    save_file({name: t.contiguous() for name, t in notebook.state_dict().items()}, path)
    return notebook


def test_a_notebook(separate: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def check_same(folder: Path, theirs: Any, source: list[int] = SOURCE, target: list[int] = TARGET) -> Loaded:
    """Of our ids: log-probabilities of every piece that theirs has, the rest impossible."""
    loaded = load_checkpoint(folder)
    rows, vocabulary = loaded.vocabularies.source.rows, loaded.vocabularies.target
    their_source = torch.tensor([[rows[i] for i in source]])
    their_target = torch.tensor([[vocabulary.rows[i] for i in target]])
    with torch.no_grad():
        hidden = loaded.model(torch.tensor([source]), torch.tensor([target]))
        ours = F.log_softmax(loaded.model.output(hidden), -1)
        expected = F.log_softmax(theirs(input_ids=their_source, decoder_input_ids=their_target).logits, -1)
    can = [i for i in range(len(vocabulary.rows)) if i not in vocabulary.never]
    assert sorted(vocabulary.rows[i] for i in can) == list(range(expected.shape[-1]))
    torch.testing.assert_close(ours[..., can], expected[..., [vocabulary.rows[i] for i in can]], rtol=0, atol=1e-5)
    assert (ours[..., vocabulary.never] < -50).all()
    return loaded


@pytest.mark.parametrize("is_joint", [True, False])
def test_marian(is_joint: bool, joint: Tokenizer, separate: Tokenizer, tmp_path: Path) -> None:
    """Like Helsinki-NLP's: one vocabulary of two SentencePiece models, padding last, which also begins a target."""
    files = {**joint.files(), **separate.files()}
    models = [files[JOINT_FILE if is_joint else name] for name in (SOURCE_FILE, TARGET_FILE)]
    cut = SentencePieceProcessor(model_proto=models[0]).encode(ENGLISH[0], out_type=str)
    theirs = save_marian(tmp_path, models=models, without=max(cut, key=len))
    for file in list(tmp_path.iterdir()):  # as in Hugging Face's cache, where every file is a link
        file.symlink_to(file.rename(tmp_path / f"blob of {file.name}"))
    loaded = check_same(tmp_path, theirs)
    ours, rows = loaded.tokenizer, loaded.vocabularies.source.rows
    assert ours.is_joint == is_joint

    tokenizer = pytest.importorskip("transformers").MarianTokenizer.from_pretrained(tmp_path)
    lines = [*ENGLISH[:6], f">>fra<< {ENGLISH[7]}", "é ü"]
    assert tokenizer(lines)["input_ids"] == [[rows[i] for i in (*ids, 2)] for ids in ours.encode_source(lines)]
    assert ours.decode_target(ours.encode_target(FRENCH[:5])) == FRENCH[:5]


@pytest.mark.parametrize(
    "options",
    [
        {"scale_embedding": False},
        {"activation_function": "gelu", "decoder_layers": 2, "encoder_layers": 1},
        {"share_encoder_decoder_embeddings": False},
        {"tie_word_embeddings": False, "max_shard_size": "4KB"},
    ],
)
def test_options_of_marian(options: dict[str, Any], tmp_path: Path) -> None:
    check_same(tmp_path / "theirs", save_marian(tmp_path / "theirs", **options))


def test_nllb(tmp_path: Path) -> None:
    """And M2M100, which differs in its tokenizer alone: tests/trainer/inference/test_languages.py imports one."""
    theirs = save_nllb(tmp_path)
    edit(tmp_path / "config.json", scale_embedding=None)  # is true unless it is said
    loaded = check_same(tmp_path, theirs)
    ours, rows = loaded.tokenizer, loaded.vocabularies.source.rows
    assert {">>eng_Latn<<", ">>fra_Latn<<"} <= set(ours.tags)
    tokenizer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    expected = tokenizer(ENGLISH[:9])["input_ids"]
    lines = [f">>eng_Latn<< {line}" for line in ENGLISH[:9]]
    assert [[rows[i] for i in (*ids, 2)] for ids in ours.encode_source(lines)] == expected


def test_stored_matrices_count(tmp_path: Path) -> None:
    """Config.json ties them, and Transformers takes each as it is stored."""
    transformers = pytest.importorskip("transformers")
    save_marian(tmp_path)
    shared = load_file(tmp_path / TENSORS)["model.shared.weight"]
    edit_tensors(tmp_path / TENSORS, {"lm_head.weight": shared + 1})
    check_same(tmp_path, transformers.MarianMTModel.from_pretrained(tmp_path).eval())


@pytest.mark.parametrize("half", [torch.float32, torch.float16])
def test_stored_positions_are_the_sinusoids(half: torch.dtype, tmp_path: Path) -> None:
    """Older checkpoints hold them."""
    theirs = save_marian(tmp_path)
    table = load_checkpoint(tmp_path).model.source_embedding.positions.table
    edit_tensors(tmp_path / TENSORS, {"model.encoder.embed_positions.weight": table.to(half)})
    check_same(tmp_path, theirs)


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
