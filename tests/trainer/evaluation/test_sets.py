"""Named held-out sets: equal scores at any world size and stage, with several references, wherever they come from."""

import gzip
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from configs import HeldOutSection, PrepareSection, UserError, load_run
from tests.conftest import Call, Refused, read_metrics
from tests.forked import Forked
from tests.trainer.conftest import TrainedRun
from trainer.build import build
from trainer.evaluation.sets import load_sets
from trainer.ranks.distributed import World

METRICS = "evaluation.metrics=[bleu, chrf, ter, {kind: chrf, word_order: 2}]"
STAGES = {1: (0,), 2: (1, 3)}
"""By number of ranks."""
RELEASED = (
    "engine.zero_optimization="
    "{stage3_max_live_parameters: 0, stage3_max_reuse_distance: 0, stage3_param_persistence_threshold: 0}"
)
"""Parameters are released at once, as those of a large model are."""
DIRECT: dict[str, Callable[[], Any]] = {
    "bleu": lambda: BLEU(tokenize="13a"),
    "chrf": CHRF,
    "ter": TER,
    "chrfpp": lambda: CHRF(word_order=2),
}


@pytest.fixture(scope="module")
def sets(trained: TrainedRun, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four, of every form: two files for validation, two for tests, one compressed, one with a tag, one prepared."""
    root = tmp_path_factory.mktemp("sets")
    sources, references = (path.read_text().splitlines() for path in (trained.source, trained.reference))
    for name, lines in (("a", range(20)), ("b", range(20, 45)), ("c", range(45, 60))):
        (root / f"{name}.en").write_text("".join(f"{sources[i]}\n" for i in lines))
        (root / f"{name}.fr").write_text("".join(f"{references[i]}\n" for i in lines))
        (root / f"{name}.other").write_text("".join(f"Oui, {references[i].lower()}\n" for i in lines))
    with gzip.open(root / "c.fr.gz", "wb") as file:
        file.write((root / "c.fr").read_bytes())
    return f"""evaluation.sets=[
        {{name: a, source: {root}/a.en, references: [{root}/a.fr, {root}/a.other]}},
        {{name: b, source: {root}/b.en, references: {root}/b.fr}},
        {{name: c, role: test, source: {root}/c.en, references: [{root}/c.fr.gz]}},
        {{name: own, role: test, prepared: valid}}]""".replace("\n", " ")


def score_everywhere(world: World, config: str, *settings: str) -> list[dict[str, Any]]:
    """As one of any number of ranks: what a checkpoint's evaluation gives at every stage."""
    by_stage = []
    for stage in STAGES[world.size]:
        more = [f"engine.zero_stage={stage}", "training.tensorboard=false", "training.max_updates=301"]
        if stage == 3:
            more.append(RELEASED)
        built = build(load_run(config, [*settings, *more]), world, stop_requested=lambda: False)
        assert built.resumed_step == 300
        evaluation = built.evaluator.evaluate(built.run.engine, step=300)
        assert evaluation is not None
        figures = evaluation.figures()
        figures["hypotheses"] = {name: list(part.hypotheses) for name, part in evaluation.parts.items()}
        del figures["seconds"]
        by_stage.append(figures)
        built.close()
    return by_stage


@pytest.fixture(scope="module")
def everywhere(
    trained: TrainedRun, sets: str, forked: Forked, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, list[dict[str, Any]]]:
    """Figures by ranks and stage."""
    root, by_ranks = tmp_path_factory.mktemp("everywhere"), {}
    for num_ranks in STAGES:
        shutil.copytree(trained.folder, root / f"{num_ranks}" / "heart")
        config = root / f"{num_ranks}.yaml"
        config.write_text(trained.config.read_text().replace(f"{trained.folder.parent}", f"{root}/{num_ranks}"))
        by_ranks[num_ranks] = forked.ranks(num_ranks, score_everywhere, str(config), sets, METRICS, cwd=root)[0]
    return by_ranks


def test_sets_have_equal_scores_at_any_world_size_and_stage(everywhere: dict[int, list[dict[str, Any]]]) -> None:
    first = everywhere[1][0]
    assert list(first["hypotheses"]) == ["a", "b", "c", "own"]
    assert first["bleu"] > 20, "a model that knows nothing would agree with itself about nothing"
    for num_ranks, stages in STAGES.items():
        for stage, figures in zip(stages, everywhere[num_ranks], strict=True):
            assert figures["hypotheses"] == first["hypotheses"], (num_ranks, stage)
            for key in first:
                if "loss" in key or key in ("nll", "perplexity"):  # sums in another order
                    assert figures[key] == pytest.approx(first[key], rel=1e-6), (key, num_ranks, stage)
                else:
                    assert figures[key] == first[key], (key, num_ranks, stage)


def test_scores_are_those_of_sacrebleu(everywhere: dict[int, list[dict[str, Any]]], trained: TrainedRun) -> None:
    """Set by set, with all references; and what is best goes by the mean of the validation sets alone."""
    figures = everywhere[1][0]
    references = trained.reference.read_text().splitlines()
    others = [f"Oui, {line.lower()}" for line in references]
    texts = {
        "a": [references[:20], others[:20]],
        "b": [references[20:45]],
        "c": [references[45:60]],
        "own": [references],
    }
    for name, streams in texts.items():
        for key, make_metric in DIRECT.items():
            theirs = make_metric().corpus_score(figures["hypotheses"][name], streams)
            assert figures[f"{key}/{name}"] == pytest.approx(theirs.score, abs=1e-9), (key, name)
    for key in DIRECT:
        assert figures[key] == pytest.approx((figures[f"{key}/a"] + figures[f"{key}/b"]) / 2), key
    assert figures["pairs"] == 45
    assert figures["bleu_signature"].startswith("nrefs:2|")
    assert "; nrefs:1|" in figures["bleu_signature"], "as the two sets have been scored"


def make_sections(*trees: dict[str, Any]) -> list[HeldOutSection]:
    return [HeldOutSection(**tree) for tree in trees]


PREPARE = PrepareSection(source_language="eng", target_language="de")


def test_a_set_of_files(tmp_path: Path) -> None:
    for name, text in (("s", "a\nb\n"), ("r", "c\nd\n")):
        (tmp_path / name).write_text(text)
    source, reference = str(tmp_path / "s"), str(tmp_path / "r")
    section = {"name": "x", "source": source, "references": [reference, reference], "tag": ">>de<<"}
    [loaded] = load_sets(make_sections(section), PREPARE, {}, option="sets")
    assert (loaded.sources, loaded.references) == ([">>de<< a", ">>de<< b"], [["c", "d"], ["c", "d"]])
    assert loaded.languages == ("eng", "de")


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"source": "none.en", "references": ["none.de"]}, "none.en"),
        ({"source": "two", "references": ["one"]}, "2 lines"),
        ({"source": "empty", "references": ["empty"]}, "is empty"),
        ({"prepared": "test"}, "sets.0.prepared: no dataset has a test set"),
    ],
)
def test_what_cannot_be_had_is_one_line(
    tree: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("two", "a\nb\n"), ("one", "c\n"), ("empty", "")):
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        load_sets(make_sections({"name": "x", **tree}), PREPARE, {}, option="sets")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_sets_at_a_resume(call: Call, sets: str, tmp_path: Path, trained: TrainedRun, forked: Forked) -> None:
    """Sets come and go without preparing again, and `zeromt evaluate` knows them."""
    run = Path(shutil.copytree(trained.folder, tmp_path / "runs" / "heart"))
    text = trained.config.read_text().replace(f"output: {trained.folder.parent}", f"output: {tmp_path}/runs")
    (tmp_path / "heart.yaml").write_text(text)
    more = ("training.max_updates=303", "evaluation.every_updates=0", METRICS)
    done = forked.zeromt("train", "heart.yaml", sets, *more, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "what is best goes by bleu as it is measured now, and not by the scores so far" in done.out
    assert "  c (test): loss " in done.out
    *_, last = read_metrics(run, "evaluation")
    assert [key for key in last if key.startswith("bleu/")] == ["bleu/a", "bleu/b", "bleu/c", "bleu/own"]
    assert (run / "eval" / "step-00000303.c.hyp").read_text().count("\n") == 15

    figures = json.loads(call("evaluate", str(run), "--beam", "1").out)
    for name, key in itertools.product(("a", "b", "c", "own"), DIRECT):
        assert figures["sets"][name][key] == pytest.approx(last[f"{key}/{name}"], abs=0.006), (name, key)
    assert (figures["sets"]["c"]["role"], figures["sets"]["c"]["languages"], figures["step"]) == ("test", "en-fr", 303)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--source", "{source}"], "--reference: "),
        (["--set", "x"], "--set: there is no set of the run 'x'"),
        (["--set", "{{name: x}}"], "--sets.0.name: x "),
        (["--set", "x", "--source", "{source}", "--reference", "{source}"], "--set: given with --source"),
        (["--set", "x", "--target-language", "de"], "--target-language: 'de'"),
        (["--set", "{{name: x, prepared: test}}"], "--set.0.prepared: "),
        (
            ["--set", "{{name: x, prepared: valid}}", "--set", "{{name: y, prepared: valid}}", "-o", "a"],
            "--output: ",
        ),
    ],
)
def test_what_evaluate_refuses(
    arguments: list[str], named: str, trained: TrainedRun, refused: Refused, tmp_path: Path
) -> None:
    options = [argument.format(source=trained.source) for argument in arguments]
    assert refused("evaluate", str(trained.folder), *options).startswith(named)
    assert list(tmp_path.iterdir()) == []
