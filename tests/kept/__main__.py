"""Makes tests/kept/VERSION of this checkout's version: `make keep`, once for each release.

Its folder is read by all later versions (`tests/kept/test_kept.py`) and is never made again.
"""

import functools
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import configs.load
from configs.components import kinds
from configs.components.registry import FAMILIES
from configs.load import parse_run, parse_tree
from configs.reading.meanings import fields
from configs.schema import RunConfig
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import REPO, bundled, environment, read_metrics, torchrun, zeromt
from tests.kept.keys import Document, documents, empty, keys_of
from zeromt.translating.corpus.command import EngineFile

BEGINNINGS = """
evaluation:
  sets: [{name: a, source: s, references: [r]}]
  queued: [{name: comet, command: [cat]}]
  search: {sampler: {kind: truncated, top_k: 5}}
---
evaluation: {sets: [{name: b, sacrebleu: wmt14/full}]}
---
evaluation: {sets: [{name: c, prepared: valid}]}
---
phases: [{name: a, until: {updates: 5}, datasets: [{path: d}], temperature: 2.0}]
---
phases: [{name: a, until: {passes: 2}}]
---
phases: [{name: a, until: {plateau: {}}}]
---
prepare:
  train: {tsv: [t], score_files: {b: [f]}, score_datasets: {c: d}}
  scores: {q: {command: [cat]}}
  filters: [{kind: threshold, score: q, at_least: 0.25, at_most: 0.75, without: drop, datasets: ["a*"]}]
---
training: {rates: {"decoder.*": 0.5}}
---
stream: {augment: [{kind: prefix, text: ">>a<<", probability: 0.5, datasets: []}]}
---
loss: {kind: cpo}
---
model: {positions: {kind: rotary}}
"""
"""What growing from nothing does not come to."""
ELSEWHERE = ("evaluation.perturb.", "phases.augment.", "phases.schedule.", "plugins")
"""Paths whose components are those of `stream.augment` and `schedule`; and plugins, which are files."""
NEVER = {
    f"prepare.{split}.{name}" for split in ("valid", "test") for name in ("scores", "score_files", "score_datasets")
}
"""Keys that no valid configuration has."""
CONFIG = """\
name: kept
prepare:
  output: dataset
  source_language: en
  target_language: fr
  train: {source: [a.en], target: [a.fr]}
  valid: {source: [v.en], target: [v.fr]}
  tokenizer: {vocab_size: 120, character_coverage: 0.98, normalization: identity}
  max_pieces: 64
  pairs_per_block: 50
  record_places: true
stream: {micro_batches: 2, source_tokens: 512, target_tokens: 512, window_pairs: 64}
model:
  {d_model: 8, encoder_layers: 2, decoder_layers: 2, max_positions: 128, dropout: 0.0, attention: {num_heads: 2},
   feed_forward: {d_ff: 16}}
optimizer: {lr: 1.0e-2}
schedule: {kind: inverse_sqrt, warmup_updates: 4}
engine: {zero_stage: 1, precision: fp32}
training: {max_updates: 4, log_every: 1, ema_decay: 0.9, tensorboard: false, memory_probe: false, record_pairs: true}
evaluation: {every_updates: 4, max_pairs: 4, search: {max_length_extra: 8}}
checkpoint: {every_updates: 4}
"""
"""Without dropout, whose noise is not promised to stay: what is expected comes of the data and of what was saved."""
NOT_KEPT = ("a.en", "a.fr", "v.en", "v.fr", "kept.yaml")
LAST = 6
"""The update to which the run is resumed."""
TEXT = "He is here.\nI see a dog.\n"


def keys() -> list[Document]:
    """Documents with one key each, which says what reads the rest: run, engine, or the kind of a cluster.

    Raises:
        SystemExit: there is a key of a run's configuration that none has.
    """
    configs.load._adapter = functools.cache(configs.load._adapter)  # read 20,000 times here
    turns = max(len(kinds(family)) for family in FAMILIES)  # no choice has more words
    beginnings = list(yaml.safe_load_all(BEGINNINGS))
    runs = documents(RunConfig, parse_run, beginnings, turns)
    for run in runs:
        run.pop("plugins", None)
    if missing := set(_wanted()) - set(_held(runs)):
        raise SystemExit(f"in no document: {sorted(missing)}; add them to BEGINNINGS")
    made = [{"run": run} for run in runs]
    for engine in kinds("translation_engine").values():
        made += [{"engine": one} for one in documents(engine, _read_engine, [empty(engine)], 0)]
    for kind, cluster in kinds("cluster").items():
        made += [{kind: site} for site in documents(cluster, functools.partial(_read_as, cluster), [], turns)]
    return made


def _read_as(type_: type[Any], tree: Document) -> Any:
    return parse_tree(tree, type_)


def _read_engine(tree: Document) -> Any:
    return parse_tree({"engine": tree}, EngineFile).engine


def _wanted() -> Iterator[tuple[str, str]]:
    """Paths of all keys of a run's configuration, with the kind of the component that each is of."""
    for field in fields():
        path = field.path.replace("[N]", "").replace(".NAME", "")
        if not path.startswith(ELSEWHERE) and path not in NEVER:
            yield path, field.kind or ""


def _held(runs: list[Document]) -> Iterator[tuple[str, str]]:
    for key in (key for run in runs for key in keys_of(run)):
        steps = key.split(".")
        path = ".".join(step.partition("(")[0] for step in steps)
        yield path, ""
        yield path, steps[-2].partition("(")[2].rstrip(")") if len(steps) > 1 else ""


def make(place: Path) -> None:
    """Prepare the dataset, train the run, and write what is to be expected of both, in a new folder."""
    for name, lines in {"a": slice(200), "v": slice(200, 208)}.items():
        for language in ("en", "fr"):
            (place / f"{name}.{language}").write_bytes(bundled(language, lines))
    (place / "kept.yaml").write_text(CONFIG, encoding="utf-8")
    _call(zeromt("prepare", "kept.yaml"), place)
    _call(torchrun(2, "-m", "trainer", "kept.yaml"), place)
    with tempfile.TemporaryDirectory() as other:
        copy = shutil.copytree(place, Path(other) / "copy")
        _call(torchrun(2, "-m", "trainer", "runs/kept/config.yaml", f"training.max_updates={LAST}"), copy)
        losses = {line["step"]: line["loss"] for line in read_metrics(copy / "runs/kept")}
        nll = read_metrics(copy / "runs/kept", "evaluation")[-1]["nll"]
    expected = {
        "losses": losses,
        "nll": nll,
        "text": TEXT,
        "translated": _call(zeromt("translate", "runs/kept", "--beam", "2"), place, TEXT),
        "fingerprint": Dataset.load(place / "dataset").fingerprint,
    }
    for name in NOT_KEPT:
        (place / name).unlink()
    (place / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _call(command: list[str], place: Path, text: str | None = None) -> str:
    done = subprocess.run(
        command, cwd=place, env=environment(), input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main() -> None:
    """Make the folder, which must not be there."""
    version = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    folder = Path(__file__).parent / version
    if folder.exists():
        sys.exit(f"{folder} is there; what a release made is kept as it is")
    with tempfile.TemporaryDirectory() as root:
        place = Path(root) / "kept"
        place.mkdir()
        make(place)
        text: Any = yaml.safe_dump_all(keys(), sort_keys=False, allow_unicode=True, width=120)
        (place / "keys.yaml").write_text(text, encoding="utf-8")
        shutil.copytree(place, folder)
    print(f"{folder}: {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()):,} bytes")


if __name__ == "__main__":
    main()
