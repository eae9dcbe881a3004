"""A run on a mixture: every dataset is evaluated, proportions are printed, it resumes on other ranks and workers."""

import itertools
import json
import re
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import bundled, read_metrics, read_pairs
from tests.forked import Forked
from tests.trainer.evaluation.test_evaluation import sacrebleu
from zeromt.inspecting.found import find_update

PARTS = {"first": slice(0, 120), "second": slice(120, 320), "third": slice(320, 360)}
TRAINING = """
name: {name}
output: {root}/runs
prepare: {{max_pieces: 128}}
stream:
  datasets: [{{path: {root}/first}}, {{path: {root}/second}}, {{path: {root}/third}}]
  temperature: 5
  micro_batches: 3
  source_tokens: 256
  target_tokens: 256
model:
  {{d_model: 32, encoder_layers: 1, decoder_layers: 1, attention: {{num_heads: 2}}, feed_forward: {{d_ff: 64}},
   max_positions: 256}}
optimizer: {{lr: 3.0e-3}}
schedule: {{warmup_updates: 5}}
engine: {{zero_stage: 2, precision: fp32}}
training: {{max_updates: 40, log_every: 1, record_pairs: true}}
evaluation: {{every_updates: 20, max_pairs: 6}}
checkpoint: {{every_updates: 20}}
"""


def _run(forked: Forked, root: Path, num_ranks: int, name: str, *overrides: str) -> str:
    config = root / f"{name}.yaml"
    config.write_text(TRAINING.format(name=name, root=root))
    done = forked.trainer(num_ranks, str(config), *overrides, cwd=root)
    assert done.code == 0, done.err
    return done.out


@pytest.fixture(scope="module")
def root(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three datasets with the first one's tokenizer; the third has no validation set."""
    root = tmp_path_factory.mktemp("mixture")
    for language in ("en", "fr"):
        for name, part in PARTS.items():
            (root / f"{name}.{language}").write_bytes(bundled(language, part))
    for name in PARTS:
        config = root / f"prepare-{name}.yaml"
        tokenizer = {"vocab_size": 400} if name == "first" else {"path": str(root / "first")}
        section = {
            "output": str(root / name),
            "root": str(root),
            "target_language": "fr",
            "train": {"source": [f"{name}.en"], "target": [f"{name}.fr"]},
            "valid": {"source": [f"{name}.en"], "target": [f"{name}.fr"]},
            "tokenizer": tokenizer,
            "pairs_per_block": 8,
        }
        if name == "third":
            del section["valid"]
        config.write_text(json.dumps({"prepare": section}))
        done = forked.zeromt("prepare", str(config), cwd=root)
        assert done.code == 0, done.err
    return root


def test_mixture(root: Path, forked: Forked) -> None:
    out = _run(forked, root, 1, "through")
    for name, part in PARTS.items():
        assert re.search(
            rf"dataset {name}: {part.stop - part.start} pairs, proportion \d\d\.\d\d%, \d\.\d\d passes", out
        ), out
    assert "not evaluated, for want of a validation set (prepare.valid): third" in out
    assert re.search(r"an epoch of the mixture is 360 pairs, about \d+ updates", out), out
    run = root / "runs" / "through"
    _check_realised_proportions(run, out)
    evaluations = read_metrics(run, "evaluation")
    assert [e["step"] for e in evaluations] == [20, 40]
    assert out.count("  mean over first, second\n") == 2
    for evaluation in evaluations:
        assert evaluation["mean_over"] == ["first", "second"]
        for figure in ("loss", "bleu", "chrf"):
            each = [evaluation[f"{figure}/{name}"] for name in ("first", "second")]
            assert evaluation[figure] == pytest.approx(sum(each) / 2)
        assert evaluation["loss/first"] != evaluation["loss/second"]
        assert evaluation["pairs"] == 12
        assert not [key for key in evaluation if key.endswith("/third")]
        for name in ("first", "second") if evaluation is evaluations[-1] else ():
            reference = root / f"{name}.reference"
            reference.write_bytes(b"".join((root / f"{name}.fr").read_bytes().splitlines(keepends=True)[:6]))
            theirs = sacrebleu(reference, run / "eval" / f"step-{evaluation['step']:08d}.{name}.hyp")
            assert evaluation[f"bleu/{name}"] == pytest.approx(theirs["score"], abs=1e-9)
    assert {line["corrupt_blocks"] for line in read_metrics(run)} == {0}
    # Stopped within the second epoch and resumed on two ranks with a loader process each: the same updates.
    assert [line["epoch"] for line in read_metrics(run) if line["step"] in (20, 21)] == [1, 1]
    _run(forked, root, 2, "parts", "training.max_updates=20", "stream.workers=1")
    assert read_metrics(root / "runs" / "parts")[-1]["step"] == 20
    _run(forked, root, 2, "parts", "stream.workers=2", "stream.prefetch_updates=1")
    assert read_pairs(root / "runs" / "parts") == read_pairs(run)
    for step in (1, 21, 40):
        found = {(step, m.lane): m.pair_ids.tolist() for m in find_update(root / "runs" / "parts", step).micro_batches}
        assert found == {key: pairs for key, pairs in read_pairs(run).items() if key[0] == step}
    keys = [f"{figure}/{name}" for figure in ("micro_batches", "token_share") for name in PARTS]
    one, two = ([[line[key] for key in keys] for line in read_metrics(r)] for r in (run, root / "runs" / "parts"))
    assert one == two, "over all ranks"


def _check_realised_proportions(run: Path, out: str) -> None:
    """Of each log step: micro-batches of each dataset, which add up, and parts of the target tokens, printed and in
    TensorBoard; over the run near to the proportions at temperature 5, which are of pairs."""
    lines, shown = read_metrics(run), re.findall(r"target tokens by dataset: (.*) micro-batches", out)
    assert len(shown) == len(lines)
    for line, losses in zip(lines, re.findall(r" micro-batches; loss: (.*)", out), strict=True):
        kept = {f"{name} {line[f'loss/{name}']:.4f}" for name in PARTS if f"loss/{name}" in line}
        assert set(losses.split(", ")) == kept
    board = EventAccumulator(str(run), size_guidance={"scalars": 0})
    board.Reload()
    for key in (f"{figure}/{name}" for figure in ("micro_batches", "token_share") for name in PARTS):
        drawn = itertools.dropwhile(
            lambda value: value == 0, (line[key] for line in lines)
        )  # what never was has no curve
        assert [e.value for e in board.Scalars(f"train/{key}")] == pytest.approx(list(drawn))
    tokens = dict.fromkeys(PARTS, 0.0)
    for line, text in zip(lines, shown, strict=True):
        of_parts = [(line[f"token_share/{name}"], line.get(f"loss/{name}", 0.0)) for name in PARTS]
        assert sum(part * loss for part, loss in of_parts) == pytest.approx(line["loss"], rel=1e-5)
        counts = {name: line[f"micro_batches/{name}"] for name in PARTS}
        assert sum(counts.values()) == 3
        assert sum(line[f"token_share/{name}"] for name in PARTS) == pytest.approx(1)
        for name, count in counts.items():
            tokens[name] += line[f"token_share/{name}"] * line["target_tokens"]
            assert f"{name} {line[f'token_share/{name}']:.1%} in {count}" in text
            assert (count == 0) == (line[f"token_share/{name}"] == 0)
    sizes = {name: part.stop - part.start for name, part in PARTS.items()}
    wanted = {name: size**0.2 / sum(n**0.2 for n in sizes.values()) for name, size in sizes.items()}
    assert {name: count / sum(tokens.values()) for name, count in tokens.items()} == pytest.approx(wanted, abs=0.1)


def test_no_validation_set_at_all(root: Path, forked: Forked) -> None:
    config = root / "none.yaml"
    config.write_text(TRAINING.format(name="none", root=root))
    only = f"stream.datasets=[{{path: {root}/third}}]"
    run = root / "runs" / "none"
    for number, limit in enumerate((3, 5)):  # its training loss alone; it is saved and resumed as every other
        settings = [only, f"training.max_updates={limit}", "evaluation.every_updates=2", "checkpoint.every_updates=2"]
        done = forked.trainer(1, str(config), *settings, cwd=root)
        assert done.code == 0, done.err
        assert "no validation set (prepare.valid): this run reports its training loss alone" in done.out
        assert ("resumed from" in done.out) == (number == 1)
    assert [line["step"] for line in read_metrics(run)] == [1, 2, 3, 4, 5]
    assert read_metrics(run, "evaluation") == []
    assert [path.name for path in sorted((run / "checkpoints").glob("step-*"))][-1] == "step-00000005"
    done = forked.zeromt("average", str(run), "--best", "1", "-o", str(root / "best"), cwd=root)
    assert (done.code, "has a validation score; take --last 1" in done.err) == (2, True), done.err
    assert forked.zeromt("status", str(run), cwd=root).code == 0
