"""`zeromt score`: each pair's numbers against a plain loop over the model, in any number of parts."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs import CorpusFiles, PrepareSection, TokenizerSection
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from model import Transformer
from tests.conftest import Refused
from tests.zeromt.made import ENGLISH, FRENCH, make_run, make_tokenizer
from zeromt.cli.main import main
from zeromt.scoring import command as scoring


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Transformer]]:
    """A dataset, and runs of both directions."""
    root = tmp_path_factory.mktemp("score")
    tokenizer = make_tokenizer(joint=True)
    tokenizer.save(root)
    (root / "a.en").write_text("".join(f"{line}\n" for line in ENGLISH))
    (root / "a.fr").write_text("".join(f"{line}\n" for line in FRENCH))
    prepare.run(
        PrepareSection(
            output=str(root / "data"),
            root=str(root),
            source_language="en",
            target_language="fr",
            train=CorpusFiles(source=["a.en"], target=["a.fr"]),
            tokenizer=TokenizerSection(path=str(root)),
            pairs_per_block=16,
        )
    )
    models = {
        "log_prob": make_run(root / "there", tokenizer, seed=1, languages=("en", "fr")),
        "reverse_log_prob": make_run(root / "back", tokenizer, seed=2, languages=("fr", "en")),
    }
    return root, models


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BLOCKS", 3)


def log_prob(model: Transformer, source: list[int], target: list[int]) -> float:
    """Per token, EOS included."""
    with torch.no_grad():
        hidden = model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target]]))
        log_probs = model.output(hidden)[0].double().log_softmax(-1)
    wanted = [*target, 2]
    return float(sum(log_probs[i, token] for i, token in enumerate(wanted))) / len(wanted)


def command(root: Path, *more: str) -> list[str]:
    return ["score", str(root / "data"), "--run", str(root / "there"), "--reverse", str(root / "back"), *more]


@pytest.mark.usefixtures("small_chunks")
def test_the_scores_are_those_of_a_plain_loop_in_any_number_of_parts(made: Any) -> None:
    root, models = made
    assert main(command(root)) == 0
    dataset = Dataset.load(root / "data")
    scores = {name: dataset.score(name) for name in dataset.scores()}
    assert set(scores) == {"log_prob", "reverse_log_prob", "dual"}
    pair = 0
    for number in range(len(dataset.blocks)):
        block = dataset.read_block(number)
        ends = np.cumsum(block.lengths, axis=0, dtype=np.int64)[:-1]
        sides = (np.split(side, ends[:, i]) for i, side in enumerate((block.source, block.target)))
        for source, target in zip(*sides, strict=True):
            there = log_prob(models["log_prob"], source.tolist(), target.tolist())
            back = log_prob(models["reverse_log_prob"], target.tolist(), source.tolist())
            assert scores["log_prob"][pair] == pytest.approx(there, abs=1e-5)
            assert scores["reverse_log_prob"][pair] == pytest.approx(back, abs=1e-5)
            expected = math.exp(-(abs(-there + back) + (-there - back) / 2))
            assert scores["dual"][pair] == pytest.approx(expected, rel=1e-4)
            pair += 1
    assert pair == len(ENGLISH)
    assert not (root / "data.scoring").exists()

    whole = {path.name: path.read_bytes() for path in (root / "data").glob("score-*")}
    for part in ("2/3", "1/3", "3/3", "3/3"):
        assert main(command(root, "--part", part)) == 0
    for path in (root / "data").glob("score-*"):
        path.unlink()
    assert main(command(root, "--merge")) == 0
    assert {path.name: path.read_bytes() for path in (root / "data").glob("score-*")} == whole
    assert Dataset.load(root / "data").fingerprint == dataset.fingerprint


def test_all_pairs_with_their_scores_are_written_for_a_later_preparation(made: Any, refused: Refused) -> None:
    root, _ = made
    written = ("--jsonl", str(root / "scored.jsonl"))
    assert "--jsonl: given with --part" in refused(*command(root, "--part", "1/2", *written))
    assert main(command(root, *written)) == 0
    rows = [json.loads(line) for line in (root / "scored.jsonl").read_text().splitlines()]
    assert {row["source"] for row in rows} == set(ENGLISH)
    scores = Dataset.load(root / "data").score("dual")[:]
    assert [row["dual"] for row in rows] == scores.tolist()


@pytest.mark.usefixtures("small_chunks")
def test_what_does_not_belong_together_is_refused(made: Any, refused: Refused) -> None:
    root, _ = made
    assert "--run: a run of fr -> en" in refused("score", str(root / "data"), "--run", str(root / "back"))
    assert main(command(root, "--part", "1/2")) == 0
    assert "chunks are missing, the first is 1" in refused(*command(root, "--merge"))
    other = ("score", str(root / "data"), "--run", str(root / "there"), "--precision", "bf16")
    assert 'engine.precision: "bf16", and ' in refused(*other)
    (root / "data.scoring/log_prob/chunks/000/000000.jsonl.zst").write_bytes(b"no table")
    assert main(command(root, "--part", "2/2")) == 0
    assert "000000.jsonl.zst' is corrupt" in refused(*command(root, "--merge"))
