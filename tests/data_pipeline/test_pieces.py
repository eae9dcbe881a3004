"""Special pieces: tags as control symbols and as user-defined ones, and models that others have trained."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from configs import PrepareSection, TokenizerSection, UserError
from data_pipeline.pieces import as_controls, as_symbols, fitted
from data_pipeline.preparation import prepare
from data_pipeline.preparation.tokenizing import existing_tokenizer
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import JOINT_FILE, Tokenizer
from tests.data_pipeline.preparation.made import PAIRS, Corpus
from tests.zeromt.made import TAG, make_tokenizer

LINES = [line for pair in PAIRS for line in pair]
THEIRS: dict[str, dict[str, Any]] = {
    "SentencePiece": {},
    "Marian": {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1},
    "T5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "fairseq": {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3},
    "bytes": {"byte_fallback": True, "vocab_size": 400, "hard_vocab_limit": False},
    "symbols": {"user_defined_symbols": [TAG, "<sep>"]},
}


def _train(**options: Any) -> bytes:
    model = io.BytesIO()
    given = {"vocab_size": 50, "model_type": "bpe", "minloglevel": 2, "num_threads": 1, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES), model_writer=model, **given)
    return model.getvalue()


def _pieces(model: bytes, lines: list[str]) -> list[list[str]]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [[processor.id_to_piece(i) for i in row] for row in processor.encode(lines)]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("whose", THEIRS)
def test_texts_are_cut_as_before(whose: str, kind: str) -> None:
    model = _train(model_type=kind, **THEIRS[whose])
    ours = fitted(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=ours)
    assert [processor.id_to_piece(i) for i in range(4)] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id()) == (0, 1, 2, 3)
    lines = [*LINES[:40], "☃ what no piece has", "", "a <sep> b </s>"]
    assert _pieces(ours, lines) == _pieces(model, lines)
    assert fitted(ours) == ours, "once"


def test_our_own_stay_to_the_byte(small: Dataset) -> None:
    model = (small.folder / "tokenizer.model").read_bytes()
    assert fitted(model) is model


@pytest.mark.parametrize("whose", THEIRS)
def test_a_dataset_is_prepared_with_them(corpus: Corpus, tmp_path: Path, whose: str) -> None:
    (tmp_path / "theirs.model").write_bytes(_train(**THEIRS[whose]))
    section = corpus(PAIRS, tokenizer=TokenizerSection(path=str(tmp_path / "theirs.model")))
    prepare.run(section)
    prepare.run(section)  # it is there already
    dataset = Dataset.load(tmp_path / "out")
    assert dataset.verify() == []
    assert dataset.tokenizer.tags == ((TAG,) if whose == "symbols" else ())


def test_tags_that_are_user_defined_symbols(corpus: Corpus, tmp_path: Path) -> None:
    """Where the ids are ours already, those that `tags` names: others may be meant as text."""
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "user_defined_symbols": [TAG, ">>deu<<"]}
    (tmp_path / "theirs.model").write_bytes(_train(**ids))
    section = TokenizerSection(path=str(tmp_path / "theirs.model"))
    found = [existing_tokenizer(dataclasses.replace(section, tags=tags)) for tags in ([], [TAG])]
    assert [one.tags for one in found if one is not None] == [(), (TAG,)]
    made: PrepareSection = corpus(PAIRS, tokenizer=dataclasses.replace(section, tags=[TAG]), target_tag=TAG)
    prepare.run(made)
    dataset = Dataset.load(tmp_path / "out")
    assert dataset.read_block(0).source[0] == dataset.tokenizer.tag_id(TAG)


def test_what_makes_a_model_fit_is_said(tmp_path: Path) -> None:
    """A special piece that is cut from texts cannot be ours."""
    model = _train(pad_id=-1, user_defined_symbols=["<pad>"])
    (tmp_path / "theirs.model").write_bytes(model)
    with pytest.raises(UserError, match=r"theirs.model: pad: <pad> is a piece of texts"):
        existing_tokenizer(TokenizerSection(path=str(tmp_path / "theirs.model")))
    proto: Any = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(_train())
    del proto.pieces[0]
    with pytest.raises(UserError, match="unk: <unk> is missing"):
        fitted(proto.SerializeToString())


def test_there_and_back_is_the_same_file() -> None:
    model = make_tokenizer().files()[JOINT_FILE]
    symbols = as_symbols(model)
    assert symbols != model
    assert as_symbols(symbols) == symbols
    assert as_controls(model) == model
    assert as_controls(symbols) == model, "what users have keeps its fingerprint"


def test_a_plain_sentencepiece_cuts_symbols_alone() -> None:
    model = make_tokenizer().files()[JOINT_FILE]
    line = f"{TAG} the cat"
    plain, symbols = (sentencepiece.SentencePieceProcessor(model_proto=m) for m in (model, as_symbols(model)))
    assert symbols.encode(line) == make_tokenizer().encode_source([line])[0] != plain.encode(line)
    assert symbols.encode("the cat sat") == plain.encode("the cat sat")


def test_a_tokenizer_takes_either() -> None:
    ours = make_tokenizer()
    exported = Tokenizer({JOINT_FILE: as_symbols(ours.files()[JOINT_FILE])})
    assert exported.fingerprint == ours.fingerprint
    assert exported.tags == ours.tags == (TAG,)
    assert exported.source_vocabulary() == ours.source_vocabulary()
    lines = [f"{TAG} the cat", f"the {TAG} cat", f" {TAG}", ""]
    assert exported.encode_source(lines) == ours.encode_source(lines)
    assert exported.decode_target([[ours.tag_id(TAG), 9]]) == ours.decode_target([[9]])
