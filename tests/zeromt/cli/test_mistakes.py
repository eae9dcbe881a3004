"""Slips of the first weeks are answered by what is there instead, in one line, and nothing is lost or begun."""

from pathlib import Path

import pytest

from tests.conftest import Refused

RUN = "training: {max_updates: 5}\n"
FILES = {
    "my.yaml": RUN,
    "site.yaml": "partition: gpu\n",
    "steps.yaml": "steps: {a: {run: 'true'}}\n",
    "engine.yaml": "kind: ctranslate2\nrun: runs/my\n",
    "twice.yaml": RUN + "seed: 1\n" + RUN,
    "indent.yaml": "model:\n  d_model: 8\n   encoder_layers: 1\n",
    "comment.yaml": "optimizer: {lr: 1 # the peak}\nseed: 1\n",
    "thousands.yaml": "training: {max_updates: 12,000}\n",
    "space.yaml": "optimizer: {lr:1}\n",
    "comma.yaml": "evaluation: {metrics: [bleu], chrf}\n",
    "corpus.en": "A dog runs.\nA cat sleeps.\n" * 5000,
    "runs/my/config.yaml": RUN,
    "runs/my/checkpoints/step-00000005/config.yaml": RUN,
}
ROWS = [
    # A path of another kind, or one letter off.
    ("translate my x", "argument RUN: 'my': no such file or folder; did you mean 'runs/my'?"),
    ("translate runs/muy x", "no such file or folder; did you mean 'runs/my'?"),
    ("translate runs/my@5 x", "did you mean 'runs/my/checkpoints/step-00000005'?"),
    ("translate my.yaml x", "RUN: 'my.yaml': is a file; did you mean 'runs/my'?"),
    ("translate runs/my/checkpoints x", "give the run, 'runs/my', or one of the folders in this one"),
    ("score my.yaml --run runs/my", "'my.yaml': is a file; give a folder made by zeromt prepare"),
    ("train runs/my", "'runs/my' is a folder; the configuration of its run is 'runs/my/config.yaml'"),
    ("train runs/my/checkpoints/step-00000005", "the configuration of its run is 'runs/my/config.yaml'"),
    ("train my", "no such file: 'my'; did you mean 'my.yaml'?"),
    ("train my.yml", "did you mean 'my.yaml'?"),
    ("train seed=2 my.yaml", "'seed=2' is a setting; give the YAML file before the settings"),
    ("train help", "CONFIG: 'help' is no YAML file; add --help for help"),
    ("launch local -- train my.yaml", "CONFIG: 'train' is no YAML file; `zeromt train` is a command of its own"),
    ("train my.yaml preset=transformer_wmt_en_de_big", "did you mean vaswani_big?"),
    ("pipeline studnt", "did you mean 'student'?"),
    # A file of another kind.
    ("train site.yaml", "CONFIG: site.yaml: this is a site's profile: give it by --site"),
    ("train steps.yaml", "this is a pipeline: `zeromt pipeline steps.yaml` runs it"),
    ("train engine.yaml", "this is a translation engine: give it by --engine"),
    ("pipeline my.yaml", "this is a run's configuration: `zeromt train my.yaml` trains it"),
    ("launch slurm my.yaml --site my.yaml", "--site: my.yaml: this is a run's configuration"),
    ("translate --engine my.yaml -i corpus.en -o out --part 1/1", "--engine: my.yaml: this is a run's configuration"),
    ("train corpus.en", "CONFIG: corpus.en: is not a mapping; write lines such as `key: value`"),
    # YAML.
    ("train twice.yaml", "duplicate key training in line 3: keep one of the two"),
    (
        "train indent.yaml",
        "line 3, column 18: 'encoder_layers: 1': mapping values are not allowed in this context; indent",
    ),
    ("train comment.yaml", "for the bracket that opens in line 1; a # in brackets ends the line"),
    ("train thousands.yaml", "write numbers without commas, such as 8000"),
    ("train space.yaml", "optimizer.lr:1: unknown key; a space is missing behind the colon: lr: 1"),
    ("train comma.yaml", "a list is written [a, b]"),
    # Settings.
    ("train my.yaml optimizer.lr 3", "override: 'optimizer.lr'; allowed is section.key=value: optimizer.lr=VALUE"),
    ("train my.yaml optimizer.lr:3", "allowed is section.key=value: optimizer.lr=3"),
    ("train my.yaml site.yaml", "override: 'site.yaml'; allowed is section.key=value, behind one YAML file"),
    ("train my.yaml training.max_updates=1e5", "allowed is a whole number, such as 100000"),
    ("train my.yaml evaluation.metrics=bleu", "allowed is a list, such as [bleu]"),
    ("translate runs/my x beam=5", "SENTENCE: 'beam=5' is a setting, and no sentence; give --beam 5"),
    ("translate runs/my x model.dropout=0", "a run's fields cannot be set here"),
    ("train my.yaml --max-tokens 9 --arch x", "--arch: settings are written section.key=value: preset=x"),
    ("launch slurm my.yaml --gres gpu:4", "here it is gpus_per_node of the site's profile"),
    ("translate runs/my corpus.en", "is a file; -i corpus.en translates its lines"),
    ("evaluate runs/my corpus.en corpus.en", "give files by --source and --reference"),
    ("status runs/my runs/my", "one run at a time; `zeromt status` alone shows all"),
    # What would be overwritten.
    ("translate runs/my -i corpus.en -o my.yaml", "'my.yaml' is there, and a YAML file is not replaced"),
]


@pytest.mark.parametrize(("typed", "wanted"), ROWS, ids=[typed for typed, _ in ROWS])
def test_answers(refused: Refused, tmp_path: Path, typed: str, wanted: str) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    said = refused(*typed.split())
    assert wanted in said
    assert len(said) < 600
    there = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert there == FILES
