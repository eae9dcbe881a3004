"""What is looked at before training: what ranks were told, and what DeepSpeed can shard on them."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from configs import Plugin, RunConfig, load_run
from tests.conftest import Corpus
from tests.forked import Forked
from trainer.ranks import checks
from trainer.ranks.checks import VERSIONS, agreement_hashes
from trainer.runs.layout import versions

PLUGIN = Plugin(file="/a/x.py", sha256="0" * 64, components=["schedule x"])


def load(data: Path, *overrides: str) -> RunConfig:
    return load_run("debug", [f"prepare.output={data}", *overrides])


def differing(one: RunConfig, other: RunConfig, parent: str | None = None) -> set[str]:
    """The fields that differ, and those that either lacks."""
    ours, theirs = agreement_hashes(one, None), agreement_hashes(other, parent)
    return {field for field in {**ours, **theirs} if ours.get(field) != theirs.get(field)}


def test_places_and_numbers_of_workers_may_differ_and_nothing_else(
    corpus_en_fr: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = "stream.datasets=[{{path: {0}, weight: 1}}]"
    augment = "stream.augment=[{{kind: typos, probability: 0.5, datasets: [{0}]}}]"
    sets = "evaluation.sets=[{{name: a, source: {0}/a.en, references: [{0}/a.fr]}}]"
    copied = Path(shutil.copytree(corpus_en_fr.folder, tmp_path / "copy"))
    one, other = (
        dataclasses.replace(
            load(
                *(Path("none"), datasets.format(path), augment.format(path), sets.format(path)),
                *(f"output={path}", f"stream.workers={n}"),
            ),
            plugins=[dataclasses.replace(PLUGIN, file=f"{path}/x.py")],
        )
        for n, path in enumerate((corpus_en_fr.folder, copied), 1)
    )
    assert differing(one, other) == set()

    config = load(corpus_en_fr.folder)
    ours = agreement_hashes(config, None)
    for override in ("optimizer.lr=0.5", "seed=9", "schedule.kind=linear", "evaluation.every_updates=7"):
        assert override.partition("=")[0] in differing(config, load(corpus_en_fr.folder, override))
    (copied / "index.json").write_text((copied / "index.json").read_text() + " ")
    assert differing(config, load(copied)) == {"prepare.output"}
    shutil.rmtree(copied)
    assert differing(config, load(copied)) == {"prepare.output"}, "a dataset that one node lacks"
    assert "plugins.0.sha256" in differing(config, dataclasses.replace(config, plugins=[PLUGIN]))
    assert differing(config, config, parent="runs/a") == {"--from"}
    for package in VERSIONS:
        changed = {**versions(VERSIONS), package: "0.0"}
        monkeypatch.setattr(checks, "versions", lambda _, changed=changed: changed)
        assert agreement_hashes(config, None).items() ^ ours.items() >= {(package, ours[package])}


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
