"""Ranks that were told different things end before anything is read, and say field, rank, host and both values."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from configs import Plugin, RunConfig, UserError, load_run
from data_pipeline.prepared.dataset import open_index
from tests.conftest import Corpus
from tests.forked import Forked, fork_ranks
from trainer import agreement
from trainer.agreement import VERSIONS, check_agreement, disagreements, what_was_told
from trainer.changes import differences
from trainer.ranks.distributed import World
from trainer.runs.identity import versions

PLUGIN = Plugin(file="/a/x.py", sha256="0" * 64, components=["schedule x"])


def told(config: RunConfig, parent: str | None = None) -> dict[str, object]:
    return what_was_told(config, parent)


def load(data: Path, *overrides: str) -> RunConfig:
    return load_run("debug", [f"prepare.output={data}", *overrides])


@pytest.fixture
def copied(corpus_en_fr: Corpus, tmp_path: Path) -> Path:
    """The corpus in another place."""
    shutil.copytree(corpus_en_fr.folder, tmp_path / "copy")
    return tmp_path / "copy"


def test_places_and_numbers_of_workers_may_differ(corpus_en_fr: Corpus, copied: Path) -> None:
    datasets = "stream.datasets=[{{path: {0}, weight: 1}}]"
    augment = "stream.augment=[{{kind: typos, probability: 0.5, datasets: [{0}]}}]"
    one, other = (
        load(Path("none"), datasets.format(path), augment.format(path), f"output={path}", f"stream.workers={n}")
        for n, path in enumerate((corpus_en_fr.folder, copied), 1)
    )
    assert told(one) == told(other)
    elsewhere = dataclasses.replace(PLUGIN, file="/b/x.py")
    assert told(dataclasses.replace(one, plugins=[PLUGIN])) == told(dataclasses.replace(other, plugins=[elsewhere]))
    for name in ("one", "two"):
        sets = f"evaluation.sets=[{{name: a, source: /{name}/a.en, references: [/{name}/a.fr]}}]"
        assert not list(differences(told(load(copied, sets)), told(load(copied, sets.replace("/one", "/two")))))


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        (["optimizer.lr=0.5"], "optimizer.lr"),
        (["seed=9"], "seed"),
        (["schedule.kind=linear"], "schedule.kind"),
        (["stream.micro_batches=3"], "stream.micro_batches"),
        (["engine.zero_stage=2"], "engine.zero_stage"),
        (["evaluation.every_updates=7"], "evaluation.every_updates"),
        (["training.ema_decay=0.5"], "training.ema_decay"),
        (["stream.augment=[{kind: typos, probability: 0.5}]"], "stream.augment"),
    ],
)
def test_what_decides_an_update_may_not(overrides: Sequence[str], field: str, corpus_en_fr: Corpus) -> None:
    one, other = (
        told(load(corpus_en_fr.folder, "schedule.warmup_updates=5")),
        told(load(corpus_en_fr.folder, "schedule.warmup_updates=5", *overrides)),
    )
    assert field in dict(differences(one, other))


def test_data_plugins_parents_and_versions_may_not(
    corpus_en_fr: Corpus, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(corpus_en_fr.folder)
    ours = told(config)
    (copied / "index.json").write_text((copied / "index.json").read_text() + " ")
    print_, changed = (open_index(folder)[2] for folder in (corpus_en_fr.folder, copied))
    assert dict(differences(ours, told(load(copied)))) == {"prepare.output": (print_, changed)}
    shutil.rmtree(copied)
    [(_, (_, missing))] = differences(ours, told(load(copied)))
    assert str(copied) in missing, "a dataset that one node lacks"
    for other, field in (
        (told(dataclasses.replace(config, plugins=[PLUGIN])), "plugins"),
        (told(config, parent="runs/a"), "--from"),
    ):
        assert list(dict(differences(ours, other))) == [field]
    for package in ("zeromt", "torch", "deepspeed", "sentencepiece"):
        with monkeypatch.context() as patched:
            found = {**versions(VERSIONS), package: "0.0"}
            patched.setattr(agreement, "versions", lambda _, found=found: found)
            assert list(dict(differences(ours, told(config)))) == [f"version.{package}"]


def test_what_stands_in_variables_of_the_environment_is_compared(
    corpus_en_fr: Corpus, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datasets by their fingerprints, other text by a hash: it may be a secret."""
    settings = [
        "stream.datasets=[{path: '${oc.env:DATA}'}]",
        "evaluation.sets=[{name: a, sacrebleu: '${oc.env:NAME}'}]",
    ]

    def load_there(folder: Path, name: str) -> dict[str, object]:
        monkeypatch.setenv("DATA", str(folder))
        monkeypatch.setenv("NAME", name)
        return told(load(corpus_en_fr.folder, *settings))

    ours = load_there(corpus_en_fr.folder, "own")
    assert ours == load_there(copied, "own")
    [(field, values)] = differences(ours, load_there(copied, "other"))
    assert field == "evaluation.sets.0.sacrebleu"
    assert "${oc.env:NAME} (SHA-256 " in str(values)
    assert "own" not in str(values)
    (copied / "index.json").write_text((copied / "index.json").read_text() + " ")
    prints = [open_index(folder)[2] for folder in (corpus_en_fr.folder, copied)]
    [(field, values)] = differences(ours, load_there(copied, "own"))
    assert field == "stream.datasets.0.path"
    assert [print_ in str(value) for print_, value in zip(prints, values, strict=True)] == [True, True]


def test_the_message_names_rank_host_field_and_values(corpus_en_fr: Corpus) -> None:
    good, bad = told(load(corpus_en_fr.folder)), told(load(corpus_en_fr.folder, "optimizer.lr=0.5"))
    assert list(disagreements([("n0", good), ("n1", good), ("n2", bad), ("n2", bad)])) == [
        "optimizer.lr: rank 2 on n2 has 0.5, and rank 0 on n0 0.003; all ranks must have the same"
    ]


def test_ranks_do_compare_what_they_were_told(corpus_en_fr: Corpus) -> None:
    """Two real ranks: both are refused; a single gather where they agree."""

    def asked(world: World) -> tuple[int, str]:
        config = load(corpus_en_fr.folder)
        calls, gather = [], world.gather

        def counted(item: object, *kinds: type) -> list[object]:
            calls.append(1)
            return gather(item, *kinds)

        world.gather = counted  # type: ignore[method-assign]
        check_agreement(config, None, world)
        try:
            check_agreement(load(corpus_en_fr.folder, f"optimizer.lr=0.{world.rank + 1}"), None, world)
        except UserError as error:
            return len(calls), str(error)
        return len(calls), ""

    found = fork_ranks(2, asked)
    assert [calls for calls, _ in found] == [3, 3], "one where they agree, another where they do not"
    assert {said.partition(" on ")[0] for _, said in found} == {"optimizer.lr: rank 1"}
    assert all("has 0.2, and rank 0 on " in said for _, said in found)


def test_a_run_of_ranks_that_were_told_different_things_makes_nothing(
    corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    """One name of the data, and others behind it."""
    for rank in range(2):
        shutil.copytree(corpus_en_fr.folder, tmp_path / f"data{rank}")
    index = tmp_path / "data1" / "index.json"
    index.write_text(index.read_text() + " ")
    data = f"prepare.output={tmp_path}/data${{oc.env:RANK}}"
    done = forked.trainer(2, "debug", *corpus_en_fr.overrides, data, f"output={tmp_path}", "name=a", cwd=tmp_path)
    assert done.code
    assert "zeromt: error: prepare.output: rank 1 on " in done.err
    assert not (tmp_path / "a").exists()
