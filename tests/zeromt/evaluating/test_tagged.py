"""One set is translated with the same tag by every command, and lines without one are spoken of."""

import json
from pathlib import Path

import pytest

from configs import PrepareSection, TokenizerSection
from data_pipeline.preparation.tokenizing import train_tokenizer
from tests.conftest import Call, bundled
from tests.forked import Forked
from trainer.evaluation.sets import tagged

SET = "{name: x, source: x.en, references: [x.fr]}"
UNTAGGED = "source lines have no tag, and all that the model was trained on have one"


@pytest.fixture(scope="module")
def place(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, `one`, on a dataset with a tag."""
    root = tmp_path_factory.mktemp("tagged")
    for name, lines in (("a", slice(0, 200)), ("x", slice(200, 206))):
        for language in ("en", "fr"):
            (root / f"{name}.{language}").write_bytes(bundled(language, lines))
    shared = """
prepare:
  target_language: fr
  output: data/fra
  train: {source: [a.en], target: [a.fr]}
  tokenizer: {vocab_size: 300, tags: [">>fra<<", ">>eng<<"]}
  max_pieces: 128
  target_tag: ">>fra<<"
"""
    (root / "one.yaml").write_text(f"{shared}\nevaluation: {{every_updates: 20, sets: [{SET}]}}\n")
    (root / "own.en").write_text("".join(f">>fra<< {line}" for line in (root / "x.en").open()))
    small = [
        "model.d_model=32", "model.encoder_layers=1", "model.decoder_layers=1", "model.attention.num_heads=2",
        "model.feed_forward.d_ff=64", "model.max_positions=256", "model.dropout=0", "stream.source_tokens=512",
        "stream.target_tokens=512", "stream.micro_batches=1", "schedule.warmup_updates=5", "optimizer.lr=0.01",
        "training.max_updates=20", "training.tensorboard=false",
        "checkpoint.every_updates=20", "engine.precision=fp32",
    ]  # fmt: skip
    for words in (("prepare", "one.yaml"), ("train", "one.yaml", "name=one", *small)):
        done = forked.zeromt(*words, cwd=root)
        assert done.code == 0, done.err
    return root


def test_evaluate_compare_and_training_put_the_same_tag_before_a_set(place: Path, call: Call) -> None:
    by_set = call("evaluate", "runs/one", "--set", SET, "-o", "by-set", cwd=place)
    for name, source in (("by-files", "x.en"), ("by-own", "own.en")):
        done = call("evaluate", "runs/one", "--source", source, "--reference", "x.fr", "-o", name, cwd=place)
        assert done.code == by_set.code == 0, done.err
        assert UNTAGGED not in done.err
    untagged = call("translate", "runs/one", "-i", "x.en", "-o", "untagged", cwd=place)
    assert f"6 {UNTAGGED}" in untagged.err
    expected = (place / "by-set").read_bytes()
    [of_training] = (place / "runs" / "one" / "eval").glob("*.hyp")
    others = [place / "by-files", place / "by-own", of_training]
    assert [file.read_bytes() for file in others] == [expected] * 3
    assert (place / "untagged").read_bytes() != expected
    quick = ("--bootstrap", "0", "--randomisation", "0", "--json")
    [compared] = json.loads(call("compare", "runs/one", "--set", SET, *quick, cwd=place).out)["sets"]
    chrf = next(metric for metric in compared["scores"] if metric["key"] == "chrf")
    assert round(chrf["runs"][0]["score"], 2) == json.loads(by_set.out)["sets"]["x"]["chrf"]


def test_the_runs_tag_comes_before_lines_without_one_of_its_language() -> None:
    section = TokenizerSection(vocab_size=60, threads=1, tags=[">>fra<<", ">>deu<<"])
    lines = [f"the cat {number} sat" for number in range(100)]
    tokenizer = train_tokenizer(section, lines, [line.upper() for line in lines])
    prepare = PrepareSection(target_language="fr", target_tag=">>fra<<", tokenizer=section)
    lines = ["a", ">>fr<< a", ">>deu<< a", ">>xyz<< a", " >>fra<< a", "a >>fra<<"]
    assert tagged(lines, "fra", prepare, tokenizer) == [">>fra<< a", *lines[1:5], ">>fra<< a >>fra<<"]
    assert tagged(lines, "de", prepare, tokenizer) == lines
    assert tagged(lines, "fr", PrepareSection(target_language="fr"), tokenizer) == lines
