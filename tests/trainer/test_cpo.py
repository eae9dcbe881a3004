"""Contrastive preference optimization beside a loop in plain PyTorch, and from a translation to a tuned model."""

import gzip
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from configs import CorpusFiles, PrepareSection, RunConfig, TokenizerSection, UserError, load_run
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.reader import StreamReader
from tests.conftest import Corpus, read_metrics
from tests.data_pipeline.conftest import BUNDLED
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from trainer.checkpoint.format import read_whole
from trainer.checkpoint.model_files import build_model, load_weights
from trainer.datasets import check_triples
from trainer.optimizers.adamw import AdamW

NUM_TRIPLES, UPDATES = 500, 12
BETA, NLL_WEIGHT = 0.2, 0.7
SETTINGS = (
    "loss={kind: cpo, beta: 0.2, nll_weight: 0.7}",
    "stream.micro_batches=5",
    "stream.source_tokens=512",
    "stream.target_tokens=512",
    "model.dropout=0",
    "optimizer.clip_norm=0.3",
    "optimizer.eps=1e-4",  # of gradients that are 0, as of the bias of keys, rounding would decide
    "schedule.kind=constant",
    "schedule.warmup_updates=0",
    "engine.precision=fp32",
    f"training.max_updates={UPDATES}",
    "training.log_every=1",
    "evaluation.every_updates=0",
    "checkpoint.every_updates=0",
)
CASES: dict[int, list[list[str]]] = {
    1: [["engine.zero_stage=0"], ["engine.zero_stage=1", "engine.kernels=cuda"]],  # the latter packs rows and lanes
    2: [["engine.zero_stage=1"], ["engine.zero_stage=2"], ["engine.zero_stage=3"]],
}


@pytest.fixture(scope="module")
def triples(corpus_en_fr: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset: of each source its translation, and the source left as it is."""
    folder = tmp_path_factory.mktemp("triples")
    english, french = (
        gzip.decompress((BUNDLED / f"valid.{language}.gz").read_bytes()).decode().splitlines()
        for language in ("en", "fr")
    )
    with (folder / "triples.jsonl").open("w") as file:
        for source, chosen, rejected in list(zip(english, french, english, strict=False))[:NUM_TRIPLES]:
            file.write(f"{json.dumps({'source': source, 'chosen': chosen, 'rejected': rejected})}\n")
    train = CorpusFiles(jsonl=["triples.jsonl"], target_field="chosen", rejected_field="rejected")
    prepare.run(
        PrepareSection(
            output=str(folder / "triples"),
            root=str(folder),
            target_language="fr",
            train=train,
            tokenizer=TokenizerSection(path=str(corpus_en_fr.folder)),
            pairs_per_block=32,
            max_pieces=128,
        )
    )
    assert Dataset.load(folder / "triples").num_pairs == NUM_TRIPLES
    return folder / "triples"


def plain_loop(config: RunConfig, dataset: Dataset) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """Figures of each update, and the weights after the last; only the model and the order of triples are shared."""
    reader = StreamReader([(dataset, None)], config.stream, seed=config.seed, rank=0, world_size=1)
    model = build_model(config.model, dataset.tokenizer, seed=config.seed).train()
    parameters = list(model.parameters())
    o = config.optimizer
    assert isinstance(o, AdamW)
    adamw = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": o.weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=o.lr,
        betas=(o.beta1, o.beta2),
        eps=o.eps,
    )
    found: list[dict[str, float]] = []
    while len(found) < UPDATES:
        micro_batches = [m for m in reader.next_update() if m is not None]
        if not micro_batches:
            reader.end_epoch()
            continue
        log_ps, num_tokens = [], 0
        for m in micro_batches:
            logits = model.output(model(torch.from_numpy(m.source), torch.from_numpy(m.target_input)))
            target_BT = torch.from_numpy(m.target_output)
            log_p_BT = torch.log_softmax(logits, -1).gather(2, target_BT[..., None])[..., 0]
            log_ps.append((log_p_BT * (target_BT != 0)).sum(1))
            num_tokens += int((target_BT[::2] != 0).sum())
        chosen, rejected = (torch.cat([log_p[side::2] for log_p in log_ps]) for side in (0, 1))
        nll = -chosen.sum() / num_tokens
        loss = -F.logsigmoid(BETA * (chosen - rejected)).mean() + NLL_WEIGHT * nll
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters, o.clip_norm)
        adamw.step()
        adamw.zero_grad()
        margin, wins = (chosen - rejected).mean(), (chosen > rejected).float().mean()
        figures = {"loss": loss, "nll": nll, "margin": margin, "chosen_wins": wins}
        found.append({name: value.item() for name, value in figures.items()})
    reader.close()
    return found, {name: p.detach() for name, p in model.named_parameters()}


def test_agrees_with_a_plain_loop_on_one_and_two_ranks(
    corpus_en_fr: Corpus, triples: Path, forked: Forked, tmp_path: Path
) -> None:
    common = [*corpus_en_fr.overrides, *SETTINGS, f"output={tmp_path}", f"stream.datasets=[{{path: {triples}}}]"]
    config, dataset = load_run("debug", common), Dataset.load(triples)
    figures, weights = plain_loop(config, dataset)
    margins = [one["margin"] for one in figures]
    print(f"margin {margins[0]:.3f} to {margins[-1]:.3f}, chosen wins {figures[-1]['chosen_wins']:.1%}")
    assert margins[-1] > margins[0] + 1
    worst = {"loss": 0.0, "weights": 0.0}
    for num_ranks, cases in CASES.items():
        runs = [[*common, *case, f"name=on{num_ranks}-{number}"] for number, case in enumerate(cases)]
        forked.ranks(num_ranks, train_all, runs, cwd=tmp_path)
        for number, case in enumerate(cases):
            folder = tmp_path / f"on{num_ranks}-{number}"
            lines = read_metrics(folder)
            assert len(lines) == UPDATES
            for line, expected in zip(lines, figures, strict=True):
                for name, value in expected.items():
                    assert line[name] == pytest.approx(value, rel=1e-5, abs=1e-5), (case, line["step"], name)
                worst["loss"] = max(worst["loss"], abs(line["loss"] / expected["loss"] - 1))
            model = build_model(config.model, dataset.tokenizer, seed=1)
            load_weights(read_whole(next((folder / "checkpoints").glob("step-*"))), model, raw=True)
            for name, weight in model.named_parameters():
                worst["weights"] = max(worst["weights"], (weight - weights[name]).abs().max().item())
    print("largest relative difference of a loss, largest of a weight:", worst)
    assert worst["weights"] < 1e-5


@pytest.mark.parametrize("multiple", [1, 3])
def test_packed_rows_have_the_same_sums(multiple: int) -> None:
    from model.cpo import row_sums

    lengths = torch.tensor([3, 1, 4, 2, 5, 3]) * multiple
    values, bounds = torch.randn(int(lengths.sum())), F.pad(lengths.cumsum(0), (1, 0)).int()
    expected = torch.stack([row.sum() for row in torch.split(values, lengths.tolist())])
    torch.testing.assert_close(row_sums(values, bounds), expected)
    padded = torch.nn.utils.rnn.pad_sequence(list(torch.split(values, lengths.tolist())), batch_first=True)
    torch.testing.assert_close(row_sums(padded.flatten(), padded.shape[1]), expected)


def test_pairs_and_triples_are_not_taken_for_each_other(corpus_en_fr: Corpus, triples: Path, tmp_path: Path) -> None:
    config = load_run("debug", [*corpus_en_fr.overrides, *SETTINGS, f"output={tmp_path}"])
    with pytest.raises(UserError, match=r"loss\.kind: cpo trains on triples, and .*prepared holds pairs; prepare"):
        check_triples([Dataset.load(corpus_en_fr.folder)], config)
    config = load_run("debug", [*corpus_en_fr.overrides, f"output={tmp_path}"])
    with pytest.raises(UserError, match=r"loss\.kind: cross_entropy with .*triples, which holds triples; allowed is c"):
        check_triples([Dataset.load(triples)], config)
    with pytest.raises(UserError, match=r"stream\.augment: given with loss\.kind=cpo, whose triples are not modified"):
        load_run("debug", [*SETTINGS, "stream.augment=[{kind: noise}]"])
    with pytest.raises(UserError, match=r"stream\.datasets: loss_weight: given with loss\.kind=cpo, whose triples"):
        load_run("debug", [*SETTINGS, "stream.datasets=[{path: a, loss_weight: 2}]"])
    with pytest.raises(UserError, match=r"training\.normalize_by: tokens: given with loss\.kind=cpo"):
        load_run("debug", [*SETTINGS, "training.normalize_by=tokens"])


JUDGE = """
import json, sys
from sacrebleu.metrics import CHRF
references, chrf = json.load(open("references.json")), CHRF()
for line in sys.stdin:
    source, candidate = line.rstrip("\\n").split("\\t")
    print(chrf.sentence_score(candidate, [references[source]]).score)
"""


def test_from_candidates_to_a_tuned_model(place: Path, forked: Forked) -> None:
    """Sampled translations, ranked by likeness to references; `small` is tuned on the triples, killed, and resumed."""

    def run(*words: str) -> str:
        done = forked.zeromt(*words, cwd=place)
        assert done.code == 0, done.err
        return done.out

    english, french = ((place / f"corpus/a.{side}").read_text().splitlines() for side in ("en", "fr"))
    (place / "in.en").write_text("".join(f"{line}\n" for line in english[:60]))
    (place / "references.json").write_text(json.dumps(dict(zip(english, french, strict=True))))
    (place / "judge.py").write_text(JUDGE)
    words = ["translate", "runs/small", "-i", "in.en", "-o", "out", "--sample", "--candidates", "3"]
    words += ["--max-length-extra", "5", "--quality", f"{sys.executable} judge.py"]
    run(*words, "--part", "1/1")
    assert "out/triples.jsonl: " in run(*words, "--merge", "--choose", "triples")
    train = "{source: [], target: [], jsonl: [../out/triples.jsonl], target_field: chosen, rejected_field: rejected}"
    run("prepare", "small.yaml", "prepare.output=triples", f"prepare.train={train}", "prepare.tokenizer.path=dataset")
    settings = [
        "small.yaml",
        "stream.datasets=[{path: triples}]",
        "loss={kind: cpo, beta: 0.5}",
        "schedule.kind=constant",
    ]
    settings += ["schedule.warmup_updates=0", "model.dropout=0", "evaluation.max_pairs=2", "training.max_updates=16"]

    def tune(name: str, num_ranks: int, *more: str) -> list[dict[str, Any]]:
        done = forked.trainer(num_ranks, *settings, f"name={name}", "--from", "runs/small", *more, cwd=place)
        assert done.code == 0, done.err
        assert "  margin " in done.out
        return read_metrics(place / "runs" / name)

    whole = tune("whole", 1)
    tune("halved", 2, "training.max_updates=8")
    resumed = tune("halved", 1)
    for one, other in zip(whole, resumed, strict=True):
        for name in ("loss", "margin", "chosen_wins"):
            assert one[name] == pytest.approx(other[name], rel=1e-5, abs=1e-5), (one["step"], name)
    margins = [statistics.mean(line["margin"] for line in part) for part in (whole[:4], whole[-4:])]
    print(f"margin {margins[0]:.3f} to {margins[1]:.3f}")
    assert margins[1] > margins[0]
    assert read_metrics(place / "runs" / "whole", "evaluation")[-1]["loss"] > 0
    shown = run("batch", "runs/whole", "16", "--loss")
    assert "a token of either translation under step-00000015" in shown
    done = forked.trainer(1, *settings, "stream.datasets=[{path: dataset}]", "name=pairs", cwd=place)
    assert done.code == 2
    assert "loss.kind: cpo trains on triples, and dataset holds pairs; prepare triples" in done.err.splitlines()[-1]
