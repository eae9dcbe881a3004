"""Hypothesis strategies of calls on a stranger's run, dataset or model folder, of which a file has been forged."""

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn as Draw

from tests.fuzz.call import Call
from tests.fuzz.forgery import KINDS, OUTSIDE, SET
from tests.fuzz.genuine import CHECKPOINT, DATASET, MARIAN, MODEL, OTHER, RUN

HELD = (
    "config.yaml", "manifest.json", "manifest.sha256", "state.json", "tokenizer.model",
    "model-00000-of-00001.safetensors",
    "ema-00000-of-00001.safetensors", "optimizer-00000-of-00001.safetensors",
)  # fmt: skip
MODEL_FILES = (
    "config.json", "generation_config.json", "model.safetensors", "source.spm", "target.spm", "vocab.json",
)  # fmt: skip
FILES: dict[str, tuple[str, ...]] = {
    RUN: (
        "config.yaml", "eval/kept/*.hyp", "eval/kept/*.json", "eval/step-00000003.hyp", "eval/step-00000006.hyp",
        "history.jsonl", "ledger.json", "metrics.jsonl", "pairs/rank-00000.jsonl", "run.lock",
        "status.json", "checkpoints/latest", "report.md", "report.svg",
        *(f"checkpoints/step-00000006/{name}" for name in HELD),
        *(f"checkpoints/step-00000003/{name}" for name in HELD),
    ),
    DATASET: (
        "blocks.npy", "index.json", "lengths.npy", "report.json", "tokenizer.model", "train-000000.tar",
        "valid.source.txt", "valid.target.txt",
    ),
    MODEL: (*MODEL_FILES, "README.md", "search.json", "tokenizer_config.json"),
    MARIAN: MODEL_FILES,
    "out/old": (),
}  # fmt: skip
"""Every file of the folders in `genuine`."""
MORE: dict[str, tuple[str, ...]] = {
    RUN: (
        "STOP", "launch.lock", "stuck.log", "parent.json", "logs/jobs.json", "logs/requeues.json", "logs/launch.log",
        "failures", "failures/1/rank0.log", "plugins", "queue", "logs", "pairs", "eval", "eval/kept", "checkpoints",
        "checkpoints/step-00000006", "checkpoints/step-00000009", "checkpoints/tmp-x", "events.out.tfevents.1.x.1",
        "metrics.prom",
    ),
    DATASET: (
        "places.npy", "hashes.json", "parts.json", "tokenizer.source.model", "tokenizer.target.model", "parts",
        "test.source.txt", "tmp-x", "score-qe.json", "score-qe.npy",
    ),
    MODEL: ("tokenizer.json", "model.safetensors.index.json", "sentencepiece.bpe.model", "pytorch_model.bin"),
    MARIAN: ("tokenizer_config.json", "tokenizer.json", "model.safetensors.index.json", "sentencepiece.bpe.model"),
    "out/old": (
        "config.yaml", "model.safetensors", "tokenizer.model", "checkpoints", "README.md", "config.json", "model.bin",
        "tmp-x",
    ),
}  # fmt: skip
"""Names that a command looks for, or makes, in them; and folders of theirs."""
TEXTS = "--source corpus/v.en --reference corpus/v.fr"
NEW = "out/new"
UPDATE = "small.yaml name=new training.max_updates=1 evaluation.max_pairs=2 stream.retries=0"
COMMANDS: dict[str, tuple[str, ...]] = {
    RUN: (
        f"status {RUN}", f"status {RUN} --json", f"stop {RUN} --no-wait", f"log {RUN}", f"inspect {RUN}",
        f"inspect {CHECKPOINT}",
        f"translate {RUN} -i corpus/in.en", f"translate {CHECKPOINT} -i corpus/in.en --beam 2",
        f"translate {OTHER} -i corpus/in.en --ensemble {RUN}",
        f"evaluate {RUN} {TEXTS}", f"evaluate {RUN} --set dataset",
        f"compare {RUN} {OTHER} --bootstrap 20 --randomisation 20",
        f"report {RUN}", f"compare {RUN} --bootstrap 20",
        f"export {RUN} --format=safetensors -o {NEW}", f"export {RUN} --format=huggingface -o {NEW}",
        f"average {RUN} --last=2 -o {NEW}", f"average {RUN} --best=2 -o {NEW}",
        f"batch {RUN} 5", f"batch {RUN} 5 --loss",
        f"train {UPDATE} --from={RUN}",
        f"prepare small.yaml prepare.output=made prepare.workers=1 --tokenizer-of {RUN}",
        f"import {CHECKPOINT}/model-00000-of-00001.safetensors --preset=marian_base --tokenizer={DATASET} -o {NEW}",
        f"import {RUN}/x.safetensors --preset=marian_base --tokenizer={CHECKPOINT} -o {NEW}",
    ),
    DATASET: (
        f"inspect {DATASET}", f"batch {RUN} 5", f"batch {RUN} 5 --loss",
        f"evaluate {RUN} --set dataset",
        f"report {RUN}", f"compare {RUN} --bootstrap 20",
        f"export {RUN} --format=huggingface -o {NEW}",
        f"train {UPDATE}", "plan small.yaml --nodes=1 --gpus-per-node=2 --gpu-memory=80GB",
        "launch slurm small.yaml --dry-run", "doctor small.yaml",
        f"prepare small.yaml prepare.output={DATASET} prepare.workers=1",
        f"prepare small.yaml prepare.output=made prepare.workers=1 prepare.tokenizer.path={DATASET}/tokenizer.model",
        f"prepare small.yaml prepare.output=made prepare.workers=1 prepare.tokenizer.path={DATASET}",
        f"import {CHECKPOINT}/model-00000-of-00001.safetensors --preset=marian_base --tokenizer={DATASET} -o {NEW}",
    ),
    MODEL: (
        f"import --huggingface {MODEL} -o {NEW}", f"import --huggingface {MODEL} -o {NEW} --source-language eng_Latn",
        f"inspect {MODEL}", f"translate {MODEL} -i corpus/in.en",
        f"import {MODEL}/model.safetensors --preset=marian_base --tokenizer={MODEL} -o {NEW}",
        f"export {RUN} --format=huggingface -o {MODEL}",
    ),
    MARIAN: (f"import --huggingface {MARIAN} -o {NEW}",),
    "out/old": (
        f"export {RUN} --format=safetensors -o out/old", f"export {RUN} --format=huggingface -o out/old",
        f"average {RUN} --last=2 -o out/old", f"import --huggingface {MODEL} -o out/old",
        f"translate {RUN} -i corpus/in.en -o out/old/config.yaml",
        f"evaluate {RUN} {TEXTS} -o out/old/README.md",
    ),
}  # fmt: skip
"""What can be done with each."""
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**70, 1e300, 0.5, "", "x", "1", [], {}, [[]], {"a": 1}, [1] * 1000, "x" * 5000,
    "\x1b[31m\u202e", "caf\u00e9\n", "../../../secret", f"{OUTSIDE}/secret", f"{OUTSIDE}/folder",
    [f"{OUTSIDE}/plugin.py"],
    f"file://{OUTSIDE}/secret", "http://127.0.0.1:9/x", "~/.netrc", "${oc.env:HOME}", "${seed}", "/dev/zero",
    "$(touch x)", f"touch {OUTSIDE}/new", [{"path": f"{OUTSIDE}/folder"}], {"kind": "x"}, "step-00000003", "NaN",
)  # fmt: skip
"""What can be set in a file of JSON or YAML."""


@dataclass(frozen=True)
class Target:
    """What a call is about."""

    folder: str
    file: str


def targets() -> list[Target]:
    """Every file of every folder, and every name that a command makes there."""
    return [Target(folder, name) for folder in FILES for name in (*FILES[folder], *MORE[folder])]


@st.composite
def calls(draw: Draw, target: Target) -> Call:
    """A call that uses the folder."""
    name = f"{target.folder}/{target.file}"
    has_values = target.file.endswith((".json", ".jsonl", ".yaml", "latest", "STOP", ".sha256"))
    if has_values and draw(st.booleans()):
        how = f"{SET}{draw(st.integers(0, 400))} {json.dumps(draw(st.sampled_from(VALUES)))}"
    else:
        how = draw(st.sampled_from(sorted(KINDS)))
    return Call(argv=tuple(draw(st.sampled_from(COMMANDS[target.folder])).split()), forged={name: how})
