"""Plugin files through every command: prepared, trained, restarted, resumed, used; and what is refused on the way."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.conftest import Corpus, Finished, read_metrics
from tests.forked import Forked

FILTERS = '''
from configs.components import DroppingFilter, component


@component("filter", "odd_ends")
class OddEnds(DroppingFilter):
    """Drops pairs whose source ends with one of some digits."""

    digits: str = "7"

    def find(self, sources, targets):
        return [row for row, source in enumerate(sources) if source[-1:] in self.digits]
'''
HALVES = '''
from configs.components import Schedule, component


@component("schedule", "halves")
class Halves(Schedule):
    """Half the rate after each update."""

    def factor(self, update, last):
        return 0.5**update
'''
RUN = """
name: run
plugins: [halves.py]
schedule: {kind: halves, warmup_updates: 2}
training: {max_updates: 6, log_every: 1, tensorboard: false}
evaluation: {every_updates: 0, max_pairs: 4}
checkpoint: {every_updates: 2}
"""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, corpus_en_fr: Corpus, forked: Forked) -> Path:
    """A folder with a finished run of two ranks; not to be written to."""
    folder = tmp_path_factory.mktemp("plugins")
    tree = yaml.safe_load((Path(__file__).parents[2] / "configs" / "runs" / "debug.yaml").read_text())
    settings = [setting.removeprefix("prepare.").split("=", 1) for setting in corpus_en_fr.overrides]
    tree["prepare"] |= dict(settings)
    (folder / "my.yaml").write_text(yaml.safe_dump({**tree, **yaml.safe_load(RUN)}))
    (folder / "halves.py").write_text(HALVES)
    done = forked.trainer(2, "my.yaml", cwd=folder)
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of that folder, at another place."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def _refused(done: Finished) -> str:
    """What is said of bad input."""
    assert (done.code, "Traceback" in done.err) == (2, False), done
    [line] = [line for line in done.err.splitlines() if line.startswith("zeromt: error: ")]
    return line


@pytest.fixture
def text(tmp_path: Path) -> Path:
    for name in "ab":
        for side in ("en", "fr"):
            (tmp_path / f"{name}.{side}").write_text("".join(f"{name} word of {side} {n}\n" for n in range(300)))
    (tmp_path / "my.yaml").write_text(
        "plugins: [theirs/odd.py]\n"
        "prepare: {output: out, target_language: fr, train: {source: [a.en, b.en], target: [a.fr, b.fr]}, "
        "valid: {source: [a.en], target: [a.fr]}, tokenizer: {vocab_size: 60}, max_pieces: 100, workers: 2, "
        "filters: [{kind: odd_ends, digits: '79'}]}\n"
    )
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "odd.py").write_text(FILTERS)
    return tmp_path


def test_the_dataset_knows_its_filters_file(text: Path, forked: Forked) -> None:
    plugin = text / "theirs" / "odd.py"
    then = sha256(plugin)
    assert forked.zeromt("prepare", "my.yaml", cwd=text).code == 0
    index = json.loads((text / "out" / "index.json").read_text())
    assert index["dropped"]["odd_ends"] == 120
    assert index["recipe"]["settings"]["plugins"] == {"filter odd_ends": then}
    assert "already prepared" in forked.zeromt("prepare", "my.yaml", cwd=text).out
    plugin.write_text(FILTERS + "\n")
    line = _refused(forked.zeromt("prepare", "my.yaml", cwd=text))
    assert f"holds another dataset (plugins.filter odd_ends was '{then}' and is '{sha256(plugin)}')" in line
    line = _refused(forked.zeromt("launch", "local", "my.yaml", cwd=text))
    assert f"prepare.plugins.filter odd_ends: {sha256(plugin)}, the dataset has {then}; out was prepared" in line
    assert forked.zeromt("inspect", "out", cwd=text).code == 0


def test_run_and_checkpoint_know_it(trained: Path) -> None:
    run, known = trained / "runs" / "run", sha256(trained / "halves.py")
    copies = list((run / "plugins").iterdir())
    assert [path.read_text() for path in copies] == [HALVES]
    assert known[:16] in copies[0].name
    for path in (run, run / "checkpoints" / "step-00000006"):
        [record] = yaml.safe_load((path / "config.yaml").read_text())["plugins"]
        assert (record["sha256"], record["components"]) == (known, ["schedule halves"])
    manifest = json.loads((run / "checkpoints" / "step-00000006" / "manifest.json").read_text())
    assert manifest["fingerprints"]["plugins"] == {"halves.py (schedule halves)": known}
    rates = [line["lr"] for line in read_metrics(run)]
    assert rates[2:] == pytest.approx([3e-3 * 0.5**n for n in range(3, 7)])


def test_a_resume_holds_the_file_against_the_checkpoint(run: Path, forked: Forked) -> None:
    path, then = run / "halves.py", sha256(run / "halves.py")
    more = ("training.max_updates=7", "name=run")
    path.write_text(HALVES.replace("0.5", "0.25"))
    for command in (("train",), ("launch", "local", "--nproc", "2")):
        line = _refused(forked.zeromt(*command, "my.yaml", *more, cwd=run))
        assert f"was made with another version of the plugin halves.py (SHA-256 {then}); give that: --plugins " in line
        assert ", another name for a new run, or --reset data,optimizer to continue from the weights alone" in line
    other = ("train", "my.yaml", "training.max_updates=7", "--reset", "data,optimizer")
    [copy] = [p for p in (run / "runs" / "run" / "plugins").iterdir() if then[:16] in p.name]
    done = forked.zeromt("train", "my.yaml", *more, "plugins=[]", "--plugins", str(copy), cwd=run)
    assert done.code == 0, done.err
    assert [line["step"] for line in read_metrics(run / "runs" / "run")] == list(range(1, 8))
    done = forked.zeromt(*other, cwd=run)
    assert done.code == 0, done.err
    assert "only the weights are kept" in done.out + done.err


def test_needs_the_switch(run: Path, forked: Forked) -> None:
    (run / "text").write_text("a b c\nd e\n")
    command = ("translate", "runs/run", "-i", "text", "--processes", "2")
    line = _refused(forked.zeromt(*command, cwd=run))
    assert "needs schedule halves of the plugin halves.py (SHA-256 " in line
    assert "plugins are run only if you name them" in line
    done = forked.zeromt(*command, "--plugins", line.rpartition(" ")[2], cwd=run)
    assert done.code == 0, done.err
    then = sha256(run / "halves.py")
    (run / "halves.py").write_text(HALVES + "\n")
    line = _refused(forked.zeromt(*command, "--plugins", "halves.py", cwd=run))
    assert f"was made with another version of the plugin halves.py (SHA-256 {then})" in line
