"""Special pieces: tags as control symbols and as user-defined ones, and models that others have trained."""

import sentencepiece

from data_pipeline.tokenizer import JOINT_FILE, Tokenizer, as_controls, as_symbols
from tests.zeromt.made import TAG, make_tokenizer


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
